"""Judge arms against a baseline over shared seeds.

A seed is a block: all arms have its data order, and its initial values of what they share. Each arm's differences from
the baseline over the seeds are tested by a paired t, corrected for the number of arms by Bonferroni, so that the
interval and the p-value always agree; that is exact whatever the arms' variances and correlations are.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from variants.ablation.dunnett import dunnett_critical, dunnett_p

LEVEL = 0.05
POWER = 0.80
MANY_SEEDS = 1000
EQUAL_VARIANCES = (
    "variances declared equal: where they are not, false verdicts come in up to 32% of studies (variance ratio 5)"
)
Judgement = Literal["better", "worse", "equivalent", "inconclusive", "diverged", "none"]


@dataclass(frozen=True)
class Estimate:
    """A mean difference over seeds, with its simultaneous interval.

    Attributes:
        n: Seeds.
        difference: The mean.
        se: Its standard error; NaN with one seed, as is all that follows from it.
        df: Degrees of freedom.
        t: The difference over its error.
        critical: The value beyond which t is significant, corrected.
        low: The interval's lower end, at 95% for all comparisons together.
        high: Its upper end.
        p: Corrected.
    """

    n: int
    difference: float
    se: float
    df: int
    t: float
    critical: float
    low: float
    high: float
    p: float


@dataclass(frozen=True)
class Verdict:
    """What is to be said about an arm.

    Attributes:
        arm: Its name.
        judgement: Better, worse or equivalent where the seeds show it, else inconclusive; ``none`` where they cannot.
        estimate: Of its difference from the baseline; None: no seed has both.
        detectable: The difference that these seeds would have found in 80% of studies.
        seeds_needed: Seeds for which that is below the smallest effect; None: unknown, or beyond 1,000.
        diverged: In how many seeds it diverged.
        seeds: How many seeds it was run on.
        diverged_interval: 95% interval of the share that diverges (Clopper-Pearson).
        note: What a reader must know besides.
    """

    arm: str
    judgement: Judgement
    estimate: Estimate | None
    detectable: float
    seeds_needed: int | None
    diverged: int
    seeds: int
    diverged_interval: tuple[float, float]
    note: str = ""


def compare_to_baseline(
    values: ArrayLike,
    names: Sequence[str] | None = None,
    *,
    smallest_effect: float | None = None,
    better: Literal["lower", "higher"] = "lower",
    variances: Literal["unequal", "equal"] = "unequal",
    diverged: ArrayLike | None = None,
) -> list[Verdict]:
    """Judge every arm against the baseline.

    Verdicts, in this order: diverged in any seed; equivalent, where ``d +- t(1 - 0.05/m; n-1) SE`` lies within the
    smallest effect; better or worse, where ``d +- t(1 - 0.025/m; n-1) SE`` does not hold 0; else inconclusive; for m
    arms besides the baseline and n seeds.

    Args:
        values: The metric (seeds, arms), the baseline first; NaN where a run diverged or is missing.
        names: Of the arms, the baseline's included.
        smallest_effect: A difference below this does not matter.
        better: Which direction is better.
        variances: ``equal``: test by the error that all arms share (Dunnett), on a claim made before the study ran.
        diverged: Where a run diverged (seeds, arms); by default wherever a value is NaN. A NaN elsewhere is missing.

    Returns:
        A verdict for each arm but the baseline. Seeds in which the baseline diverged are dropped for all.
    """
    table = np.asarray(values, dtype=float)
    bad = np.isnan(table) if diverged is None else np.asarray(diverged, dtype=bool)
    table = np.where(bad, np.nan, table)
    arms = list(names) if names is not None else [str(i) for i in range(table.shape[1])]
    dropped = int(bad[:, 0].sum())
    m = len(arms) - 1
    clean = [i for i in range(len(arms)) if not bad[:, i].any()] if variances == "equal" else []
    pooled = _pooled(table[:, [0, *(i for i in clean if i)]]) if variances == "equal" else None
    verdicts = []
    for column in range(1, len(arms)):
        differences = table[:, column] - table[:, 0]
        differences = differences[~np.isnan(differences)]
        estimate = estimate_of(differences, m, pooled) if len(differences) else None
        seen = int((bad[:, column] | ~np.isnan(table[:, column])).sum())
        count = int(bad[:, column].sum())
        judgement, note = _judge(estimate, differences, m, count, smallest_effect, better, pooled is not None)
        if dropped:
            seeds = "1 seed is" if dropped == 1 else f"{dropped} seeds are"
            note = "; ".join(filter(None, [note, f"{seeds} dropped, in which the baseline diverged"]))
        verdicts.append(
            Verdict(
                arms[column],
                judgement,
                estimate,
                detectable_effect(estimate) if estimate else math.nan,
                seeds_needed(estimate, m, smallest_effect) if estimate and smallest_effect else None,
                count,
                seen,
                clopper_pearson(count, seen),
                note,
            )
        )
    return verdicts


def estimate_of(differences: ArrayLike, m: int, pooled: tuple[float, int] | None = None) -> Estimate:
    """Estimate a mean difference.

    Args:
        differences: One a seed.
        m: Comparisons that the interval holds for together.
        pooled: The error variance that all arms share, and its degrees of freedom; None: the differences' own.
    """
    d = np.asarray(differences, dtype=float)
    n, mean = len(d), float(d.mean())
    if n < 2:
        return Estimate(n, mean, math.nan, 0, math.nan, math.nan, math.nan, math.nan, math.nan)
    if pooled is None:
        se, df = float(d.std(ddof=1)) / math.sqrt(n), n - 1
        critical = t_quantile(1 - LEVEL / 2 / m, df)
    else:
        se, df = math.sqrt(2 * pooled[0] / n), pooled[1]
        critical = dunnett_critical(LEVEL, m, df)
    t = mean / se if se else math.copysign(math.inf, mean) if mean else math.nan
    p = min(1.0, 2 * m * float(special.stdtr(df, -abs(t)))) if pooled is None else dunnett_p(abs(t), m, df)
    return Estimate(n, mean, se, df, t, critical, mean - critical * se, mean + critical * se, p)


def _pooled(table: NDArray[np.float64]) -> tuple[float, int] | None:
    """The residual variance of seeds and arms as additive factors, over the seeds that all arms have."""
    table = table[~np.isnan(table).any(axis=1)]
    n, k = table.shape
    if n < 2 or k < 2:
        return None
    residual = table - table.mean(0, keepdims=True) - table.mean(1, keepdims=True) + table.mean()
    df = (n - 1) * (k - 1)
    return float((residual**2).sum()) / df, df


def _judge(
    estimate: Estimate | None,
    differences: NDArray[np.float64],
    m: int,
    diverged: int,
    smallest_effect: float | None,
    better: str,
    pooled: bool,
) -> tuple[Judgement, str]:
    if diverged:
        return "diverged", ""
    if estimate is None:
        return "none", "no seed has both this arm and the baseline"
    if estimate.n == 1:
        return "none", "one seed: a difference, no interval and no verdict"
    spread, scale = float(np.ptp(differences)), max(abs(estimate.difference), 1e-300)
    if spread <= 1e-12 * scale:
        return "none", "the same difference in every seed: were these runs independent?"
    note = "two seeds are a smoke test: only huge differences can be seen" if estimate.n == 2 else ""
    if smallest_effect is not None:
        inner = dunnett_critical(2 * LEVEL, m, estimate.df) if pooled else t_quantile(1 - LEVEL / m, estimate.df)
        if abs(estimate.difference) + inner * estimate.se < smallest_effect:
            return "equivalent", note
    if estimate.low <= 0 <= estimate.high:
        return "inconclusive", note
    return ("better" if (estimate.high < 0) == (better == "lower") else "worse"), note


# ---------------------------------------------------------------------------------------------------------------------


@functools.cache
def t_quantile(level: float, df: int) -> float:
    """A quantile of Student's t."""
    return float(special.stdtrit(df, level))


