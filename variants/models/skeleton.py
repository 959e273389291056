"""What a config may say about a model: its widths and depths, a choice for every slot, and patches.

Values that hold for the whole model (`d_model`, `bias`, `dropout`) are fields here and offered to every component that
asks for them, so that they survive when a slot gets another choice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from variants.errors import WRONG, ConfigError, is_wrong, unknown
from variants.registry import Field, Maker, Node, check_fields, fields_of, merge, slot_of
from variants.slots import (
    Cross,
    Embedding,
    Feedforward,
    Head,
    Initialiser,
    Kernel,
    Layout,
    Mixer,
    Norm,
    Position,
    Residual,
    Sharing,
)

Patch = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Skeleton:
    """A model's fields.

    Args:
        d_model: Width, in features.
        n_layers: Layers of a stack.
        n_heads: Heads of an attention; each has d_model / n_heads features unless the mixer says otherwise.
        vocab: Entries of the (target) vocabulary; None: the data's.
        source_vocab: Entries of the source's; None: the data's.
        max_length: Positions of a learned table; None: the data's length.
        bias: Whether projections have a bias; None: as each component does by itself.
        norm_eps: The norms' epsilon; None: as each norm does by itself.
        dropout: Rate on every branch's output, and where the three below are not set.
        embedding_dropout: Rate on a stack's input; None: `dropout`.
        attention_dropout: Rate on attention weights; None: `dropout`.
        feedforward_dropout: Rate inside the feed-forward; None: `dropout`.
        encoder: A patch for the encoder alone.
        decoder: A patch for the decoder alone.
        layers: Patches for single layers: by index (from the end if negative), or by the names of a tiled
            `pattern: local local global`; an index wins over the pattern.
    """

    d_model: int
    n_layers: int
    n_heads: int
    vocab: int | None = None
    source_vocab: int | None = None
    max_length: int | None = None
    bias: bool | None = None
    norm_eps: float | None = None
    dropout: float = 0.0
    embedding_dropout: float | None = None
    attention_dropout: float | None = None
    feedforward_dropout: float | None = None
    layout: Maker[Layout] = "decoder_only"  # type: ignore[assignment]  # a config names a choice
    mixer: Maker[Mixer] = "attention"  # type: ignore[assignment]
    cross: Maker[Cross] = "attention"  # type: ignore[assignment]
    kernel: Maker[Kernel] = "auto"  # type: ignore[assignment]
    position: Maker[Position] = "rotary"  # type: ignore[assignment]
    norm: Maker[Norm] = "rmsnorm"  # type: ignore[assignment]
    residual: Maker[Residual] = "pre"  # type: ignore[assignment]
    feedforward: Maker[Feedforward] = "swiglu"  # type: ignore[assignment]
    embedding: Maker[Embedding] = "tied"  # type: ignore[assignment]
    head: Maker[Head] = "linear"  # type: ignore[assignment]
    sharing: Maker[Sharing] = "none"  # type: ignore[assignment]
    initialiser: Maker[Initialiser] = "normal"  # type: ignore[assignment]
    encoder: dict[str, Any] | None = None
    decoder: dict[str, Any] | None = None
    layers: dict[Any, Any] | None = None


# Far above any model that there is: a slip of the keyboard must not build for hours.
_LARGEST = {
    "d_model": 10**6,
    "n_layers": 10**3,
    "n_heads": 10**4,
    "vocab": 10**8,
    "source_vocab": 10**8,
    "max_length": 10**8,
}
_RATES = ("dropout", "embedding_dropout", "attention_dropout", "feedforward_dropout")
PATCHES = ("encoder", "decoder", "layers")
_LAYER = ("n_heads", "bias", "norm_eps", "mixer", "cross", "kernel", "position", "norm", "feedforward")
LAYER_FIELDS = (*_LAYER, "dropout", "attention_dropout", "feedforward_dropout")
STACK_FIELDS = (*_LAYER, *_RATES, "n_layers", "residual", "sharing", "layers")


def check(config: Mapping[str, Any]) -> dict[str, Any]:
    """Give every field its type and its default, patches included.

    Raises:
        ConfigError: A line for everything that is wrong by itself; what is wrong between fields, building finds.
    """
    problems: list[str] = []
    fields = fields_of(Skeleton)
    typed = _typed(merge(defaults(), dict(config)), "", problems)
    for name, field in fields.items():
        if field.required and name not in config:
            problems.append(f"{name}: a model needs it")
            typed[name] = WRONG
    for role in ("encoder", "decoder"):
        typed[role] = _known(role, typed[role], STACK_FIELDS, problems)
        if "layers" in (typed[role] or {}):
            typed[role]["layers"] = _known_layers(f"{role}.layers", typed[role]["layers"], problems)
    typed["layers"] = _known_layers("layers", typed["layers"], problems)
    for role in ("encoder", "decoder"):  # the values of a patch have types once it is laid, for it may name half a node
        stack_fields(typed, role, problems)
    if problems:
        raise ConfigError(problems, typed)
    return typed


def _typed(values: Mapping[str, Any], place: str, problems: list[str]) -> dict[str, Any]:
    """Values with their types, or `WRONG`; all that is wrong with them is said."""
    typed: dict[str, Any]
    try:
        typed = check_fields(values, fields_of(Skeleton), "a model")
    except ConfigError as error:
        problems += [place + line for line in error.problems]
        typed = error.rest
    for name, value in typed.items():
        if problem := _range_problem(name, value):
            problems.append(f"{place}{name}: {problem}")
            typed[name] = WRONG
    return typed


def _range_problem(name: str, value: Any) -> str | None:
    if value is None or is_wrong(value):
        return None
    if name in _RATES and not 0 <= value < 1:
        return f"{value} is not a rate: at least 0, below 1"
    if name == "norm_eps" and value < 0:
        return f"{value} must not be negative"
    if name in _LARGEST and value < 1:
        return f"{value} must be at least 1"
    if name in _LARGEST and value > _LARGEST[name]:
        return f"{value} must be at most {_LARGEST[name]}"
    return None


def defaults() -> dict[str, Any]:
    """Every field that has a default; a choice as a node, so that a patch need not repeat its name."""
    return {name: _default(field) for name, field in fields_of(Skeleton).items() if not field.required}


def _default(field: Field) -> Any:
    return {"name": field.default} if slot_of(field.annotation, strict=False) else field.default


def _known(place: str, patch: Any, allowed: Sequence[str], problems: list[str]) -> dict[str, Any] | None:
    """What a patch says of fields that there are. It is sparse, a node in it may lack its name: values come later."""
    if patch is None or is_wrong(patch):
        return None
    if not isinstance(patch, Mapping):
        problems.append(f"{place}: expected a mapping, got {patch!r}")
        return None
    problems += [f"{place}.{n}: {unknown('field of this patch', n, allowed)}" for n in patch if n not in allowed]
    return {name: value for name, value in patch.items() if name in allowed}


def _known_layers(place: str, patches: Any, problems: list[str]) -> dict[Any, Any] | None:
    if patches is None or is_wrong(patches):
        return None
    if not isinstance(patches, Mapping):
        problems.append(f"{place}: expected a mapping, got {patches!r}")
        return None
    pattern = patches.get("pattern")
    if pattern is not None and not (isinstance(pattern, str) and pattern.split()):
        problems.append(f"{place}.pattern: expected names with spaces between them, got {pattern!r}")
        return None
    names = set(pattern.split()) if pattern else set()
    known: dict[Any, Any] = {}
    if missing := sorted(names - set(patches)):
        problems += [f"{place}.pattern: {n!r} has no patch; write `{n}: {{}}` if it changes nothing" for n in missing]
    elif pattern:
        known["pattern"] = pattern
    for key, patch in patches.items():
        if key == "pattern":
            continue
        if key not in names and _index(key) is None:
            problems.append(f"{place}.{key}: neither a layer's index nor a name in the pattern {pattern!r}")
        else:
            known[key] = _known(f"{place}.{key}", patch, LAYER_FIELDS, problems)
    return known


def _index(key: Any) -> int | None:
    try:
        return int(key)
    except (TypeError, ValueError):
        return None


# ---------------------------------------------------------------------------------------------------------------------
# What holds for one stack, and for one layer


def stack_fields(model: Mapping[str, Any], role: str, problems: list[str] | None = None) -> dict[str, Any]:
    """A stack's fields: the model's, with the patch of its side laid over them.

    Args:
        model: A model's fields.
        role: Whose patch.
        problems: Hears what is wrong with the patch; None: it is raised.

    Raises:
        ConfigError: The patch is wrong.
    """
    heard: list[str] = []
    base = {name: model[name] for name in (*STACK_FIELDS, "d_model", "max_length")}
    fields = _lay(base, model.get(role) or {}, role, heard)
    if is_wrong(fields["n_layers"]):  # as many as anything is said about, so that the rest can be judged
        fields["n_layers"] = 1 + max((abs(i) for i in map(_index, fields["layers"] or {}) if i is not None), default=0)
    return _said(fields, heard, problems)


def layer_fields(
    stack: Mapping[str, Any], depth: int, place: str = "layers", problems: list[str] | None = None
) -> dict[str, Any]:
    """A layer's fields: its stack's, with the patches of the pattern and of its index laid over them.

    Args:
        stack: A stack's fields.
        depth: Which layer.
        place: Where the patches stand, for the messages.
        problems: Hears what is wrong with a patch; None: it is raised.

    Raises:
        ConfigError: A patch is wrong.
    """
    heard: list[str] = []
    patches: Mapping[Any, Any] = stack["layers"] or {}
    n_layers = stack["n_layers"]
    fields = {name: value for name, value in stack.items() if name != "layers"}
    if pattern := patches.get("pattern"):
        names = pattern.split()
        name = names[depth % len(names)]
        fields = _lay(fields, patches[name] or {}, f"{place}.{name}", heard)
    for key, patch in patches.items():
        index = _index(key)
        if index is None:
            continue
        if not -n_layers <= index < n_layers:
            heard.append(f"{place}.{key}: there are {n_layers} layers, from 0 to {n_layers - 1}")
        elif index % n_layers == depth:
            fields = _lay(fields, patch or {}, f"{place}.{key}", heard)
    return _said(fields, heard, problems)


def _said(fields: dict[str, Any], heard: list[str], problems: list[str] | None) -> dict[str, Any]:
    if problems is not None:
        problems += heard
    elif heard:
        raise ConfigError(heard, fields)
    return fields


def _lay(base: Mapping[str, Any], patch: Patch, place: str, problems: list[str]) -> dict[str, Any]:
    merged = merge(dict(base), dict(patch))
    return {**merged, **_typed({name: merged[name] for name in patch}, f"{place}.", problems)}


__all__ = ["ConfigError", "Node", "Skeleton", "check", "layer_fields", "stack_fields"]
