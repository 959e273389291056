"""What an optimiser's settings are, and which values they may have."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from variants.errors import refuse


class Optimiser:
    """Makes a torch optimiser of parameter groups.

    Attributes:
        lr: The peak learning rate, which a schedule may be offered.
        weight_decay: The rate of the groups that decay.
    """

    lr: float
    weight_decay: float

    def __call__(self, groups: Iterable[dict[str, Any]]) -> torch.optim.Optimizer:
        """Make the optimiser; a group has ``params`` and ``weight_decay``."""
        raise NotImplementedError


def check(lr: float, betas: tuple[float, ...], eps: float, weight_decay: float) -> None:
    """Refuse what no optimiser of Adam's family can use.

    Raises:
        ValueError: A value is out of its range.
    """
    two = len(betas) == 2 and all(0 <= beta < 1 for beta in betas)
    refuse(
        lr <= 0 and f"lr={lr} must be positive",
        not two and f"betas={list(betas)} must be two numbers, each at least 0 and below 1",
        eps <= 0 and f"eps={eps} must be positive",
        weight_decay < 0 and f"weight_decay={weight_decay} must not be negative",
    )
