"""What schedules share: a linear warm-up, whose first update is never 0."""

from __future__ import annotations


def warmed(step: int, warmup: int) -> float:
    """The share of the peak that an update has reached; update ``warmup`` reaches all of it.

    >>> [warmed(step, 4) for step in (1, 2, 4, 5)], warmed(1, 0)
    ([0.25, 0.5, 1.0, 1.0], 1.0)
    """
    return min(1.0, step / max(warmup, 1))


def wrong_warmup(warmup: int, max_steps: int | None = None) -> str | bool:
    """What is wrong with a warm-up: it is negative, or as long as the training."""
    if warmup < 0:
        return f"warmup={warmup} must not be negative"
    if max_steps is not None and warmup >= max_steps and warmup > 0:
        return f"warmup={warmup} must be below max_steps={max_steps}"
    return False
