"""What goes together in a run: the precision with the device, the objective with layout and data, a model's parts.

All of it is known without reading the data or allocating a weight. Where a value is wrong by itself, and was said to be
(`variants.errors.WRONG`), what depends on it is not judged, and all else is.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import nn

from variants import slots
from variants.errors import WRONG, ConfigError, Undecided, attempt, is_wrong, unknown
from variants.models import assemble
from variants.options import checkpoint_every
from variants.precision import check_precision

ACCELERATORS = ("auto", "cpu", "cuda", "gpu", "mps")  # Lightning's names
OF_DATA = {"vocab": "vocab", "source_vocab": "source_vocab", "max_length": "length", "source_length": "source_length"}


class Related(NamedTuple):
    """What a config gives, as far as it is known before anything is read.

    Attributes:
        data: Not prepared.
        known: What data, device and trainer let a model know; see `variants.models.Assembly`.
        model: On the meta device.
    """

    data: Any
    known: dict[str, Any]
    model: nn.Module


def related(config: Mapping[str, Any]) -> Related:
    """Build a run's parts without weights and without data, and so see whether they go together.

    Args:
        config: As `variants.config.check` gives it, or with `WRONG` where it found something wrong.

    Raises:
        ConfigError: All that does not go together, a line each.
        Undecided: Nothing is wrong with it but what was said to be.
    """
    problems: list[str] = []
    trainer, model = config["trainer"], config["model"]
    data = attempt(problems, "data", lambda: slots.data.build(config["data"]))
    device = attempt(problems, "", lambda: device_of(trainer["accelerator"]))
    attempt(problems, "", lambda: check_precision(trainer["precision"], device))
    known = {name: WRONG if is_wrong(data) else getattr(data, field) for name, field in OF_DATA.items()}
    known |= {"device": device, "checkpoint_every": _recomputed(trainer)}
    attempt(problems, "", lambda: fits(config, data))
    optimiser = attempt(problems, "optimiser", lambda: slots.optimisers.build(config["optimiser"]))
    offers = {
        "lr": getattr(optimiser, "lr", WRONG),
        "d_model": model["d_model"],
        "max_steps": trainer["max_steps"],
    }
    attempt(problems, "schedule", lambda: slots.schedules.build(config["schedule"], **offers))
    if config["objective"] is not None:
        attempt(problems, "objective", lambda: slots.objectives.build(config["objective"]))
    built, lines = _assembled(model, known)
    if problems := [*problems, *lines]:
        raise ConfigError(problems, config)
    if any(map(is_wrong, (data, device, built))):
        raise Undecided
    return Related(data, known, built)


def _recomputed(trainer: Mapping[str, Any]) -> int:
    every = attempt([], "", lambda: checkpoint_every(trainer["gradient_checkpointing"]))
    return 0 if is_wrong(every) else every


def _assembled(model: Mapping[str, Any], known: Mapping[str, Any]) -> tuple[Any, list[str]]:
    """The model, and what is wrong with it; where the layout is not known, what is wrong in every one."""
    layouts = [model["layout"]]
    if is_wrong(layouts[0]["name"]):
        layouts = [{"name": name} for name in slots.layouts.choices]
    built, said = None, []
    for layout in layouts:
        lines: list[str] = []
        built = attempt(lines, "", partial(assemble, {**model, "layout": layout}, **known))
        said.append(lines)
    return built, [line for line in said[0] if all(line in lines for lines in said)]


def device_of(accelerator: str) -> str:
    """The kind of device that an accelerator's name means here.

    Raises:
        ConfigError: There is no such accelerator, or it is asked for by name and is not here.
    """
    if is_wrong(accelerator):
        raise Undecided
    if accelerator not in ACCELERATORS:
        raise ConfigError([f"trainer.accelerator: {unknown('accelerator', accelerator, ACCELERATORS)}"])
    if accelerator in ("gpu", "cuda") and not torch.cuda.is_available():
        raise ConfigError([f"trainer.accelerator: {accelerator} is asked for, but torch finds no GPU; cpu is here"])
    if accelerator == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return {"gpu": "cuda"}.get(accelerator, accelerator)


def trainable(config: Mapping[str, Any]) -> None:
    """Check that there is an objective; a model can be explained without one.

    Raises:
        ConfigError: None is named, and the layout has none of its own.
    """
    node = config["model"]["layout"]
    if config["objective"] is not None or is_wrong(node["name"]):
        raise Undecided
    layout = slots.layouts[node["name"]]
    if getattr(layout.component, "objective", None) is not None:
        return
    trained = {name: getattr(c.component, "layouts", ()) for name, c in slots.objectives.choices.items()}
    if fitting := [name for name, layouts in trained.items() if layout.name in layouts]:
        raise ConfigError([f"objective: layout {layout.name} has none of its own; name one: {', '.join(fitting)}"])
    listed = ", ".join(f"{name} trains {' and '.join(layouts)}" for name, layouts in trained.items())
    raise ConfigError([f"objective: no registered one trains layout {layout.name}: {listed}"])


def fits(config: Mapping[str, Any], data: Any) -> None:
    """Check that layout, objective and data go together.

    Raises:
        ConfigError: A line for each pair that does not.
    """
    node, asked, source = config["model"]["layout"], config["objective"], config["data"]
    layout = None if is_wrong(node["name"]) else slots.layouts[node["name"]]
    name = asked["name"] if asked else getattr(layout and layout.component, "objective", None)
    if name is None or is_wrong(name):
        raise Undecided
    objective: Any = slots.objectives[name].component
    problems = []
    if layout and layout.name not in objective.layouts:
        allowed = ", ".join(objective.layouts)
        problems.append(f"objective: {name} trains {allowed}, but model.layout is {layout.name}")
    told = slots.data[source["name"]].component if is_wrong(data) and not is_wrong(source["name"]) else data
    kind = getattr(told, "kind", objective.kind)
    if kind != objective.kind:
        problems.append(f"objective: {name} takes {objective.kind} data, but data {source['name']} is {kind}")
    if problems:
        raise ConfigError(problems)
