"""What a model costs: parameters and floating-point operations, by closed form.

A multiply-add counts 2, a causal product counts in full, lookups and elementwise work count nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple, cast

from torch import nn

if TYPE_CHECKING:
    from variants.models.stack import Layer, Stack

BACKWARD = 2  # a matrix product has two in its backward pass: of the input, and of the weights


class Parameters(NamedTuple):
    """Trainable scalars; a tied matrix counts once.

    Attributes:
        total: All.
        non_embedding: All but those of token embeddings (both directions) and of position tables.
        parts: By part of the model.
    """

    total: int
    non_embedding: int
    parts: dict[str, int]


def parameters(model: nn.Module) -> Parameters:
    """Count a model's parameters; the meta device will do."""
    parts: dict[str, int] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            part = _part_of(name)
            parts[part] = parts.get(part, 0) + parameter.numel()
    total = sum(parts.values())
    return Parameters(total, total - parts.get("embedding", 0) - parts.get("position", 0), parts)


def _part_of(name: str) -> str:
    """The part a parameter belongs to: the slot's name inside a layer, the child's outside.

    >>> _part_of("decoder.layers.3.mixer.q.weight"), _part_of("stack.norm.weight"), _part_of("source_embedding.table")
    ('mixer', 'final norm', 'embedding')
    """
    path = name.split(".")
    if "layers" in path[:-2]:
        return path[path.index("layers") + 2]
    if "positions" in path:
        return "position"
    if len(path) > 2 and path[1] == "norm":
        return "final norm"
    return "embedding" if path[0].endswith("embedding") else path[0]


def flops_of(part: nn.Module, n_query: int, n_key: int) -> int:
    """Operations of one forward of a part over n_query new tokens and n_key keys.

    A part that does not say so itself (a method ``flops(n_query, n_key)``) uses each of its matrices once a token.
    """
    own = getattr(part, "flops", None)
    if own is not None:
        return int(own(n_query, n_key))
    return 2 * n_query * sum(p.numel() for p in part.parameters() if p.dim() > 1)


def stack_flops(stack: Stack, time: int, source: int = 0) -> int:
    """Operations of one forward of a stack over ``time`` tokens, with a memory of ``source`` tokens."""
    return sum(flops_of(part, time, n_key) for part, n_key in _runs(stack, time, source))


def _runs(stack: Stack, time: int, source: int) -> Iterator[tuple[nn.Module, int]]:
    for index in stack.order:
        layer = cast("Layer", stack.layers[index])
        for part in layer.parts:
            yield part, source if part is layer.cross else time


def training_flops(model: nn.Module, time: int, source: int | None = None) -> int:
    """Operations of one forward and backward, per target token.

    Args:
        model: A layout; the meta device will do.
        time: Target tokens of a sequence.
        source: Source tokens of a sequence, in an encoder-decoder; None: as many.
    """
    return (1 + BACKWARD) * flops_of(model, time, time if source is None else source) // time
