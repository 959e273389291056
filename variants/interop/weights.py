"""Where each parameter of ours lies in another checkpoint: one table, read in both directions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from variants.errors import ConfigError


@dataclass(frozen=True)
class Weight:
    """Where a parameter lies.

    Args:
        name: Of their tensor.
        part: Which of its equal pieces.
        of: How many pieces it fuses, along the outputs.
        transposed: Whether it has the inputs first.
        row: Whether it is a matrix of one row where ours is a vector.
    """

    name: str
    part: int = 0
    of: int = 1
    transposed: bool = False
    row: bool = False

    def read(self, whole: Tensor) -> Tensor:
        """Ours out of theirs."""
        whole = whole.T if self.transposed and whole.dim() > 1 else whole
        piece: Tensor = whole.chunk(self.of)[self.part]
        return piece[0] if self.row else piece


Weights = dict[str, Weight]


def affine(ours: str, theirs: str, part: int = 0, of: int = 1, transposed: bool = False) -> Weights:
    """The table of a module with a weight and perhaps a bias."""
    return {f"{ours}.{kind}": Weight(f"{theirs}.{kind}", part, of, transposed) for kind in ("weight", "bias")}


def read(weights: Weights, theirs: Mapping[str, Tensor], ours: Iterable[str], computed: str = "") -> dict[str, Tensor]:
    """Make our state of theirs.

    Args:
        weights: Where each parameter lies.
        theirs: Their state.
        ours: Our parameters' names.
        computed: A part of the names of tensors that hold no learned values.

    Raises:
        ConfigError: They have weights that would not be used.
    """
    state = {name: weights[name].read(theirs[weights[name].name]) for name in ours}
    used = {weights[name].name for name in state}
    storages = {theirs[name].data_ptr() for name in used}
    unused = [
        name
        for name, tensor in theirs.items()
        if name not in used and tensor.data_ptr() not in storages and not (computed and computed in name)
    ]
    if unused:
        raise ConfigError([f"the model has weights without a counterpart here: {', '.join(sorted(unused))}"])
    return state


def write(weights: Weights, ours: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Make their state of ours; a bias that ours lacks is one of zeros, and left out where all its pieces lack it."""
    unknown = set(ours) - set(weights)
    assert not unknown, f"no place for {sorted(unknown)}"
    by_name: dict[str, dict[int, str]] = {}
    for name, weight in weights.items():
        assert not weight.row
        by_name.setdefault(weight.name, {})[weight.part] = name
    state = {}
    for theirs, parts in by_name.items():
        if not any(name in ours for name in parts.values()):
            continue
        pieces = [_piece(ours, parts[part]) for part in sorted(parts)]
        whole = torch.cat(pieces)
        transposed = weights[parts[0]].transposed and whole.dim() > 1
        state[theirs] = (whole.T if transposed else whole).contiguous()
    return state


def _piece(ours: Mapping[str, Tensor], name: str) -> Tensor:
    if name in ours:
        return ours[name]
    weight = ours[name.removesuffix("bias") + "weight"]
    return weight.new_zeros(len(weight))
