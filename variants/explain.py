"""What a config would be: the model built without weights, its cost, and what its options come to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from variants import config as configs
from variants import slots
from variants.models import assemble, cost, effects, memory
from variants.options import checkpoint_every
from variants.registry import ConfigError, fields_of, unknown
from variants.training.precision import check_precision

ACCELERATORS = ("auto", "cpu", "cuda", "gpu", "mps")  # Lightning's names


@dataclass(frozen=True)
class Explanation:
    """What a config would be.

    Attributes:
        config: Composed and checked.
        departures: What the overrides changed in the presets: the preset's value and this one's.
        parameters: Of the model.
        flops_per_token: Of one forward and backward.
        peak_bytes: An estimate of what a training step holds at its peak, on one device.
        kernels: The kernel that would run, by module.
        reasons: Why, where another one was asked for.
        without_effect: What was asked for and changes nothing.
        length: Target tokens of a sequence.
        batch_size: Sequences of a micro-batch.
    """

    config: configs.Config
    departures: dict[str, tuple[Any, Any]]
    parameters: cost.Parameters
    flops_per_token: int
    peak_bytes: int
    kernels: dict[str, str]
    reasons: list[str]
    without_effect: list[str]
    length: int
    batch_size: int


def known_of(config: configs.Config) -> tuple[Any, dict[str, Any]]:
    """The data of a config, not prepared, and what it lets a model know.

    Raises:
        ConfigError: The data cannot be used.
    """
    try:
        data = slots.data.build(config["data"])
    except ConfigError:
        raise
    except ValueError as error:
        raise ConfigError([f"data: {error}"]) from None
    trainer = config["trainer"]
    device = device_of(trainer["accelerator"])
    try:
        check_precision(trainer["precision"], device)
    except ValueError as error:
        raise ConfigError([str(error)]) from None
    return data, {
        "vocab": data.vocab,  # type: ignore[attr-defined]
        "source_vocab": data.source_vocab,  # type: ignore[attr-defined]
        "max_length": data.length,  # type: ignore[attr-defined]
        "source_length": data.source_length,  # type: ignore[attr-defined]
        "device": device,
        "checkpoint_every": checkpoint_every(trainer["gradient_checkpointing"]),
    }


def device_of(accelerator: str) -> str:
    """The kind of device that an accelerator's name means here.

    Raises:
        ConfigError: There is no such accelerator, or it is asked for by name and is not here.
    """
    if accelerator not in ACCELERATORS:
        raise ConfigError([f"trainer.accelerator: {unknown('accelerator', accelerator, ACCELERATORS)}"])
    if accelerator in ("gpu", "cuda") and not torch.cuda.is_available():
        raise ConfigError([f"trainer.accelerator: {accelerator} is asked for, but torch finds no GPU; cpu is here"])
    if accelerator == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return {"gpu": "cuda"}.get(accelerator, accelerator)


def explain(overrides: Sequence[configs.Override] = (), config_dir: str | Path | None = None) -> Explanation:
    """Compose a config and say what it would be, without training or reading data.

    Raises:
        ConfigError: All that is wrong with it, a line each.
    """
    config = configs.compose(overrides, config_dir)
    picks = [o for o in overrides if "." not in (o.partition("=")[0] if isinstance(o, str) else o[0])]
    data, known = known_of(config)
    fits(config, data)
    model = assemble(config["model"], **known)
    return Explanation(
        config,
        configs.departures(config, configs.compose(picks, config_dir)),
        cost.parameters(model),
        cost.training_flops(model, data.length, data.source_length),
        memory.peak_bytes(
            config["model"],
            known,
            data.batch_size,
            data.length,
            data.source_length,
            config["trainer"]["precision"],
        ),
        effects.kernels_of(model),
        effects.reasons(model),
        effects.without_effect(model) + idle(config),
        data.length,
        data.batch_size,
    )


def fits(config: configs.Config, data: Any) -> None:
    """Check that layout, objective and data go together.

    Raises:
        ConfigError: A line for each pair that does not.
    """
    layout = slots.layouts[config["model"]["layout"]["name"]]
    name = config["objective"]["name"] if config["objective"] else getattr(layout.component, "objective", None)
    if name is None:
        raise ConfigError([f"objective: layout {layout.name} has none of its own; name one"])
    objective: Any = slots.objectives[name].component
    problems = []
    if layout.name not in objective.layouts:
        allowed = ", ".join(objective.layouts)
        problems.append(f"objective: {name} trains {allowed}, but model.layout is {layout.name}")
    if data.kind != objective.kind:
        problems.append(
            f"objective: {name} takes {objective.kind} data, but data {config['data']['name']} is {data.kind}"
        )
    if problems:
        raise ConfigError(problems)


def idle(config: configs.Config) -> list[str]:
    """Run options that another one makes idle."""
    schedule = slots.schedules[config["schedule"]["name"]]
    if "lr" in config["optimiser"] and "lr" not in fields_of(schedule.build):
        return [f"optimiser.lr has no effect: schedule {schedule.name} sets the learning rate by itself"]
    return []


def modules_by_value(kernels: dict[str, str]) -> dict[str, int]:
    """How many modules run each kernel."""
    return {name: sum(k == name for k in kernels.values()) for name in sorted(set(kernels.values()))}
