"""Queries and keys turned by angles that grow with the position."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from variants.blocks.positions.angles import angles_of
from variants.blocks.positions.base import Placement, Position
from variants.errors import refuse
from variants.slots import positions as slot

Layout = Literal["half", "interleaved"]


@slot.register("rotary")
class Rotary(Position):
    """Turn pairs of features of queries and keys by ``p * base^(-2i/d)``, so that scores depend on distance alone.

    Source: Su et al. 2021, "RoFormer: Enhanced Transformer with Rotary Position Embedding", arXiv:2104.09864,
    section 3.2.
    Departs from it: feature i is paired with feature i + d/2, as in GPT-NeoX and Llama; ``interleaved`` is the paper's.

    Args:
        base: Of the wavelengths: the longest over the shortest.
        fraction: Which part of a head's width is turned; its first features are.
        layout: ``half`` pairs feature i with i + d/2, ``interleaved`` 2i with 2i + 1.

    Raises:
        ValueError: ``base`` is not positive, or ``fraction`` not in (0, 1].
    """

    acts: ClassVar[Literal["turn"]] = "turn"

    def __init__(self, *, base: float = 10000.0, fraction: float = 1.0, layout: Layout = "half") -> None:
        super().__init__()
        refuse(
            base <= 0 and f"base must be positive, not {base}",
            not 0 < fraction <= 1 and f"fraction must be above 0 and at most 1, not {fraction}",
        )
        self.base, self.fraction, self.layout = base, fraction, layout

    def place(self, positions: Int[Tensor, "#batch time"], key_positions: Int[Tensor, "#batch source"]) -> Placement:
        """Turn by these positions; keys that a cache holds were turned when they were new."""
        return Turned(positions, self.base, self.fraction, self.layout)

    def refuses(self, d_head: int) -> str | None:
        """It turns pairs."""
        width = turned_width(d_head, self.fraction)
        if width > 0 and width % 2 == 0:
            return None
        part = "" if self.fraction == 1 else f" times fraction {self.fraction} = {width}"
        return f"position rotary turns pairs of features: d_head {d_head}{part} must be even and positive"


class Turned(Placement):
    """The rotation of one forward. The width is the mixer's business, so tables are made when it is seen."""

    def __init__(self, positions: Int[Tensor, "#batch time"], base: float, fraction: float, layout: Layout) -> None:
        self.positions, self.base, self.fraction = positions, base, fraction
        self.pair = turn_halves if layout == "half" else turn_neighbours
        self.tables: dict[tuple[int, torch.dtype], tuple[Tensor, Tensor]] = {}

    def turn(
        self, x: Float[Tensor, "batch heads time d"], side: Literal["q", "k"]
    ) -> Float[Tensor, "batch heads time d"]:
        """Turn the first features of every head."""
        width = turned_width(x.shape[-1], self.fraction)
        cosine, sine = self.table(width, torch.promote_types(x.dtype, torch.float32))
        turned = self.pair(x[..., :width], cosine, sine).to(x.dtype)
        return turned if width == x.shape[-1] else torch.cat((turned, x[..., width:]), -1)

    def table(self, width: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Cosines and sines for heads of this width, computed at the first of the stack's layers.

        A compiled layer computes its own: had the first one left them behind, it would be another graph when it is
        recomputed, with other tensors to save.
        """
        if torch.compiler.is_compiling():
            return self._made(width, dtype)
        if (width, dtype) not in self.tables:
            self.tables[width, dtype] = self._made(width, dtype)
        return self.tables[width, dtype]

    def _made(self, width: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        angles = angles_of(self.positions, width // 2, 2 / width, self.base)[:, None]
        return angles.cos().to(dtype), angles.sin().to(dtype)


def turned_width(d_head: int, fraction: float) -> int:
    """How many features are turned."""
    return int(d_head * fraction)


def turn_halves(
    x: Float[Tensor, "batch heads time d"],
    cosine: Float[Tensor, "#batch 1 time pairs"],
    sine: Float[Tensor, "#batch 1 time pairs"],
) -> Float[Tensor, "batch heads time d"]:
    """Pair feature i with i + d/2."""
    a, b = x.chunk(2, -1)
    return torch.cat((a * cosine - b * sine, b * cosine + a * sine), -1)


def turn_neighbours(
    x: Float[Tensor, "batch heads time d"],
    cosine: Float[Tensor, "#batch 1 time pairs"],
    sine: Float[Tensor, "#batch 1 time pairs"],
) -> Float[Tensor, "batch heads time d"]:
    """Pair feature 2i with 2i + 1."""
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack((a * cosine - b * sine, b * cosine + a * sine), -1).flatten(-2)
