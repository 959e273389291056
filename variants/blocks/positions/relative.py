"""A learned bias on the scores for every bucket of distances."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import torch
from jaxtyping import Int
from torch import Tensor, nn

from variants.blocks.positions.base import Placement, Position
from variants.slots import positions as slot


@slot.register("relative")
class Relative(Position):
    """Add a learned bias to every head's scores, one for each bucket of distances, shared by the stack's layers (T5).

    Half of a direction's buckets hold one distance each; the other half grow as its logarithm up to ``max_distance``,
    beyond which all is one bucket.

    Source: Raffel et al. 2020, "Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer",
    arXiv:1910.10683, section 2.1.

    Args:
        n_heads: Heads of the stack's attention.
        bidirectional: Whether keys lie on both sides; each side then has half of the buckets.
        n_buckets: How many buckets there are.
        max_distance: From which distance on all is one bucket, in tokens.

    Raises:
        ValueError: There are too few buckets for a direction, or ``max_distance`` lies inside the exact ones.
    """

    acts: ClassVar[Literal["bias"]] = "bias"
    learned_bias: ClassVar[bool] = True
    no_decay: ClassVar[tuple[str, ...]] = ("table",)

    def __init__(
        self, n_heads: int, bidirectional: bool = False, *, n_buckets: int = 32, max_distance: int = 128
    ) -> None:
        super().__init__()
        least = 4 if bidirectional else 2
        if n_buckets < least or n_buckets % least:
            raise ValueError(
                f"n_buckets must be a multiple of {least} where bidirectional is {bidirectional}: {n_buckets}"
            )
        self.bidirectional, self.max_distance = bidirectional, max_distance
        self.n_side = n_buckets // 2 if bidirectional else n_buckets
        self.n_exact = self.n_side // 2
        if max_distance <= self.n_exact:
            raise ValueError(
                f"max_distance {max_distance} must be above the {self.n_exact} exact buckets of n_buckets {n_buckets}"
            )
        self.table = nn.Embedding(n_buckets, n_heads)

    def place(self, positions: Int[Tensor, "#batch time"], key_positions: Int[Tensor, "#batch source"]) -> Placement:
        """Look up the bias of every query and key."""
        distance = key_positions[:, None, :] - positions[:, :, None]
        placement = Placement()
        placement.bias = self.table(self.buckets(distance)).permute(0, 3, 1, 2)
        return placement

    def buckets(self, distance: Int[Tensor, "#batch time source"]) -> Int[Tensor, "#batch time source"]:
        """The bucket of a key at this distance after its query (negative: before it)."""
        after = (distance > 0).long() * self.n_side if self.bidirectional else 0
        away = distance.abs() if self.bidirectional else (-distance).clamp(min=0)
        # In float32 and in this order, since released weights were trained with these roundings.
        growth = torch.log(away.float().clamp(min=1) / self.n_exact) / math.log(self.max_distance / self.n_exact)
        far = self.n_exact + (growth * (self.n_side - self.n_exact)).long()
        return after + torch.where(away < self.n_exact, away, far.clamp(max=self.n_side - 1))
