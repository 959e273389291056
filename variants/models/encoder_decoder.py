"""Encoder-decoder models."""

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
from variants.models.stack import Losses, Stack, add_up
from variants.slots import layouts


@layouts.register("encoder_decoder")
class EncoderDecoder(nn.Module):
    """Read a source with an encoder, and predict each target token from it and those before.

    Source: Vaswani et al. 2017, "Attention Is All You Need", arXiv:1706.03762, section 3.1.

    Args:
        embedding: Target ids to vectors, and back.
        encoder: The encoder's layers.
        decoder: The decoder's layers.
        head: Hidden states to logits.
        source_embedding: Source ids to vectors; None: the target's serves both, and a tied matrix has three uses.
    """

    objective: ClassVar[str] = "seq2seq"

    def __init__(
        self,
        embedding: nn.Module,
        encoder: Stack,
        decoder: Stack,
        head: nn.Module,
        source_embedding: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.embedding, self.encoder, self.decoder, self.head = embedding, encoder, decoder, head
        self.source_embedding = source_embedding

    @classmethod
    def assemble(cls, assembly: Assembly, *, shared_vocabulary: bool | None = None) -> EncoderDecoder:
        """Build it of the choices of a config.

        Args:
            assembly: Builds each part.
            shared_vocabulary: Whether source and target share their embedding; None: they do where the vocabularies
                have one size.

        Raises:
            ValueError: One embedding is asked for, and the vocabularies differ.
        """
        same = assembly.source_vocab in (None, assembly.vocab)
        if shared_vocabulary and not same:
            raise ValueError(
                f"shared_vocabulary=true needs one vocabulary, but the source's has {assembly.source_vocab} entries "
                f"and the target's {assembly.vocab}"
            )
        shared = same if shared_vocabulary is None else shared_vocabulary
        return cls(
            assembly.embedding(),
            assembly.stack("encoder"),
            assembly.stack("decoder", cross=True),
            assembly.head(),
            None if shared else assembly.embedding(assembly.source_vocab or assembly.vocab, source=True),
        )

    def encode(
        self, source: Int[Tensor, "batch source"], mask: AttentionMask | None = None
    ) -> tuple[Float[Tensor, "batch source d_model"], Losses]:
        """The memory of a source, and what the encoder adds to the loss."""
        embedding = self.embedding if self.source_embedding is None else self.source_embedding
        encoded: tuple[Tensor, Losses] = self.encoder(embedding(source), mask)
        return encoded

    def decode_hidden(
        self,
        target: Int[Tensor, "batch time"],
        memory: Float[Tensor, "sources source d_model"],
        memory_mask: AttentionMask | None = None,
        mask: AttentionMask | None = None,
        cache: Cache | None = None,
    ) -> tuple[Float[Tensor, "batch time d_model"], Losses]:
        """The decoder's hidden states, and what it adds to the loss.

        Args:
            target: All target tokens, or those after what the cache holds.
            memory: The encoder's output.
            memory_mask: Of the source.
            mask: Pads and documents of these target tokens; the model adds causality.
            cache: Memory of earlier chunks; with beams it has more rows than the memory, those of a source together.
        """
        decoded: tuple[Tensor, Losses] = self.decoder(
            self.embedding(target),
            replace(mask or AttentionMask(), causal=True),
            memory=memory,
            memory_mask=replace(memory_mask or AttentionMask(), causal=False),
            cache=cache,
        )
        return decoded

    def decode(
        self,
        target: Int[Tensor, "batch time"],
        memory: Float[Tensor, "sources source d_model"],
        memory_mask: AttentionMask | None = None,
        mask: AttentionMask | None = None,
        cache: Cache | None = None,
    ) -> Output:
        """Logits for the next target token; arguments as in `decode_hidden`."""
        x, losses = self.decode_hidden(target, memory, memory_mask, mask, cache)
        return Output(self.head(x, self.embedding), losses)

    def hidden(
        self,
        source: Int[Tensor, "batch source"],
        target: Int[Tensor, "batch time"],
        source_mask: AttentionMask | None = None,
        target_mask: AttentionMask | None = None,
    ) -> tuple[Float[Tensor, "batch time d_model"], Losses]:
        """The decoder's hidden states under teacher forcing, and what both stacks add to the loss."""
        memory, losses = self.encode(source, source_mask)
        x, added = self.decode_hidden(target, memory, source_mask, target_mask)
        return x, add_up(losses, added)

    def forward(
        self,
        source: Int[Tensor, "batch source"],
        target: Int[Tensor, "batch time"],
        source_mask: AttentionMask | None = None,
        target_mask: AttentionMask | None = None,
    ) -> Output:
        """Logits for the next target token at every position, under teacher forcing."""
        x, losses = self.hidden(source, target, source_mask, target_mask)
        return Output(self.head(x, self.embedding), losses)

    def flops(self, time: int, source: int | None = None) -> int:
        """Floating-point operations of one forward of one pair."""
        source = time if source is None else source
        encoder, decoder = cost.stack_flops(self.encoder, source), cost.stack_flops(self.decoder, time, source)
        return encoder + decoder + cost.flops_of(self.head, time, time)
