"""The trained models on other data, such as longer sequences: the metric at each evaluation, an arm a line."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from variants.ablation.compare import Comparison
from variants.ablation.report.style import canvas, legend, looks, styled
from variants.ablation.results import Results

TRAINED = "as trained"


def table(comparison: Comparison, results: Results) -> pd.DataFrame | None:
    """The metric's mean over the seeds, a row an arm and a column an evaluation; None: nothing was evaluated.

    An arm that could not be evaluated, or diverged, has NaN.
    """
    spread = _by_evaluation(comparison, results)
    if spread is None:
        return None
    return pd.DataFrame({name: values.mean() for name, values in spread.items()}).reindex(comparison.arms)


def evaluations(comparison: Comparison, results: Results) -> Figure | None:
    """The means, with the range of the seeds; None: nothing was evaluated."""
    spread = _by_evaluation(comparison, results)
    if spread is None:
        return None
    figure, (axes,) = canvas(7.5, 3.4)
    with styled():
        places = np.arange(len(spread))
        for arm, look in looks(comparison.arms).items():
            low, mean, high = (
                np.array([v.agg(how).get(arm, np.nan) for v in spread.values()]) for how in ("min", "mean", "max")
            )
            spans = [mean - low, high - mean]
            axes.errorbar(places, mean, spans, color=look.colour, fmt=look.marker, linestyle=look.line, label=arm)
        axes.set_xticks(places, list(spread))
        axes.set_ylabel(results.study.metric)
        axes.margins(x=0.08)
    legend(figure, axes, comparison.arms)
    return figure


def _by_evaluation(comparison: Comparison, results: Results) -> dict[str, pd.core.groupby.SeriesGroupBy] | None:
    """The metric in each evaluation, grouped by arm."""
    metric = results.study.metric
    names = {TRAINED: metric, **{name: f"{name}/{metric}" for name in results.study.evaluate}}
    runs = results.compared()
    runs = runs[~runs["diverged"]]
    found = {name: runs.groupby("arm")[column] for name, column in names.items() if column in runs}
    return found if len(found) > 1 else None
