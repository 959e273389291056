"""Half a cosine from the peak to a floor."""

from __future__ import annotations

import math

from variants.errors import refuse
from variants.slots import schedules
from variants.training.schedules.base import warmed, wrong_warmup


@schedules.register("cosine")
class Cosine:
    """Warm up linearly, then fall along half a cosine to a floor, which the last update reaches.

    ``lr * (floor + (1 - floor) * (1 + cos(pi * t)) / 2)``, where t runs from 0 at the peak to 1 at ``max_steps``.

    Source: Loshchilov & Hutter 2017, "SGDR: Stochastic Gradient Descent with Warm Restarts", arXiv:1608.03983,
    equation 5.
    Departs from it: no restarts; a linear warm-up comes before.

    Args:
        lr: The peak: the optimiser's learning rate.
        max_steps: Updates of the whole training; later ones keep the floor.
        warmup: Updates until the peak.
        floor: The final learning rate, as a share of the peak.

    Raises:
        ValueError: ``warmup`` is negative or not below ``max_steps``, or ``floor`` is no share.
    """

    def __init__(self, lr: float, max_steps: int, *, warmup: int = 0, floor: float = 0.1) -> None:
        refuse(
            wrong_warmup(warmup, max_steps),
            not 0 <= floor <= 1 and f"floor={floor} must be a share of the peak, between 0 and 1",
        )
        self.lr, self.max_steps, self.warmup, self.floor = lr, max_steps, warmup, floor

    def __call__(self, step: int) -> float:
        """The learning rate of an update, counted from 1."""
        peak = max(self.warmup, 1)
        t = min(1.0, max(0, step - peak) / max(self.max_steps - peak, 1))
        share = self.floor + (1 - self.floor) * (1 + math.cos(math.pi * t)) / 2
        return self.lr * warmed(step, self.warmup) * share
