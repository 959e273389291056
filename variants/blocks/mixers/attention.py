"""Self-attention over heads: multi-head, grouped-query and multi-query."""

from __future__ import annotations

from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from variants.blocks.context import Context
from variants.blocks.kernels.base import Kernel
from variants.blocks.mixers.multihead import MultiHead
from variants.registry import Maker
from variants.slots import Norm, mixers


@mixers.register("attention")
class Attention(MultiHead):
    """Attend from every token to the tokens that the mask shows, in several heads: ``out(softmax(scale * q k') v)``.

    Fewer key heads than query heads make it grouped-query attention, one key head multi-query attention.

    Source: Vaswani et al. 2017, "Attention Is All You Need", arXiv:1706.03762, section 3.2.2; Shazeer 2019, "Fast
    Transformer Decoding: One Write-Head is All You Need", arXiv:1911.02150; Ainslie et al. 2023, "GQA: Training
    Generalized Multi-Query Transformer Models from Multi-Head Checkpoints", arXiv:2305.13245.

    Args:
        d_model: Model width, in features.
        n_heads: Query heads.
        kernel: What computes it.
        n_kv_heads: Key and value heads, each serving ``n_heads / n_kv_heads`` query heads; ``n_heads`` if None.
        d_head: Width of a head, in features; ``d_model / n_heads`` if None.
        scale: Of the scores; ``d_head ** -0.5`` if None.
        window: A query sees keys at a distance below this, in tokens; None: all.
        bias: Whether the projections have a bias.
        qkv_bias: Whether those of queries, keys and values have one; as ``bias`` if None.
        out_bias: Whether the output's has one; as ``bias`` if None.
        attention_dropout: Rate on the attention weights in training.
        qk_norm: Makes the norms of queries and keys, over a head's width, before a rotation.

    Raises:
        ValueError: ``n_heads`` does not divide ``d_model`` and ``d_head`` is not given, ``n_kv_heads`` does not divide
            ``n_heads``, or ``window`` is below 1.
    """

    reads: ClassVar[tuple[str, ...]] = ("add", "turn", "bias")

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        kernel: Kernel,
        *,
        n_kv_heads: int | None = None,
        d_head: int | None = None,
        scale: float | None = None,
        window: int | None = None,
        bias: bool = False,
        qkv_bias: bool | None = None,
        out_bias: bool | None = None,
        attention_dropout: float = 0.0,
        qk_norm: Maker[Norm] | None = None,
    ) -> None:
        super().__init__(
            d_model,
            n_heads,
            kernel,
            window is not None and window < 1 and f"window must be at least 1, not {window}",
            n_kv_heads=n_kv_heads,
            d_head=d_head,
            scale=scale,
            bias=bias,
            qkv_bias=qkv_bias,
            out_bias=out_bias,
            attention_dropout=attention_dropout,
            qk_norm=qk_norm,
        )
        self.window = window

    def forward(
        self, x: Float[Tensor, "batch time d_model"], context: Context | None = None
    ) -> Float[Tensor, "batch time d_model"]:
        """Mix along time; alone, every token sees all."""
        context = context or Context()
        place, slot = context.place, context.slot("mixer")
        x = context.mask.blank(x)
        located = x if place.add is None else x + place.add.to(x.dtype)
        q = place.turn(self.q_norm(self.heads(self.q(located))), "q")
        k = place.turn(self.k_norm(self.heads(self.k(located))), "k")
        v = self.heads(self.v(x))
        if slot is not None:
            k, v = slot.append(k, v, window=self.window)
        mask = context.mask.narrowed(self.window)
        mixed = self.kernel(q, k, v, mask, bias=place.bias, scale=self.scale, dropout=self.dropout)
        out: Tensor = self.out(self.joined(mixed))
        return out

    def flops(self, n_query: int, n_key: int) -> int:
        """Of one forward of one sequence: ``n_query`` new tokens over ``n_key`` keys."""
        matrices = sum(linear.weight.numel() for linear in (self.q, self.k, self.v, self.out))
        return 2 * n_query * matrices + self.product_flops(n_query, n_key)
