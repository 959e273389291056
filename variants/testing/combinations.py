"""Whole models by choices: one value for every slot and option of a layout, and why some do not go together."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from variants import slots
from variants.errors import ConfigError
from variants.models import assemble, build, skeleton
from variants.models.stack import Layer
from variants.registry import fields_of, merge, slot_of
from variants.testing.examples import MODEL, Example

Choices = dict[str, str]  # factor to value, one for every factor of a layout
Cause = tuple[tuple[str, str], ...]  # what is refused together
Factors = dict[str, dict[str, dict[str, Any]]]  # factor to value to the fields that it sets; the first is the default

OPTIONS: Factors = {
    "n_kv_heads": {"all": {}, "2": {"mixer": {"n_kv_heads": 2}}, "1": {"mixer": {"n_kv_heads": 1}}},
    "window": {"none": {}, "4": {"mixer": {"window": 4}}},  # two layers of it see all that the promises look at
    "qk_norm": {"none": {}, "rmsnorm": {"mixer": {"qk_norm": "rmsnorm"}}},
    "bias": {"own": {}, "true": {"bias": True}, "false": {"bias": False}},
    # Promises raise the rate themselves; that of the attention weights stays, for some kernels know none.
    "dropout": {"0": {"attention_dropout": 0.0}, "0.1": {"dropout": 0.1}},
    "layers": {"alike": {}, "last without position": {"layers": {-1: {"position": "none"}}}},
    "embedding_scale": {"false": {}, "true": {"embedding": {"scale": True}}},
    "head_bias": {"false": {}, "true": {"head": {"bias": True}}},
    "checkpointing": {"none": {"checkpoint_every": 0}, "full": {"checkpoint_every": 1}},
}


@functools.cache
def factors(layout: str) -> Factors:
    """All that may vary in a layout: the slots that it uses, then options."""
    unused = {"layout"} | _unused(assemble({**MODEL, "layout": layout}))
    found: Factors = {}
    for name, field in fields_of(skeleton.Skeleton).items():
        slot = slot_of(field.annotation, strict=False)
        if slot is not None and name not in unused:
            names = sorted(slot.choices, key=lambda choice: (choice != field.default, choice))
            found[name] = {choice: {name: {"name": choice}} for choice in names}
    return found | {name: values for name, values in OPTIONS.items() if name.split("_")[0] not in unused}


def _unused(model: nn.Module) -> set[str]:
    crossed = any(isinstance(m, Layer) and m.cross is not None for m in model.modules())
    return {name for name, used in (("cross", crossed), ("head", hasattr(model, "head"))) if not used}


def defaults(layout: str) -> Choices:
    """The first value of every factor."""
    return {name: next(iter(values)) for name, values in factors(layout).items()}


def config_of(layout: str, choices: Mapping[str, str]) -> dict[str, Any]:
    """A model's fields, and ``checkpoint_every``."""
    config: dict[str, Any] = {**MODEL, "layout": layout}
    for name, values in factors(layout).items():  # slots first: options are laid over what they chose
        config = merge(config, values[choices[name]])
    return config


def refusal(layout: str, choices: Mapping[str, str]) -> str | None:
    """Why these cannot be built, in the rules' own words; None: they can."""
    try:
        assemble_of(config_of(layout, choices))
    except ConfigError as error:
        return "; ".join(error.problems)
    return None


def assemble_of(config: Mapping[str, Any], make: Callable[..., nn.Module] = assemble, **known: Any) -> nn.Module:
    """Build what `config_of` gives."""
    model = {name: value for name, value in config.items() if name != "checkpoint_every"}
    return make(model, checkpoint_every=config["checkpoint_every"], **known)


def cause_of(layout: str, choices: Mapping[str, str], base: Mapping[str, str] | None = None) -> Cause:
    """The smallest part of refused choices that is refused.

    Whatever can be reset to its default is, as long as a refusal remains. One choice that is left alone goes against a
    default, so those count whose change heals it, with the values that the choices have there.

    Args:
        layout: Of the model.
        choices: A value for every factor.
        base: What is reset to; None: the defaults.
    """
    usual = defaults(layout) if base is None else dict(base)
    left = dict(choices)
    for name in left:
        if refusal(layout, {**left, name: usual[name]}) is not None:
            left[name] = usual[name]
    cause = tuple((name, value) for name, value in left.items() if value != usual[name])
    if len(cause) > 1:
        return cause
    against = {name: choices[name] for name in left if name not in dict(cause) and _heals(layout, left, name)}
    if refusal(layout, {**usual, **against, **dict(cause)}) is None:  # the defaults' fault, not that of the choices
        return cause_of(layout, choices, {**usual, **against})
    return tuple((name, choices[name]) for name in left if name in against or name in dict(cause))


def _heals(layout: str, choices: Choices, name: str) -> bool:
    others = (value for value in factors(layout)[name] if value != choices[name])
    return any(refusal(layout, {**choices, name: other}) is None for other in others)


class Combination(Example):
    """A small model of these choices, with the values of its own initialiser.

    Args:
        layout: Of the model.
        choices: A value for each factor; those left out are the defaults.
    """

    def __init__(self, layout: str, choices: Mapping[str, str]) -> None:
        super().__init__(slots.layouts, layout)
        self.layout, self.choices = layout, defaults(layout) | dict(choices)
        self.positions = (self.choices["position"],)

    def __repr__(self) -> str:
        usual = defaults(self.layout)
        said = (f"{name} {value}" for name, value in self.choices.items() if value != usual[name])
        return f"{self.layout}: {', '.join(said) or 'defaults'}"

    def plain(self, seed: int = 0, **changes: Any) -> nn.Module:
        """Build it; on the meta device where that is the device in force."""
        config = merge(config_of(self.layout, self.choices), changes)
        on_meta = torch.empty(0).is_meta
        return assemble_of(config) if on_meta else assemble_of(config, build, seed=seed)
