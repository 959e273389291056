"""Attention by torch's flash implementation and no other."""

from __future__ import annotations

from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from variants.blocks.kernels.base import Needs
from variants.blocks.kernels.sdpa import Sdpa
from variants.slots import kernels


@kernels.register("flash")
class Flash(Sdpa):
    """Attend in tiles, without ever holding all weights, by torch's flash implementation and no other.

    Source: Dao et al. 2022, "FlashAttention: Fast and Memory-Efficient Exact Attention with IO-Awareness",
    arXiv:2205.14135, algorithm 1.
    """

    def refuses(self, needs: Needs) -> str | None:
        """On a CPU it knows no dropout, and nowhere a gradient of the scores' bias."""
        if needs.learned_bias:
            return "kernel flash has no gradient for a learned bias on the scores; auto, math and sdpa have"
        if needs.dropout and needs.device == "cpu":
            rate = f"attention_dropout is {needs.dropout}"
            return f"kernel flash on a CPU has no dropout, but {rate}; auto, math and sdpa have"
        return None

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
        """Call the operator with all other implementations forbidden.

        Raises:
            ValueError: A mask is more than causality and the device is no CPU.
        """
        if scores_mask is not None and q.device.type == "cuda":
            raise ValueError(
                "kernel flash on a GPU takes no mask but a square causal one; auto, math and sdpa take any"
            )
        d_head, d_value = q.shape[-1], v.shape[-1]
        width = max(d_head, d_value)  # the implementation knows one width only
        scale = d_head**-0.5 if scale is None else scale
        q, k, v = (t if t.shape[-1] == width else F.pad(t, (0, width - t.shape[-1])) for t in (q, k, v))
        q, k, v = (t if t.stride(-1) == 1 else t.contiguous() for t in (q, k, v))  # it refuses other strides
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            return super().attend(q, k, v, scores_mask, is_causal, scale, dropout)[..., :d_value]
