"""Begin a study: a folder with a ``study.yaml`` that runs as it is, and a README that asks for its question."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from variants import config as configs
from variants.ablation import levels
from variants.ablation.plan import plan
from variants.ablation.study import read
from variants.errors import ConfigError
from variants.reading import read_yaml
from variants.training.files import write

BASE = ("model=llama_tiny", "data=bible_en", "trainer.max_steps=300")
PREDICTION = "None was written down."
README = """\
# {name}

**Question.** {question}

**Prediction.** {prediction}

<!-- Before the study runs, write in study.yaml and here:
     - what you ask, in one sentence that a number can answer;
     - what you expect and why, with the paper that says so;
     - which difference would matter (smallest_effect). -->

## Run it

    variants sweep {folder} --dry-run    # arms, costs, time
    variants sweep {folder}              # cut at any time, the same command goes on

## Verdict

<!-- verdict -->
The study has not run yet.
<!-- end of verdict -->
"""


def new(
    folder: Path, axes: Sequence[str], base: Sequence[str] = (), config_dir: str | Path | None = None
) -> list[Path]:
    """Write a study's folder.

    Args:
        folder: Which must not be there.
        axes: What is varied, each ``field=value,value``; its first value is the baseline's.
        base: What all arms share: overrides; those that are not there are of a tiny language model on shipped text.
        config_dir: The user's folder of config files.

    Returns:
        The files.

    Raises:
        ConfigError: The folder is there, or the study could not run.
    """
    if folder.exists():
        raise ConfigError([f"{folder} is there already: name another study"])
    content = draft(axes, base)
    matches = ("parameters", "none") if any(axis.startswith("model.") for axis in content["axes"]) else ("none",)
    for match in matches:
        content["match"] = match
        problems = plan(read(content, folder), config_dir=config_dir).problems
        if not problems:
            break
    if problems:
        raise ConfigError(problems)
    folder.mkdir(parents=True)
    study, readme = folder / "study.yaml", folder / "README.md"
    write(study, configs.to_text(content))
    write(readme, README.format(**content, name=folder.name, folder=folder))
    return [study, readme]


def draft(axes: Sequence[str], base: Sequence[str] = ()) -> dict[str, Any]:
    """What a new ``study.yaml`` says.

    Raises:
        ConfigError: An axis is not written as one.
    """
    named = dict(_axis(text) for text in axes)
    given = {override.partition("=")[0] for override in base}
    shared = [override for override in BASE if override.partition("=")[0] not in given]
    names = {axis: [levels.text(value) for value in values] for axis, values in named.items()}
    asked = " and of ".join(f"{axis} ({', '.join(values)})" for axis, values in names.items())
    return {
        "question": f"What difference does the choice of {asked} make to the validation loss?",
        "prediction": PREDICTION,
        "base": [*shared, *base],
        "baseline": [values[0] for values in names.values()],
        "axes": named,
        "match": "none",
        "seeds": 3,
        "metric": "val/loss",
    }


def _axis(text: str) -> tuple[str, list[Any]]:
    name, equals, values = text.partition("=")
    try:
        listed = read_yaml(f"values: [{values}]")["values"]
    except ConfigError:
        listed = []
    if not equals or not listed:
        raise ConfigError(
            [f"--axis {text!r}: an axis is written field=value,value, such as model.norm=layernorm,rmsnorm"]
        )
    return name, listed
