"""Layer normalisation as the annotated Transformer has it."""

from __future__ import annotations

from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from variants.slots import norms


@norms.register("layernorm_std")
class LayerNormStd(nn.Module):
    """Centre and scale by the unbiased deviation: ``weight * (x - mean) / (deviation + eps) + bias``.

    Source: Rush 2018, "The Annotated Transformer", class LayerNorm.
    Departs from it: computed in float32 at least, and cast back.

    Args:
        width: Features of a position; at least 2.
        norm_eps: Added to the deviation, outside the root.

    Raises:
        ValueError: ``width`` is 1.
    """

    initial: ClassVar[dict[str, float]] = {"weight": 1.0, "bias": 0.0}

    def __init__(self, width: int, norm_eps: float = 1e-6) -> None:
        super().__init__()
        if width < 2:
            raise ValueError(f"width={width}: layernorm_std needs at least 2 features, one has no unbiased deviation")
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))
        self.eps = norm_eps

    def forward(self, x: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch width"]:
        """Normalise each position; the dtype is the input's."""
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        deviation, mean = torch.std_mean(wide, -1, keepdim=True)
        normal = ((wide - mean) / (deviation + self.eps)).to(x.dtype)
        return self.weight.to(x.dtype) * normal + self.bias.to(x.dtype)
