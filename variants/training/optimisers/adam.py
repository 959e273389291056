"""Adam."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from variants.slots import optimisers
from variants.training.optimisers.base import Optimiser, check


@optimisers.register("adam")
class Adam(Optimiser):
    """Step by the gradient's running mean over the root of its running square, both corrected for their start at 0.

    Source: Kingma & Ba 2015, "Adam: A Method for Stochastic Optimization", arXiv:1412.6980, algorithm 1.

    Args:
        lr: Learning rate; a schedule may replace it.
        betas: Decay of the running mean and of the running square, a step.
        eps: Added to the root.
        weight_decay: L2 penalty, added to the gradient.

    Raises:
        ValueError: A value is out of its range.
    """

    def __init__(
        self, *, lr: float = 1e-3, betas: Sequence[float] = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 0.0
    ) -> None:
        check(lr, tuple(betas), eps, weight_decay)
        self.lr, self.betas, self.eps, self.weight_decay = lr, (betas[0], betas[1]), eps, weight_decay

    def __call__(self, groups: Iterable[dict[str, Any]]) -> torch.optim.Optimizer:
        """Make torch's Adam of these groups."""
        return torch.optim.Adam(groups, lr=self.lr, betas=self.betas, eps=self.eps)
