"""A learned vector for every position, added to the input."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor

from variants.blocks.positions.base import Position
from variants.slots import positions as slot


@slot.register("learned")
class Learned(Position):
    """Add a learned vector to the input at every position, up to a greatest length.

    Source: Gehring et al. 2017, "Convolutional Sequence to Sequence Learning", arXiv:1705.03122, section 3.1.

    Args:
        d_model: Model width, in features.
        max_length: How many positions there are; the model's, unless a config says otherwise.

    Raises:
        ValueError: ``max_length`` is below 1, or a sequence is longer.
    """

    acts: ClassVar[Literal["input"]] = "input"
    no_decay: ClassVar[tuple[str, ...]] = ("table",)

    def __init__(self, d_model: int, *, max_length: int) -> None:
        super().__init__()
        if max_length < 1:
            raise ValueError(f"max_length must be at least 1, not {max_length}")
        self.max_length = max_length
        self.table = nn.Embedding(max_length, d_model)

    def input(
        self, x: Float[Tensor, "batch time d"], positions: Int[Tensor, "#batch time"]
    ) -> Float[Tensor, "batch time d"]:
        """Add the table's rows."""
        self._check(positions)
        rows: Tensor = self.table(positions)
        return x + rows.to(x.dtype)

    def _check(self, positions: Int[Tensor, "#batch time"]) -> None:
        # A GPU would stop with an assertion that names nothing. A graph and a fake tensor have no values to look at.
        fake = positions.is_meta or isinstance(positions, FakeTensor)
        if fake or positions.numel() == 0 or torch.compiler.is_compiling():
            return
        length = int(positions.max()) + 1
        if length > self.table.num_embeddings:
            raise ValueError(
                f"a sequence of {length} tokens is longer than max_length {self.table.num_embeddings} "
                "of the learned positions"
            )
