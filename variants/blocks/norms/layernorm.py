"""Layer normalisation."""

from __future__ import annotations

from typing import ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from variants.slots import norms


@norms.register("layernorm")
class LayerNorm(nn.Module):
    """Centre and scale by mean and variance: ``weight * (x - mean) / sqrt(variance + eps) + bias``.

    The variance is the biased one, and is computed in float32 at least.

    Source: Ba et al. 2016, "Layer Normalization", arXiv:1607.06450, equation 4.
    Departs from it: epsilon inside the root.

    Args:
        width: Features of a position.
        norm_eps: Added to the variance.
        norm_bias: Whether there is a bias.
    """

    initial: ClassVar[dict[str, float]] = {"weight": 1.0, "bias": 0.0}

    def __init__(self, width: int, norm_eps: float = 1e-5, *, norm_bias: bool = True) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width)) if norm_bias else None
        self.eps = norm_eps

    def forward(self, x: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch width"]:
        """Normalise each position; the dtype is the input's."""
        weight = self.weight.to(x.dtype)
        bias = None if self.bias is None else self.bias.to(x.dtype)
        return F.layer_norm(x, self.weight.shape, weight, bias, self.eps).to(x.dtype)  # autocast may widen it
