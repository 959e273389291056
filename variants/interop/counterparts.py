"""Which choices another architecture has, and what of a model it lacks."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from variants.models import skeleton
from variants.registry import Node, Slot, fields_of, slot_of

# Slot to choice to those of its fields that may have any value; the others must have their defaults.
Counterparts = Mapping[str, Mapping[str, tuple[str, ...]]]

WITHOUT_TRACE = ("kernel", "initialiser", "cross")  # in a trained decoder-only model


def lacking(model: Mapping[str, Any], counterparts: Counterparts) -> list[str]:
    """What of a decoder-only model has no counterpart, each with what has.

    Args:
        model: A checked config of a model.
        counterparts: What there is.
    """
    stack = skeleton.stack_fields(model, "decoder")
    layers = [skeleton.layer_fields(stack, depth) for depth in range(stack["n_layers"])]
    first = {**model, **stack, **layers[0]}
    lacks = [
        f"layer {depth} with another {name} than layer 0's"
        for depth, layer in enumerate(layers)
        for name in skeleton.LAYER_FIELDS
        if name not in WITHOUT_TRACE and layer[name] != layers[0][name]
    ]
    for name, field in fields_of(skeleton.Skeleton).items():
        slot = slot_of(field.annotation, strict=False)
        if slot is not None and name not in WITHOUT_TRACE:
            known = counterparts.get(name, {skeleton.defaults()[name]["name"]: ()})
            lacks += _lacking_choice(slot, first[name], known)
            if name == "norm" and stack[name] != first[name]:  # the final norm is the stack's, whatever its layers have
                lacks += [f"final {line}" for line in _lacking_choice(slot, stack[name], known)]
    return lacks


def _lacking_choice(slot: Slot[Any], node: Node, known: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    if node["name"] not in known:
        yield f"{slot.name} {node['name']} (it has {', '.join(known)})"
        return
    fields = slot[node["name"]].fields
    for name, value in node.items():
        free = name == "name" or name in known[node["name"]]
        if not free and value != (default := fields[name].default):
            yield f"{slot.name} {node['name']} with {name}={_shown(value)} (it has {name}={_shown(default)})"


def _shown(value: Any) -> str:
    """A value as a config has it."""
    return json.dumps(value)
