"""What self- and cross-attention share: projections to heads and back, and the kernel between them."""

from __future__ import annotations

from typing import ClassVar

from jaxtyping import Float
from torch import Tensor, nn

from variants.blocks.kernels.base import Kernel, Needs
from variants.errors import refuse
from variants.registry import Maker
from variants.slots import Norm


class MultiHead(nn.Module):
    """Owns the projections of attention, its kernel and its norms; `Attention` documents the arguments.

    A subclass passes on what is wrong with arguments of its own, ``*problems``, as `variants.errors.refuse` takes it.
    Widths are kept per head, never for all heads, so that the same code runs on a shard of the heads.

    Raises:
        ValueError: ``n_heads`` does not divide ``d_model`` and ``d_head`` is not given, or ``n_kv_heads`` does not
            divide ``n_heads``, or ``d_head`` is below 1.
    """

    parallel: ClassVar[dict[str, str]] = {
        "q": "column",
        "k": "column",
        "v": "column",
        "out": "row",
        "q_norm": "per_head",
        "k_norm": "per_head",
        "kernel": "heads",
    }
    writes: ClassVar[tuple[str, ...]] = ("out",)

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        kernel: Kernel,
        *problems: str | bool,
        n_kv_heads: int | None = None,
        d_head: int | None = None,
        scale: float | None = None,
        bias: bool = False,
        qkv_bias: bool | None = None,
        out_bias: bool | None = None,
        attention_dropout: float = 0.0,
        qk_norm: Maker[Norm] | None = None,
    ) -> None:
        super().__init__()
        n_kv_heads = n_heads if n_kv_heads is None else n_kv_heads
        shared = n_kv_heads > 0 and n_heads % n_kv_heads == 0
        rate = 0 <= attention_dropout < 1
        refuse(
            d_head is None
            and d_model % n_heads > 0
            and f"n_heads {n_heads} must divide d_model {d_model}, or d_head be given",
            not shared and f"n_kv_heads {n_kv_heads} must divide n_heads {n_heads}",
            d_head is not None and d_head < 1 and f"d_head must be at least 1, not {d_head}",
            not rate and f"attention_dropout must be at least 0 and below 1, not {attention_dropout}",
            *problems,
        )
        d_head = d_model // n_heads if d_head is None else d_head
        qkv_bias = bias if qkv_bias is None else qkv_bias
        out_bias = bias if out_bias is None else out_bias
        self.d_head, self.scale, self.attention_dropout = d_head, scale, attention_dropout
        self.q = nn.Linear(d_model, n_heads * d_head, bias=qkv_bias)
        self.k = nn.Linear(d_model, n_kv_heads * d_head, bias=qkv_bias)
        self.v = nn.Linear(d_model, n_kv_heads * d_head, bias=qkv_bias)
        self.out = nn.Linear(n_heads * d_head, d_model, bias=out_bias)
        self.q_norm = nn.Identity() if qk_norm is None else qk_norm(d_head)
        self.k_norm = nn.Identity() if qk_norm is None else qk_norm(d_head)
        self.kernel = kernel

    def needs(self, learned_bias: bool = False, device: str = "cpu") -> Needs:
        """What it will ask of its kernel, where the position's bias is learned or not."""
        return Needs(self.attention_dropout, learned_bias, device)

    @property
    def dropout(self) -> float:
        """The rate on the weights that holds now: none in evaluation."""
        return self.attention_dropout if self.training else 0.0

    def heads(self, x: Float[Tensor, "batch time width"]) -> Float[Tensor, "batch heads time d_head"]:
        """Cut the features into heads."""
        batch, time, _ = x.shape
        return x.view(batch, time, -1, self.d_head).transpose(1, 2)

    def joined(self, x: Float[Tensor, "batch heads time d_head"]) -> Float[Tensor, "batch time width"]:
        """Lay the heads beside each other."""
        return x.transpose(1, 2).flatten(2)

    def product_flops(self, n_query: int, n_key: int) -> int:
        """Of scores and weighted sums; what a mask hides is counted too."""
        return 4 * n_query * n_key * self.out.in_features
