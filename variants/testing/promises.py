"""Every slot's promises, and the check of a choice against them."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from variants import slots as _slots  # noqa: F401  # fills SLOTS
from variants.errors import ConfigError, unknown
from variants.registry import SLOTS
from variants.testing import blocks, crosses, ends, initialisers, kernels, layouts, mixers, positions, training
from variants.testing.base import Broken, Promise
from variants.testing.common import COMMON, compiles, exports
from variants.testing.examples import Example
from variants.testing.parts import ADDS, PART

LAYER = (*PART, *COMMON)  # what a layer is made of
TRACED = (exports, compiles)

PROMISES: dict[str, tuple[Promise, ...]] = {
    "mixer": (*LAYER, *ADDS, *mixers.MIXER, *TRACED),
    "cross": (*LAYER, *ADDS, *crosses.CROSS, *TRACED),
    "kernel": (*kernels.KERNEL, *COMMON, *TRACED),
    "position": (*positions.POSITION, *COMMON, *TRACED),
    "norm": (*LAYER, *blocks.NORM, *TRACED),
    "residual": (*LAYER, *blocks.RESIDUAL, *TRACED),
    "feedforward": (*LAYER, *ADDS, *blocks.FEEDFORWARD, *TRACED),
    "embedding": (*COMMON, *ends.EMBEDDING, *TRACED),
    "head": (*COMMON, *ends.HEAD, *TRACED),
    "sharing": blocks.SHARING,
    "initialiser": initialisers.INITIALISER,
    "layout": (*COMMON, *layouts.LAYOUT, *TRACED),
    "objective": training.OBJECTIVE,
    "optimiser": training.OPTIMISER,
    "schedule": training.SCHEDULE,
}


@dataclass(frozen=True)
class Verdict:
    """Whether a choice keeps a promise.

    Attributes:
        slot: The slot.
        choice: The choice.
        promise: The promise.
        holds: Whether it is kept.
        message: The smallest counterexample, where it is not.
    """

    slot: str
    choice: str
    promise: str
    holds: bool
    message: str = ""

    def __str__(self) -> str:
        """One line."""
        return f"{self.slot} {self.choice}  {self.promise}: {'holds' if self.holds else f'BROKEN: {self.message}'}"


def check_example(example: Example) -> Iterator[Verdict]:
    """Try all promises of an example's slot, one after another; where a field is missing, say that alone."""
    if missing := example.missing():
        message = f"needs {' and '.join(missing)}, which is not given"
        yield Verdict(example.slot.name, example.choice.name, "can be built", False, message)
        return
    for promise in PROMISES.get(example.slot.name, ()):
        name = promise.__name__.replace("_", " ")
        message = ""
        try:
            promise(example)
        except Broken as broken:
            message = str(broken)
        except Exception as error:  # whatever a component raises where it should have worked
            message = (
                f"raised {type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"
            )
        yield Verdict(example.slot.name, example.choice.name, name, not message, message)


def check(target: str, /, **fields: Any) -> Iterator[Verdict]:
    """Try the promises of a choice, or of all that a module registers.

    Args:
        target: ``slot.choice``, the name of a choice that only one slot has, a module's name, or a Python file.
        **fields: What a config would set, where the target is a single choice.

    Raises:
        ConfigError: It is none of these, several slots have a choice of that name, what it names promises nothing, or
            the fields are not the choice's.
    """
    meant = found(target)
    if fields and len(meant) > 1:
        several = ", ".join(f"{slot}.{choice}" for slot, choice in meant)
        raise ConfigError([f"{', '.join(fields)}: a field is of one choice, and {target} registers {several}"])
    if "name" in fields:
        raise ConfigError([f"name: the target {target} has named the choice"])
    for slot, choice in meant:
        SLOTS[slot].check({"name": choice, **fields})
        example = Example(slot, choice, **fields)
        verdicts = check_example(example)
        if missing := example.missing():
            how = "no model offers it, and only what stands behind a * can be set"
            if set(missing) <= set(example.choice.fields):
                of_file = "" if target in (choice, f"{slot}.{choice}") else f" --import {target}"
                how = f"variants check {slot}.{choice} {' '.join(f'{name}=...' for name in missing)}{of_file}"
            verdicts = (replace(verdict, message=f"{verdict.message}: {how}") for verdict in verdicts)
        yield from verdicts


def found(target: str) -> list[tuple[str, str]]:
    """The slots and choices that a target means, those without promises left out."""
    slot, _, choice = target.partition(".")
    if slot in SLOTS and choice:
        try:
            named = SLOTS[slot][choice].name
        except ConfigError as error:
            raise ConfigError(line.removeprefix(": ") for line in error.problems) from None
        return [_promising(slot, named)]
    owners = [name for name in SLOTS if target in SLOTS[name].choices]
    promising = [name for name in owners if name in PROMISES] or owners
    if len(promising) > 1:
        raise ConfigError([f"{target!r} is a choice of several slots: {', '.join(f'{o}.{target}' for o in promising)}"])
    if promising:
        return [_promising(promising[0], target)]
    registered = _registered_by(_module(target))
    if not registered:
        raise ConfigError([f"{target}: registers nothing that makes a promise"])
    return registered


def _promising(slot: str, choice: str) -> tuple[str, str]:
    """A slot and a choice of it, if there are promises to try.

    Raises:
        ConfigError: There are none.
    """
    if slot not in PROMISES:
        raise ConfigError([f"{slot}.{choice}: slot {slot} makes no promise that could be tried on a choice"])
    return slot, choice


def _registered_by(module: ModuleType) -> list[tuple[str, str]]:
    """All that a module, or a package's modules, registered."""
    inside = (module.__name__, f"{module.__name__}.")
    return [
        (slot, choice.name)
        for slot in PROMISES
        for choice in SLOTS[slot].choices.values()
        if choice.component.__module__ == inside[0] or choice.component.__module__.startswith(inside[1])
    ]


def _module(target: str) -> ModuleType:
    path = Path(target)
    if path.suffix == ".py" and not path.is_file():
        raise ConfigError([f"there is no file {target}"])
    if path.suffix != ".py" and importlib.util.find_spec(target.partition(".")[0]) is None:
        known = [(slot, name) for slot in PROMISES for name in SLOTS[slot].choices]
        raise ConfigError(
            [unknown("choice", target, {f"{slot}.{name}" for slot, name in known} | {n for _, n in known})]
        )
    try:
        return _file(path) if path.suffix == ".py" else importlib.import_module(target)
    except Exception as error:  # whatever the user's own module raises
        raise ConfigError([f"{target}: {type(error).__name__}: {error}"]) from error


def _file(path: Path) -> ModuleType:
    if path.stem in sys.modules:
        return sys.modules[path.stem]
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = loaded
    spec.loader.exec_module(loaded)
    return loaded


__all__ = ["PROMISES", "Verdict", "check", "check_example", "found"]
