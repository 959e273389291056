"""Attention by plain tensor operations."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from variants.blocks.kernels.base import Kernel, weights_of
from variants.blocks.masks import AttentionMask
from variants.slots import kernels


@kernels.register("math")
class Math(Kernel):
    """Attend by plain tensor operations, every weight in memory: ``softmax(scale * q k' + bias) v``.

    The other kernels are measured against it.

    Source: Vaswani et al. 2017, "Attention Is All You Need", arXiv:1706.03762, equation 1.
    Departs from it: a query that sees no key gives 0.
    """

    def forward(
        self,
        q: Float[Tensor, "batch heads time d_head"],
        k: Float[Tensor, "batch kv_heads source d_head"],
        v: Float[Tensor, "batch kv_heads source d_value"],
        mask: AttentionMask,
        *,
        bias: Float[Tensor, "#batch heads time _"] | None = None,
        scale: float | None = None,
        dropout: float = 0.0,
    ) -> Float[Tensor, "batch heads time d_value"]:
        """Attend; see `Kernel`."""
        weights = F.dropout(weights_of(q, k, mask, bias, scale).to(v.dtype), dropout)
        values = v.repeat_interleave(q.shape[1] // v.shape[1], 1)
        return weights @ values
