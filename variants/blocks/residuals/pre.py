"""Pre-norm."""

from __future__ import annotations

from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor, nn

from variants.blocks.residuals.base import Branch, Depths, Residual
from variants.slots import residuals


@residuals.register("pre")
class PreNorm(Residual):
    """Normalise what a branch reads: ``x + branch(norm(x))``.

    Source: Xiong et al. 2020, "On Layer Normalization in the Transformer Architecture", arXiv:2002.04745, table 1.

    Args:
        norm: Makes a norm of the model's width.
        n_branches: Branches of a layer.
        depths: How deep the model is.
    """

    def __init__(self, norm: Callable[[], nn.Module], n_branches: int, depths: Depths) -> None:
        super().__init__(norm, n_branches, depths)
        self.norms = nn.ModuleList(norm() for _ in range(n_branches))

    def forward(self, x: Float[Tensor, "batch time d_model"], *branches: Branch) -> Float[Tensor, "batch time d_model"]:
        """One layer: the stream after all its branches."""
        for norm, branch in zip(self.norms, branches, strict=True):
            x = x + branch(norm(x))
        return x
