"""DeepNorm."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor, nn

from variants.blocks.residuals.base import Branch, Depths, Residual
from variants.slots import residuals


def alpha_of(depths: Depths) -> float:
    """The stream's weight: the deeper the model, the less one branch may move it.

    >>> alpha_of(Depths(8, decoder=8))
    2.0
    """
    if not (depths.encoder and depths.decoder):
        return float((2 * depths.own) ** (1 / 4))
    if depths.role == "encoder":
        return float(0.81 * (depths.encoder**4 * depths.decoder) ** (1 / 16))
    return float((3 * depths.decoder) ** (1 / 4))


@residuals.register("deepnorm")
class DeepNorm(Residual):
    """Normalise the sum, the stream weighing more: ``norm(alpha * x + branch(x))``.

    alpha is ``(2 N)^(1/4)`` in a stack of N layers that is alone; between N encoder and M decoder layers it is
    ``0.81 (N^4 M)^(1/16)`` in the encoder and ``(3 M)^(1/4)`` in the decoder.

    Source: Wang et al. 2022, "DeepNet: Scaling Transformers to 1,000 Layers", arXiv:2203.00555, figure 2.
    Departs from it: the smaller initial values (beta) are the initialiser's, not the residual's.

    Args:
        norm: Makes a norm of the model's width.
        n_branches: Branches of a layer.
        depths: How deep the model is.
    """

    final_norm: ClassVar[bool] = False

    def __init__(self, norm: Callable[[], nn.Module], n_branches: int, depths: Depths) -> None:
        super().__init__(norm, n_branches, depths)
        self.norms = nn.ModuleList(norm() for _ in range(n_branches))
        self.alpha = alpha_of(depths)

    def forward(self, x: Float[Tensor, "batch time d_model"], *branches: Branch) -> Float[Tensor, "batch time d_model"]:
        """One layer: the stream after all its branches."""
        for norm, branch in zip(self.norms, branches, strict=True):
            x = norm(self.alpha * x + branch(x))
        return x
