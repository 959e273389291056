"""Adam with decoupled weight decay."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from variants.slots import optimisers
from variants.training.optimisers.base import Optimiser, check


@optimisers.register("adamw")
class AdamW(Optimiser):
    """Step as Adam does, and shrink the weights apart from it, by ``lr * weight_decay``.

    Source: Loshchilov & Hutter 2019, "Decoupled Weight Decay Regularization", arXiv:1711.05101, algorithm 2.

    Args:
        lr: Learning rate; a schedule may replace it.
        betas: Decay of the running mean and of the running square, a step.
        eps: Added to the root.
        weight_decay: What a weight of two or more dimensions loses a step, over the learning rate.

    Raises:
        ValueError: A value is out of its range.
    """

    def __init__(
        self, *, lr: float = 1e-3, betas: Sequence[float] = (0.9, 0.95), eps: float = 1e-8, weight_decay: float = 0.1
    ) -> None:
        check(lr, tuple(betas), eps, weight_decay)
        self.lr, self.betas, self.eps, self.weight_decay = lr, (betas[0], betas[1]), eps, weight_decay

    def __call__(self, groups: Iterable[dict[str, Any]]) -> torch.optim.Optimizer:
        """Make torch's AdamW of these groups."""
        return torch.optim.AdamW(groups, lr=self.lr, betas=self.betas, eps=self.eps)
