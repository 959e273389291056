"""Proof that an arm took effect: what is otherwise in the model that was built, and in the run around it."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Iterator
from typing import Any

from torch import nn

from variants import config as configs
from variants.ablation.build import Built
from variants.blocks.kernels.base import Kernel
from variants.explain import idle as idle_options
from variants.models import effects
from variants.models.stack import Stack
from variants.registry import Slot
from variants.slots import initialisers

_INTERNAL = {*vars(nn.Module()), "unread"}  # which is said where options without effect are


def differences(arm: Built, baseline: Built) -> list[str]:
    """What an arm's model has otherwise than the baseline's, and what its run has; a line each.

    What the config says counts only where it reached a module, or concerns initial values or the run.
    """
    own, other = facts(arm.model), facts(baseline.model)
    lines = [line for name in {**other, **own} if (line := _worded(name, other.get(name), own.get(name)))]
    idle = {line.split(" ")[0] for line in idle_options(arm.config)}
    changes = configs.departures(_around(arm.config), _around(baseline.config))
    return lines + configs.changed((name, change) for name, change in changes.items() if name not in idle)


def idle(arm: Built) -> list[str]:
    """What a config asks for and changes nothing, a line each."""
    return effects.without_effect(arm.model) + idle_options(arm.config)


def signature(arm: Built) -> str:
    """What two arms have in common that come to the same model and run."""
    return repr((sorted(facts(arm.model).items()), sorted(configs.flatten(_around(arm.config)).items(), key=str)))


def _around(config: configs.Config) -> configs.Config:
    """What a run does beside the model's parts, defaults spelled out."""
    outside = {name: value for name, value in config.items() if name not in ("model", "tracker", "folder")}
    for group, slot in configs.GROUPS.items():
        if slot is not None and outside[group] is not None:
            outside[group] = _spelled_out(outside[group], slot)
    return {**outside, "model": {"initialiser": _spelled_out(config["model"]["initialiser"], initialisers)}}


def _spelled_out(node: dict[str, Any], slot: Slot[Any]) -> dict[str, Any]:
    fields = slot[node["name"]].fields
    return {**{name: field.default for name, field in fields.items() if not field.required}, **node}


def facts(model: nn.Module) -> dict[str, tuple[str, ...]]:
    """What a model is made of: every module's class and settings and every parameter's shape.

    A layer's index is a star; what the layers have is listed in their order.
    """
    found: dict[str, list[str]] = {}
    hidden = {
        id(position)
        for stack in model.modules()
        if isinstance(stack, Stack)
        for position in effects.idle_positions(stack)
    }
    hidden |= {id(chosen) for kernel in model.modules() if isinstance(kernel, Kernel) for chosen in kernel.children()}
    for name, module in model.named_modules():
        if id(module) in hidden or isinstance(module, nn.ModuleList):
            continue
        place = re.sub(r"\.\d+(?=\.|$)", ".*", f".{name}").lstrip(".") or "the model"
        for fact, value in _facts_of(module):
            found.setdefault(f"{place}{fact}", []).append(value)
    return {name: tuple(values) for name, values in found.items()}


def _facts_of(module: nn.Module) -> Iterator[tuple[str, str]]:
    if isinstance(module, Kernel):
        yield "", module.effective
        return
    yield "", type(module).__name__
    for name, parameter in module.named_parameters(recurse=False):
        yield f".{name}", str(tuple(parameter.shape))
    if type(module) is not nn.Linear:  # whose settings are its shapes
        for name, value in vars(module).items():
            if name not in _INTERNAL and (text := _plain(value)) is not None:
                yield f".{name}", text


def _plain(value: Any) -> str | None:
    """A setting as text; None: it is none."""
    if isinstance(value, functools.partial):
        return f"{_plain(value.func)} {value.args} {value.keywords}"
    if inspect.isroutine(value):
        return str(value.__qualname__)
    if isinstance(value, list | tuple):
        items = [_plain(item) for item in value]
        return None if None in items else f"[{', '.join(map(str, items))}]"
    return repr(value) if value is None or isinstance(value, bool | int | float | str) else None


def _worded(name: str, old: tuple[str, ...] | None, new: tuple[str, ...] | None) -> str | None:
    """A difference as a line; None: there is none, or it is only that there are more or fewer layers of it."""
    if old == new:
        return None
    if old is None or new is None:
        sign, values = ("+", new) if old is None else ("-", old)
        return f"{sign} {name}: {_listed(values or ())}"
    if len(old) != len(new) and len({*old, *new}) == 1:
        return f"{name}: {len(old)} -> {len(new)} of them" if name.endswith("layers.*") else None
    return f"{name}: {_listed(old)} -> {_listed(new)}"


def _listed(values: tuple[str, ...]) -> str:
    """Values in order, repetitions once if all are the same.

    >>> _listed(("a", "a")), _listed(("a", "b", "a"))
    ('a', 'a, b, a')
    """
    return values[0] if len(set(values)) == 1 else ", ".join(values)