def detectable_effect(estimate: Estimate) -> float:
    """The difference that would be found in 80% of studies: ``(critical t + t(0.80; df)) SE``.

    It is about 35% uncertain with three seeds, and no evidence of equivalence.
    """
    return (estimate.critical + t_quantile(POWER, estimate.df)) * estimate.se if estimate.df else math.nan


def seeds_needed(estimate: Estimate, m: int, smallest_effect: float) -> int | None:
    """The least number of seeds whose detectable effect is below the smallest effect; None: more than 1,000.

    From few seeds it is a guess: say from half to twice as many.
    """
    if not estimate.df:
        return None
    deviation = estimate.se * math.sqrt(estimate.n)
    per_seed = estimate.df // (estimate.n - 1)  # the pooled error has as many degrees of freedom for each seed
    for n in range(2, MANY_SEEDS + 1):
        df = (n - 1) * per_seed
        critical = t_quantile(1 - LEVEL / 2 / m, df)
        if (critical + t_quantile(POWER, df)) * deviation / math.sqrt(n) < smallest_effect:
            return n
    return None


def clopper_pearson(count: int, n: int) -> tuple[float, float]:
    """The exact 95% interval of a share, from a count out of n.

    >>> [round(end, 2) for end in clopper_pearson(2, 3)]
    [0.09, 0.99]
    """
    if not n:
        return 0.0, 1.0
    low = special.betaincinv(count, n - count + 1, LEVEL / 2) if count else 0.0
    high = special.betaincinv(count + 1, n - count, 1 - LEVEL / 2) if count < n else 1.0
    return float(low), float(high)
