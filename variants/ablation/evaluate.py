"""A trained run on other data than it was trained on, such as longer sequences."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from variants import config as configs
from variants.errors import ConfigError
from variants.reading import read_yaml
from variants.training.files import write

FILE = "evaluations.json"


def other_config(config: configs.Config, overrides: Sequence[str], config_dir: str | Path | None = None) -> Any:
    """A run's config with the overrides of an evaluation.

    Raises:
        ConfigError: All that is wrong with it, a line each.
    """
    for override in overrides:
        name, _, text = override.partition("=")
        if name in configs.GROUPS:
            config = {**config, name: configs.draft([override], config_dir)[name]}
        else:
            config = configs.overlay(config, [(name, read_yaml(f"value: {text}")["value"])])
    return configs.check(config)


def missing(folder: Path, names: Sequence[str]) -> list[str]:
    """The evaluations that a run does not have yet."""
    return [name for name in names if name not in read(folder)]


def read(folder: Path) -> dict[str, dict[str, Any]]:
    """A run's evaluations: name to metrics, or to ``{"refused": reason}``."""
    try:
        found: dict[str, dict[str, Any]] = json.loads((folder / FILE).read_text("utf-8"))
    except (OSError, ValueError):  # none yet, or damaged: they are made again
        return {}
    return found


def evaluate(folder: Path, settings: Mapping[str, configs.Config]) -> None:
    """Evaluate a run's last weights, and write the metrics into its folder.

    A model that cannot take the other data is a finding, written down with its reason.

    Args:
        folder: The run's, finished.
        settings: Name to the complete config with which it is evaluated.
    """
    found = read(folder)
    for name in missing(folder, list(settings)):
        try:
            found[name] = _validate(folder, settings[name])
            print(f"{name}: " + "  ".join(f"{metric} {value:.4f}" for metric, value in found[name].items()), flush=True)
        except ValueError as error:
            found[name] = {"refused": str(error)}
            print(f"{name}: refused: {error}", flush=True)
        write(folder / FILE, json.dumps(found, indent=2) + "\n")


def _validate(folder: Path, config: configs.Config) -> dict[str, float]:
    from variants.data.module import BatchModule
    from variants.relations import related
    from variants.training.checkpoints import read_checkpoint
    from variants.training.folder import Folder
    from variants.training.run import quiet, task_of, trainer_of

    checkpoint = read_checkpoint(Folder(folder).last)
    data, known, _ = related(config)
    trained = checkpoint["facts"]["known"]
    for size in ("vocab", "source_vocab"):
        if known[size] != trained[size]:
            raise ValueError(
                f"{size} of the data is {known[size]}, but {trained[size]} is what the model was built for"
            )
    task = task_of(config, data, {**known, **trained})
    try:
        task.model.load_state_dict({k.removeprefix("model."): v for k, v in checkpoint["state_dict"].items()})
    except RuntimeError as error:
        raise ConfigError([f"the weights do not fit: {str(error).splitlines()[-1].strip()}"]) from None
    alone = {"devices": 1, "strategy": "auto", "num_nodes": 1, "callbacks": [], "loggers": [], "early_stopping": None}
    config = {**config, "trainer": {**config["trainer"], **alone, "enable_progress_bar": False}}
    with quiet():
        trainer = trainer_of(config, Folder(folder), [], print)
        trainer.callbacks.clear()  # type: ignore[attr-defined]  # nothing is saved here
        data.prepare()
        task.bytes_per_target = data.bytes_per_target
        trainer.validate(task, datamodule=BatchModule(data, seed=config["seed"]), verbose=False)
    return {name: value for name, value in task.latest.items() if name.startswith("val/")}
