"""The schedule of the first Transformer."""

from __future__ import annotations

from variants.errors import refuse
from variants.slots import schedules
from variants.training.schedules.base import wrong_warmup


@schedules.register("noam")
class Noam:
    """Warm up linearly, then fall with the inverse root of the step.

    ``factor * d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)``; the optimiser's learning rate plays no part.

    Source: Vaswani et al. 2017, "Attention Is All You Need", arXiv:1706.03762, section 5.3, equation 3.
    Departs from it: a factor, as in the authors' code.

    Args:
        d_model: Model width, in features.
        warmup: Updates until the peak; 0 is as 1.
        factor: Multiplies every value.

    Raises:
        ValueError: ``warmup`` is negative, or ``factor`` not positive.
    """

    def __init__(self, d_model: int, *, warmup: int = 4000, factor: float = 1.0) -> None:
        refuse(wrong_warmup(warmup), factor <= 0 and f"factor={factor} must be positive")
        self.d_model, self.warmup, self.factor = d_model, max(warmup, 1), factor

    def __call__(self, step: int) -> float:
        """The learning rate of an update, counted from 1."""
        return self.factor * float(self.d_model**-0.5 * min(step**-0.5, step * self.warmup**-1.5))
