"""No position at all."""

from __future__ import annotations

from variants.blocks.positions.base import Position
from variants.slots import positions


@positions.register("none")
class NoPosition(Position):
    """Say nothing about where a token is; a causal model can still count what it sees.

    Source: Kazemnejad et al. 2023, "The Impact of Positional Encoding on Length Generalization in Transformers",
    arXiv:2305.19466.
    """
