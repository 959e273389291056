"""The metric while the arms trained: each arm's mean over its seeds, and the range that the seeds span."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter
from numpy.typing import NDArray

from variants.ablation.compare import Comparison
from variants.ablation.report.style import Look, canvas, legend, looks, styled
from variants.ablation.results import Results

BUDGETS = {"tokens": "tokens", "flops": "FLOPs", "seconds": "seconds of training"}
SETTLED = 0.4  # the share of the budget after which what is drawn must be in view
Array = NDArray[np.float64]


def metric_of(comparison: Comparison, results: Results) -> str | None:
    """The metric that is drawn: the one compared where runs logged it along the way, else a loss; None: there is none.

    An evaluation, for one, is made only at the end.
    """
    curves = _compared(results)
    for name in dict.fromkeys((comparison.metric, "val/loss", "train/loss")):
        if name in curves and curves.dropna(subset=[name]).groupby("folder").size().max() > 1:
            return name
    return None


def curves(comparison: Comparison, results: Results, metric: str) -> Figure:
    """A metric over tokens, operations and time."""
    figure, panels = canvas(10, 3.6, len(BUDGETS), sharey=True)
    for axes, by in zip(panels, BUDGETS, strict=True):
        draw(axes, comparison, results, metric, by)
    panels[0].set_ylabel(metric)
    legend(figure, panels[0], comparison.arms)
    return figure


def draw(axes: Axes, comparison: Comparison, results: Results, metric: str, by: str) -> None:
    """Draw every arm's curve over one budget; a run that diverged alone, up to a cross."""
    runs = results.compared()
    diverged = set(runs.loc[runs["diverged"], "folder"])
    settled = []
    with styled():
        table = _compared(results)
        for arm, look in looks(comparison.arms).items():
            of_arm = table[table["arm"] == arm].dropna(subset=[metric, by])
            whole, cut = (of_arm[of_arm["folder"].isin(diverged) == bad] for bad in (False, True))
            points, values = shared(whole, by), shared(whole, metric).to_numpy()
            if len(points):
                settled.append(_draw_band(axes, arm, look, points.mean(axis=1).to_numpy(), values))
            for i, (_, run) in enumerate(cut.groupby("folder")):
                label = None if i or len(points) else arm  # the arm is named once
                axes.plot(run[by], run[metric], color=look.colour, linewidth=0.8, linestyle=":", label=label)
                axes.plot(run[by].iloc[-1], run[metric].iloc[-1], "x", color=look.colour)
        axes.set_xlabel(BUDGETS[by])
        axes.locator_params(axis="x", nbins=5)
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        if settled:
            low, high = min(low for low, _ in settled), max(high for _, high in settled)
            room = 0.06 * (high - low) or 0.05
            axes.set_ylim(low - room, high + room)


def shared(runs: pd.DataFrame, column: str, index: str = "step") -> pd.DataFrame:
    """A column of some runs' curves, a column a run, at the steps that all of them have.

    By steps, not by seconds: of a machine that was busy for a while, no two runs may have a second in common.
    """
    return runs.pivot_table(index=index, columns="folder", values=column, aggfunc="last").dropna()


def _draw_band(axes: Axes, arm: str, look: Look, points: Array, values: Array) -> tuple[float, float]:
    """Draw an arm's (points, runs), and say between which values it is once it has settled."""
    axes.plot(points, values.mean(axis=1), color=look.colour, linestyle=look.line, label=arm)
    if values.shape[1] > 1:
        axes.fill_between(points, values.min(1), values.max(1), color=look.colour, alpha=0.15, linewidth=0)
    late = values[points >= SETTLED * points[-1]] if len(points) > 4 else values
    return float(late.min()), float(late.max())


def _compared(results: Results) -> pd.DataFrame:
    return results.curves[results.curves["folder"].isin(results.compared()["folder"])]
