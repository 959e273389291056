"""Decoder-only language models."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from jaxtyping import Float, Int
from torch import Tensor, nn

from variants.blocks.cache import Cache
from variants.blocks.masks import AttentionMask
from variants.models import cost
from variants.models.assembly import Assembly
from variants.models.output import Output
from variants.models.stack import Losses, Stack
from variants.slots import layouts


@layouts.register("decoder_only")
class DecoderOnly(nn.Module):
    """Predict each token from those before it.

    Source: Radford et al. 2018, "Improving Language Understanding by Generative Pre-Training", section 3.1.

    Args:
        embedding: Ids to vectors, and back.
        stack: The layers.
        head: Hidden states to logits.
    """

    objective: ClassVar[str] = "causal_lm"

    def __init__(self, embedding: nn.Module, stack: Stack, head: nn.Module) -> None:
        super().__init__()
        self.embedding, self.stack, self.head = embedding, stack, head

    @classmethod
    def assemble(cls, assembly: Assembly) -> DecoderOnly:
        """Build it of the choices of a config."""
        return cls(assembly.embedding(), assembly.stack("decoder"), assembly.head())

    def hidden(
        self, ids: Int[Tensor, "batch time"], mask: AttentionMask | None = None, cache: Cache | None = None
    ) -> tuple[Float[Tensor, "batch time d_model"], Losses]:
        """Hidden states, of which the head makes logits or a loss.

        Args:
            ids: All tokens, or those after what the cache holds.
            mask: Pads, documents and prefix of these tokens; the model adds causality.
            cache: Memory of earlier chunks.
        """
        mask = replace(mask or AttentionMask(), causal=True)
        hidden: tuple[Tensor, Losses] = self.stack(self.embedding(ids), mask, cache=cache)
        return hidden

    def forward(
        self, ids: Int[Tensor, "batch time"], mask: AttentionMask | None = None, cache: Cache | None = None
    ) -> Output:
        """Logits for the next token at every position; arguments as in `hidden`."""
        x, losses = self.hidden(ids, mask, cache)
        return Output(self.head(x, self.embedding), losses)

    def flops(self, time: int, source: int | None = None) -> int:
        """Floating-point operations of one forward of one sequence."""
        return cost.stack_flops(self.stack, time) + cost.flops_of(self.head, time, time)
