"""The fastest kernel that can do what is asked."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from variants.blocks.kernels.base import Kernel, Needs
from variants.blocks.kernels.flash import Flash
from variants.blocks.kernels.math import Math
from variants.blocks.kernels.sdpa import Sdpa
from variants.blocks.masks import AttentionMask
from variants.slots import kernels


@kernels.register("auto")
class Auto(Kernel):
    """Attend by the first of flash, sdpa and math that can do what the model needs; `effective` says which.

    On a GPU it starts at sdpa: flash takes neither float32 nor padding there, and torch itself takes flash where it
    can. Until it hears the needs it is sdpa.
    """

    def __init__(self) -> None:
        super().__init__()
        self.chosen: Kernel = Sdpa()

    def settle(self, needs: Needs) -> None:
        """Choose."""
        candidates = [Flash(), Sdpa(), Math()] if needs.device == "cpu" else [Sdpa(), Math()]
        refusals = []
        for kernel in candidates:
            self.chosen, refusal = kernel, kernel.refuses(needs)
            if refusal is None:
                break
            refusals.append(f"not {kernel.effective}, because {refusal}")
        names = ", ".join(kernel.effective for kernel in candidates)
        self.reason = "; ".join(refusals) or f"the first of {names} that can do what is asked on {needs.device}"

    @property
    def effective(self) -> str:
        """The name of the kernel that was chosen."""
        return self.chosen.effective

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
        # Not through its __call__: a hook that records weights shall fire once, on this kernel.
        return self.chosen.forward(q, k, v, mask, bias=bias, scale=scale, dropout=dropout)
