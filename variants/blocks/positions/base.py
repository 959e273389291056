"""What a position is: a module of the stack, whose effect on one forward is a placement."""

from __future__ import annotations

from typing import ClassVar, Literal

from jaxtyping import Float, Int
from torch import Tensor, nn


class Placement:
    """A position's effect on one forward; this one has none.

    Attributes:
        add: Added to the inputs of the query and key projections (DETR).
        bias: Added to the scores (ALiBi, T5).
    """

    add: Float[Tensor, "#batch time d_model"] | None = None
    bias: Float[Tensor, "#batch heads time source"] | None = None

    def turn(
        self, x: Float[Tensor, "batch heads time d"], side: Literal["q", "k"]
    ) -> Float[Tensor, "batch heads time d"]:
        """Turn projected queries or keys of the new tokens (rotary); the width is read from x."""
        return x


class Position(nn.Module):
    """Owned by the stack, asked once a forward, and outside every checkpoint. Keeps no buffers.

    Attributes:
        acts: The one place where it acts: ``input``, ``add``, ``turn`` or ``bias``; None acts nowhere.
        learned_bias: Whether its bias has parameters, which some kernels cannot differentiate.
        max_length: How many positions it has; None: any number.
    """

    acts: ClassVar[Literal["input", "add", "turn", "bias"] | None] = None
    learned_bias: ClassVar[bool] = False
    max_length: int | None = None

    def input(
        self, x: Float[Tensor, "batch time d"], positions: Int[Tensor, "#batch time"]
    ) -> Float[Tensor, "batch time d"]:
        """Act on the embedded input; positions count real tokens from 0."""
        return x

    def place(self, positions: Int[Tensor, "#batch time"], key_positions: Int[Tensor, "#batch source"]) -> Placement:
        """The placement of these queries, which are the last of these keys."""
        return Placement()

    def refuses(self, d_head: int) -> str | None:
        """Why it cannot serve heads of this width, if so."""
        return None
