"""Parallel branches."""

from __future__ import annotations

from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor, nn

from variants.blocks.residuals.base import Branch, Depths, Residual
from variants.slots import residuals


@residuals.register("parallel")
class Parallel(Residual):
    """Run all branches on one normalised input: ``x + sum of branch(norm(x))``.

    Source: Wang and Komatsuzaki 2021, "GPT-J-6B"; Chowdhery et al. 2022, "PaLM: Scaling Language Modeling with
    Pathways", arXiv:2204.02311, section 2.

    Args:
        norm: Makes a norm of the model's width; one serves all branches.
        n_branches: Branches of a layer.
        depths: How deep the model is.
    """

    def __init__(self, norm: Callable[[], nn.Module], n_branches: int, depths: Depths) -> None:
        super().__init__(norm, n_branches, depths)
        self.norm = norm()

    def forward(self, x: Float[Tensor, "batch time d_model"], *branches: Branch) -> Float[Tensor, "batch time d_model"]:
        """One layer: the stream after all its branches."""
        normal = self.norm(x)
        for branch in branches:
            x = x + branch(normal)
        return x
