"""Encoder-only models."""

from __future__ import annotations

from typing import ClassVar

from jaxtyping import Float, Int
from torch import Tensor, nn

from variants.blocks.masks import AttentionMask
from variants.models import cost
from variants.models.assembly import Assembly
from variants.models.stack import Losses, Stack
from variants.slots import layouts


@layouts.register("encoder_only")
class EncoderOnly(nn.Module):
    """Give a hidden state for every token, each from all others: a bare stack, without a head.

    Source: Devlin et al. 2019, "BERT: Pre-training of Deep Bidirectional Transformers", arXiv:1810.04805, section 3.

    Args:
        embedding: Ids to vectors.
        stack: The layers.
    """

    objective: ClassVar[str | None] = None

    def __init__(self, embedding: nn.Module, stack: Stack) -> None:
        super().__init__()
        self.embedding, self.stack = embedding, stack

    @classmethod
    def assemble(cls, assembly: Assembly) -> EncoderOnly:
        """Build it of the choices of a config."""
        return cls(assembly.embedding(source=True), assembly.stack("encoder"))

    def hidden(
        self, ids: Int[Tensor, "batch time"], mask: AttentionMask | None = None
    ) -> tuple[Float[Tensor, "batch time d_model"], Losses]:
        """Hidden states, and what the layers add to the loss."""
        hidden: tuple[Tensor, Losses] = self.stack(self.embedding(ids), mask)
        return hidden

    def forward(
        self, ids: Int[Tensor, "batch time"], mask: AttentionMask | None = None
    ) -> Float[Tensor, "batch time d_model"]:
        """Hidden states alone."""
        return self.hidden(ids, mask)[0]

    def flops(self, time: int, source: int | None = None) -> int:
        """Floating-point operations of one forward of one sequence."""
        return cost.stack_flops(self.stack, time)
