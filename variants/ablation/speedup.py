"""How much less compute an arm needs than the baseline to get as far."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from variants.ablation.statistics import LEVEL, t_quantile

CAVEAT = (
    "Under a learning rate that decays, the baseline's losses in mid-run are higher than a shorter run would end with, "
    "so the speed-up is overstated; it carries no verdict."
)


@dataclass(frozen=True)
class SpeedUp:
    """The baseline's compute to reach an arm's final value, over the arm's.

    Attributes:
        factor: The geometric mean over seeds.
        low: The 95% interval's lower end; NaN where there is none.
        high: Its upper end.
        bound: ``at least`` where the baseline never got as far in a seed, ``at most`` where it had before its first
            measurement; empty where neither.
        n: Seeds.
    """

    factor: float
    low: float
    high: float
    bound: Literal["", "at least", "at most"]
    n: int


def speed_up(
    baseline: Sequence[tuple[ArrayLike, ArrayLike]],
    arm: Sequence[tuple[float, float]],
    better: Literal["lower", "higher"] = "lower",
) -> SpeedUp | None:
    """Compare an arm with the baseline at equal quality.

    In each seed: the compute at which the baseline's own curve, made monotone and interpolated in the logarithm of
    compute, reaches the arm's final value, over the arm's compute; then the mean and the t interval of the logarithms.

    Args:
        baseline: The compute and the values along the baseline's curve, for each seed.
        arm: The arm's compute and its final value, for the same seeds.
        better: Which direction is better.

    Returns:
        None where some seeds give a lower bound and others an upper one, or there is no seed.
    """
    sign = 1.0 if better == "lower" else -1.0
    found = [
        _reached(x, sign * np.asarray(y, dtype=float), sign * final) for (x, y), (_, final) in _pairs(baseline, arm)
    ]
    bounds = {bound for _, bound in found} - {""}
    if not found or len(bounds) > 1:
        return None
    logs = np.array([math.log(x / compute) for (x, _), (compute, _) in zip(found, arm, strict=True)])
    n, mean = len(logs), float(logs.mean())
    bound: Literal["", "at least", "at most"] = bounds.pop() if bounds else ""
    if n < 2 or bound:
        return SpeedUp(math.exp(mean), math.nan, math.nan, bound, n)
    half = t_quantile(1 - LEVEL / 2, n - 1) * float(logs.std(ddof=1)) / math.sqrt(n)
    return SpeedUp(math.exp(mean), math.exp(mean - half), math.exp(mean + half), "", n)


def _pairs(
    baseline: Sequence[tuple[ArrayLike, ArrayLike]], arm: Sequence[tuple[float, float]]
) -> list[tuple[tuple[ArrayLike, ArrayLike], tuple[float, float]]]:
    return list(zip(baseline, arm, strict=True))


def _reached(compute: ArrayLike, loss: ArrayLike, target: float) -> tuple[float, Literal["", "at least", "at most"]]:
    """The compute at which a curve first reaches a loss, or which bound it gives."""
    x, y = np.asarray(compute, dtype=float), np.minimum.accumulate(np.asarray(loss, dtype=float))
    at = int(np.argmax(y <= target))
    if y[at] > target:
        return float(x[-1]), "at least"
    if at == 0:
        return float(x[0]), "" if y[0] == target else "at most"
    share = (y[at - 1] - target) / (y[at - 1] - y[at])
    return float(x[at - 1] * (x[at] / x[at - 1]) ** share), ""
