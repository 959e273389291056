"""What the tuning of a study showed: every arm's grid, and optima that lie on its edge."""

from __future__ import annotations

import pandas as pd

from variants.ablation.results import Results

UNTUNED = "untuned: the arms share settings that may suit one of them better than another"


def grid(results: Results) -> pd.DataFrame:
    """The metric at each point of each arm's grid: its mean over the seeds of the tuning, and how many there are.

    A point where a run diverged has no mean.
    """
    study, runs = results.study, results.runs
    fields = list(study.tune)
    tried = runs[(runs["stage"] == "tune") & ~runs["stale"] & runs["state"].isin(["finished", "diverged"])]
    if tried.empty or study.metric not in tried:
        return pd.DataFrame(columns=["arm", *fields, "mean", "n"])
    values = tried.assign(value=tried[study.metric].where(~tried["diverged"]))
    groups = values.groupby(["arm", *fields], sort=False, dropna=False)["value"]
    return groups.agg(mean=lambda v: v.mean(skipna=False), n="size").reset_index()


def edges(results: Results) -> list[str]:
    """A line for each arm that was compared with a setting at an end of its grid: a better one may lie beyond."""
    lines = []
    compared = results.compared()
    for field, values in results.study.tune.items():
        numbers = [v for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
        for arm, runs in compared.groupby("arm", sort=False):
            for value in runs[field].dropna().unique() if numbers else ():
                if value in (min(numbers), max(numbers)):
                    end = "smallest" if value == min(numbers) else "largest"
                    lines.append(f"{arm}: {field}={value:g} is the {end} of its grid; a better one may lie beyond")
    return lines


def untuned(results: Results) -> list[str]:
    """The arms that were compared without having been tuned."""
    compared = results.compared()
    arms = list(dict.fromkeys(compared["arm"]))
    if not results.study.tune:
        return arms
    tried = set(results.runs.loc[results.runs["stage"] == "tune", "arm"])
    on_grid = {
        arm
        for arm, runs in compared.groupby("arm")
        if all(runs[field].isin(values).all() for field, values in results.study.tune.items())
    }
    return [arm for arm in arms if arm not in tried & on_grid]
