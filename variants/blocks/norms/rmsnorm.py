"""Root mean square normalisation."""

from __future__ import annotations

from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from variants.slots import norms


@norms.register("rmsnorm")
class RMSNorm(nn.Module):
    """Scale by the root mean square: ``weight * x / sqrt(mean(x^2) + eps)``.

    Computed in float32 at least and cast back; then scaled, in the input's dtype.

    Source: Zhang and Sennrich 2019, "Root Mean Square Layer Normalization", arXiv:1910.07467, equation 4.
    Departs from it: epsilon inside the root, and no bias.

    Args:
        width: Features of a position.
        norm_eps: Added to the mean square.
    """

    initial: ClassVar[dict[str, float]] = {"weight": 1.0}

    def __init__(self, width: int, norm_eps: float = 1e-6) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = norm_eps

    def forward(self, x: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch width"]:
        """Normalise each position; the dtype is the input's."""
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        mean_square = wide.square().mean(-1, keepdim=True)
        normal = (wide * (mean_square + self.eps).rsqrt()).to(x.dtype)
        return self.weight.to(x.dtype) * normal
