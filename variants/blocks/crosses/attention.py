"""Attention from the decoder to the encoder's memory."""

from __future__ import annotations

from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from variants.blocks.context import Context
from variants.blocks.mixers.multihead import MultiHead
from variants.slots import crosses


@crosses.register("attention")
class CrossAttention(MultiHead):
    """Attend from every token of the decoder to the memory: ``out(softmax(scale * q k') v)``, k and v of the memory.

    Source: Vaswani et al. 2017, "Attention Is All You Need", arXiv:1706.03762, section 3.2.3.

    Args:
        d_model: Model width, in features.
        n_heads: Query heads.
        kernel: What computes it.
        n_kv_heads: Key and value heads, each serving ``n_heads / n_kv_heads`` query heads; ``n_heads`` if None.
        d_head: Width of a head, in features; ``d_model / n_heads`` if None.
        scale: Of the scores; ``d_head ** -0.5`` if None.
        bias: Whether the projections have a bias.
        qkv_bias: Whether those of queries, keys and values have one; as ``bias`` if None.
        out_bias: Whether the output's has one; as ``bias`` if None.
        attention_dropout: Rate on the attention weights in training.
        qk_norm: Makes the norms of queries and keys, over a head's width.

    Raises:
        ValueError: ``n_heads`` does not divide ``d_model`` and ``d_head`` is not given, or ``n_kv_heads`` does not
            divide ``n_heads``.
    """

    reads: ClassVar[tuple[str, ...]] = ()

    def forward(
        self, x: Float[Tensor, "batch time d_model"], context: Context | None = None
    ) -> Float[Tensor, "batch time d_model"]:
        """Read the memory; under a cache its keys and values are made once."""
        assert context is not None, "cross-attention has nothing to read without a context"
        slot = context.slot("cross")
        k, v = self.keys_and_values(context) if slot is None else slot.once(lambda: self.keys_and_values(context))
        q = self.q_norm(self.heads(self.q(context.mask.blank(x))))
        # Beams of one source are more queries of its row: neither keys nor mask are copied or reordered.
        folded = q.unflatten(0, (k.shape[0], -1)).transpose(1, 2)
        y = self.kernel(folded.flatten(2, 3), k, v, context.memory_mask, scale=self.scale, dropout=self.dropout)
        read = y.unflatten(2, folded.shape[2:4]).transpose(1, 2).flatten(0, 1)
        out: Tensor = self.out(self.joined(read))
        return out

    def keys_and_values(
        self, context: Context
    ) -> tuple[Float[Tensor, "sources kv_heads source d_head"], Float[Tensor, "sources kv_heads source d_head"]]:
        """Of the memory."""
        assert context.memory is not None, "cross-attention needs the encoder's memory"
        memory = context.memory_mask.blank(context.memory)
        return self.k_norm(self.heads(self.k(memory))), self.heads(self.v(memory))

    def flops(self, n_query: int, n_key: int) -> int:
        """Of one forward of one sequence: ``n_query`` tokens over a memory of ``n_key``, its keys made anew."""
        of_queries = self.q.weight.numel() + self.out.weight.numel()
        of_keys = self.k.weight.numel() + self.v.weight.numel()
        return 2 * (n_query * of_queries + n_key * of_keys) + self.product_flops(n_query, n_key)
