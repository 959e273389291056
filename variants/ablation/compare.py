"""A study's verdicts as a table, from the runs that are there."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from variants.ablation import results as stored
from variants.ablation import study as studies
from variants.ablation import tuning
from variants.ablation.factorial import Effect, effects
from variants.ablation.results import Results
from variants.ablation.speedup import CAVEAT, SpeedUp, speed_up
from variants.ablation.statistics import EQUAL_VARIANCES, Verdict, compare_to_baseline
from variants.ablation.study import Study
from variants.errors import ConfigError, unknown

Budget = Literal["tokens", "flops", "seconds"]
FEW = 4  # seeds below which a study can see little


@dataclass(frozen=True)
class Comparison:
    """What a study shows.

    Attributes:
        study: The study.
        metric: What was compared.
        baseline: With which arm.
        by: At an equal amount of what; None: at the end of the runs.
        budget: That amount; NaN where there is none.
        arms: The arms in their order, the baseline first.
        seeds: The seeds, in the rows of `values`.
        values: The metric (seeds, arms); NaN where a run diverged or is not there.
        diverged: Where a run diverged.
        verdicts: One for each arm but the baseline.
        effects: Main effects and interactions; empty where the arms are no full product of several axes.
        speed_ups: Arm to the compute that it saves; empty where there are no curves.
        costs: A row an arm: parameters, flops_per_token, tokens, seconds, kernel.
        notes: What a reader must know, a line each.
    """

    study: Study
    metric: str
    baseline: str
    by: Budget | None
    budget: float
    arms: list[str]
    seeds: list[int]
    values: NDArray[np.float64]
    diverged: NDArray[np.bool_]
    verdicts: list[Verdict]
    effects: list[Effect]
    speed_ups: dict[str, SpeedUp]
    costs: pd.DataFrame
    notes: list[str] = field(default_factory=list)


def compare(
    study: Study | str | Path,
    metric: str | None = None,
    baseline: str | None = None,
    by: Budget | None = None,
    *,
    results: Results | None = None,
) -> Comparison:
    """Compare a study's arms with its baseline.

    Args:
        study: The study, or its folder.
        metric: What to compare; None: the study's.
        baseline: The arm to compare with; None: the study's.
        by: Compare at the largest amount of this that every run reached; None: at the end of each run.
        results: What there is of it, if it is loaded already.

    Raises:
        ConfigError: No run logged the metric, there is no such arm, or there is nothing to compare.
    """
    study = study if isinstance(study, Study) else studies.load(study)
    results = results or stored.load(study)
    metric, baseline = metric or study.metric, baseline or study.baseline
    runs = results.compared()
    runs = runs[runs["state"].isin(["finished", "diverged"])]
    if runs.empty:
        raise ConfigError([f"{study.folder}: no run of the comparison has ended yet", *results.warnings])
    if metric not in results.metrics:
        raise ConfigError([f"metric: {unknown('metric that a run logged', metric, results.metrics)}"])
    if baseline not in set(runs["arm"]):
        raise ConfigError([f"baseline: {unknown('arm with runs', baseline, sorted(set(runs['arm'])))}"])
    names = [study.name_of(factors) for factors in study.factors()] + list(study.arms)
    arms = [baseline, *(name for name in names if name != baseline)]
    budget, runs = _at_budget(results, runs, metric, by)
    seeds = sorted(set(map(int, runs["seed"])))
    values, diverged = (_table(runs, column, arms, seeds) for column in (metric, "diverged"))
    bad = diverged == 1
    verdicts = compare_to_baseline(
        values,
        arms,
        smallest_effect=study.smallest_effect if metric == study.metric else None,
        better=study.better,
        variances=study.variances,
        diverged=bad,
    )
    notes = [*results.warnings, *_notes(study, results, seeds, values, arms, bad)]
    if metric == study.metric and study.variances == "equal":
        notes.append(EQUAL_VARIANCES)
    speed_ups = _speed_ups(study, results, runs, metric, arms, seeds)
    if speed_ups:
        notes.append(f"speed-up: {CAVEAT}")
    return Comparison(
        study,
        metric,
        baseline,
        by,
        budget,
        arms,
        seeds,
        np.where(bad, np.nan, values),
        bad,
        verdicts,
        _effects(study, values, bad, arms),
        speed_ups,
        _costs(results.compared(), arms),
        notes,
    )


def _table(runs: pd.DataFrame, column: str, arms: list[str], seeds: list[int]) -> NDArray[np.float64]:
    """A column as (seeds, arms)."""
    table = runs.assign(value=runs[column].astype(float)).pivot_table(
        index="seed", columns="arm", values="value", aggfunc="last", dropna=False
    )
    made: NDArray[np.float64] = table.reindex(index=seeds, columns=arms).to_numpy(dtype=float)
    return made


def _at_budget(results: Results, runs: pd.DataFrame, metric: str, by: Budget | None) -> tuple[float, pd.DataFrame]:
    """The runs with the metric that each had when it had used as much as all of them did."""
    if by is None:
        return math.nan, runs
    curves = results.curves[results.curves["folder"].isin(runs.loc[~runs["diverged"], "folder"])]
    if curves.empty or metric not in curves:
        raise ConfigError([f"by {by}: needs the curves of the runs, of which only results.csv is here"])
    measured = curves.dropna(subset=[metric])
    budget = float(measured.groupby("folder")[by].max().min())
    at = measured[measured[by] <= budget * (1 + 1e-9)].groupby("folder")[metric].last()
    return budget, runs.assign(**{metric: runs["folder"].map(at)})


def _notes(
    study: Study, results: Results, seeds: list[int], values: NDArray[Any], arms: list[str], bad: NDArray[np.bool_]
) -> list[str]:
    notes = []
    if missing := [arm for i, arm in enumerate(arms) if (np.isnan(values[:, i]) & ~bad[:, i]).any()]:
        notes.append(f"not all seeds are there for {', '.join(missing)}: these verdicts may still change")
    if left := [seed for seed in study.seeds if seed not in seeds]:
        notes.append(f"no run has ended yet with seed {', '.join(map(str, left))}")
    if len(study.seeds) < FEW:
        notes.append(f"{len(study.seeds)} seeds can see only large differences; {FEW} or more are recommended")
    if bad[:, 0].any():
        notes.append(f"the baseline diverged in {int(bad[:, 0].sum())} of {len(bad)} seeds")
    if study.smallest_effect is None:
        notes.append("smallest_effect is not set, so no arm can be called equivalent")
    untuned = tuning.untuned(results)
    if untuned:
        notes.append(f"{tuning.UNTUNED}" + (f" ({', '.join(untuned)})" if study.tune else ""))
    return notes + tuning.edges(results)


def _speed_ups(
    study: Study, results: Results, runs: pd.DataFrame, metric: str, arms: list[str], seeds: list[int]
) -> dict[str, SpeedUp]:
    """By operations: each arm's end against the baseline's curve, over the seeds that have both."""
    if metric not in results.curves:
        return {}
    curves = results.curves[results.curves["folder"].isin(runs["folder"])].dropna(subset=[metric, "flops"])
    curves = curves[curves["flops"] > 0]
    of = {(arm, seed): curve for (arm, seed), curve in curves.groupby(["arm", "seed"])}
    fine = {(arm, seed) for arm, seed, bad in zip(runs["arm"], runs["seed"], runs["diverged"], strict=True) if not bad}
    found = {}
    for arm in arms[1:]:
        both = [s for s in seeds if all((a, s) in of and (a, s) in fine for a in (arms[0], arm))]
        ends = [(float(of[arm, s]["flops"].iloc[-1]), float(of[arm, s][metric].iloc[-1])) for s in both]
        made = speed_up([(of[arms[0], s]["flops"], of[arms[0], s][metric]) for s in both], ends, study.better)
        if made is not None:
            found[arm] = made
    return found


def _effects(study: Study, values: NDArray[np.float64], bad: NDArray[np.bool_], arms: list[str]) -> list[Effect]:
    """Of a full product of several axes; a seed with a run that diverged is left out."""
    if len(study.axes) < 2 or study.exclude or not study.origin:
        return []
    axes = {
        axis: [study.origin[axis], *(v for v in levels if v != study.origin[axis])]
        for axis, levels in study.axes.items()
    }
    cells = {tuple(f[a] for a in axes): arms.index(study.name_of(f)) for f in study.factors()}
    return effects(np.where(bad, np.nan, values)[:, _places(cells, axes)], axes)


def _places(cells: dict[tuple[str, ...], int], axes: dict[str, list[str]]) -> NDArray[np.int64]:
    """The arms' columns, an array with a dimension for each axis."""
    shape = [len(levels) for levels in axes.values()]
    keys = (tuple(levels[i] for levels, i in zip(axes.values(), index, strict=True)) for index in np.ndindex(*shape))
    return np.array([cells[key] for key in keys]).reshape(shape)


def _costs(runs: pd.DataFrame, arms: list[str]) -> pd.DataFrame:
    """What each arm takes: the same in all its runs but for the seconds, whose mean it is."""
    groups = runs.groupby("arm", sort=False)
    table = groups[["parameters", "flops_per_token", "tokens"]].last()
    kernels = groups["kernel"].agg(lambda names: ", ".join(sorted(set(names.dropna()))))
    return table.assign(seconds=groups["seconds"].mean(), kernel=kernels).reindex(arms)
