"""One learning rate."""

from __future__ import annotations

from variants.errors import refuse
from variants.slots import schedules
from variants.training.schedules.base import warmed, wrong_warmup


@schedules.register("constant")
class Constant:
    """Keep the learning rate, after a linear warm-up: ``lr * min(1, step / warmup)``.

    Args:
        lr: The optimiser's learning rate.
        max_steps: Updates of the whole training.
        warmup: Updates until it is reached.

    Raises:
        ValueError: ``warmup`` is negative or not below ``max_steps``.
    """

    def __init__(self, lr: float, max_steps: int, *, warmup: int = 0) -> None:
        refuse(wrong_warmup(warmup, max_steps))
        self.lr, self.warmup = lr, warmup

    def __call__(self, step: int) -> float:
        """The learning rate of an update, counted from 1."""
        return self.lr * warmed(step, self.warmup)
