"""What a config would be: the model built without weights, its cost, and what its options come to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from variants import config as configs
from variants import slots
from variants.errors import attempt
from variants.models import cost, effects, memory
from variants.registry import fields_of
from variants.relations import related, trainable


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
        untrainable: Why no run could train it; empty: one could.
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
    untrainable: list[str]
    length: int
    batch_size: int


def explain(overrides: Sequence[configs.Override] = (), config_dir: str | Path | None = None) -> Explanation:
    """Compose a config and say what it would be, without training or reading data.

    Raises:
        ConfigError: All that is wrong with it, a line each.
    """
    config = configs.compose(overrides, config_dir)
    picks = [o for o in overrides if "." not in (o.partition("=")[0] if isinstance(o, str) else o[0])]
    data, known, model = related(config)
    untrainable: list[str] = []
    attempt(untrainable, "", lambda: trainable(config))
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
        untrainable,
        data.length,
        data.batch_size,
    )


def idle(config: configs.Config) -> list[str]:
    """Run options that another one makes idle, or cuts short."""
    lines, choice = list[str](), slots.schedules[config["schedule"]["name"]]
    fields = fields_of(choice.build)
    if "lr" in config["optimiser"] and "lr" not in fields:
        lines.append(f"optimiser.lr has no effect: schedule {choice.name} sets the learning rate by itself")
    # Those that are told of max_steps refuse it; noam's curve is the paper's, however early one leaves it.
    max_steps = config["trainer"]["max_steps"]
    warmup = config["schedule"].get("warmup", fields["warmup"].default if "warmup" in fields else 0)
    if "max_steps" not in fields and warmup > max_steps:
        lines.append(f"schedule.warmup={warmup} is above trainer.max_steps={max_steps}: the peak is never reached")
    return lines


def modules_by_value(kernels: dict[str, str]) -> dict[str, int]:
    """How many modules run each kernel."""
    return {name: sum(k == name for k in kernels.values()) for name in sorted(set(kernels.values()))}
