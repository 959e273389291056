"""Attention by torch's fused operator, whichever implementation torch takes."""

from __future__ import annotations

from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from variants.blocks.kernels.base import Kernel
from variants.blocks.masks import AttentionMask
from variants.slots import kernels


@kernels.register("sdpa")
class Sdpa(Kernel):
    """Attend by ``torch.nn.functional.scaled_dot_product_attention``, which picks an implementation at every call.

    The mask is lowered to its cheapest form: nothing, the causal flag, or a tensor. Causality alone makes no tensor of
    time by time.

    Source: Vaswani et al. 2017, "Attention Is All You Need", arXiv:1706.03762, equation 1.
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
        n_query, n_key = q.shape[-2], k.shape[-2]
        flag = mask.flag(n_query, n_key)
        is_causal = flag == "causal" and bias is None  # the operator takes the flag or a tensor, not both
        scores_mask, sighted = None, None
        if flag != "all" and not is_causal:
            scores_mask = mask.dense(n_query, n_key, q.device)
            if mask.may_hide_rows(n_query, n_key):
                # Implementations disagree about a row that sees nothing (0, NaN, the mean), so it sees all, and is
                # made 0 afterwards.
                sighted = scores_mask.any(-1, keepdim=True)
                scores_mask = scores_mask | ~sighted
        if bias is not None:
            bias = bias[..., -n_key:].to(q.dtype)
            scores_mask = bias if scores_mask is None else bias.masked_fill(~scores_mask, float("-inf"))
        attended = self.attend(q, k, v, scores_mask, is_causal, scale, dropout)
        return attended if sighted is None else attended.masked_fill(~sighted, 0.0)

    def attend(
        self,
        q: Float[Tensor, "batch heads time d_head"],
        k: Float[Tensor, "batch kv_heads source d_head"],
        v: Float[Tensor, "batch kv_heads source d_value"],
        scores_mask: Bool[Tensor, "#batch #heads time source"] | Float[Tensor, "#batch #heads time source"] | None,
        is_causal: bool,
        scale: float | None,
        dropout: float,
    ) -> Float[Tensor, "batch heads time d_value"]:
        """Call the operator on a lowered mask."""
        return F.scaled_dot_product_attention(
            q,
            k,
            v,
            attn_mask=scores_mask,
            dropout_p=dropout,
            is_causal=is_causal,
            scale=scale,
            enable_gqa=q.shape[1] != k.shape[1],
        )
