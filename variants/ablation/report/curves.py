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
            runs_of_arm = [(f, c[by].to_numpy(float), c[metric].to_numpy(float)) for f, c in of_arm.groupby("folder")]
            whole = [(x, y) for folder, x, y in runs_of_arm if folder not in diverged]
            settled += [_draw_band(axes, arm, look, whole)] if whole else []
            for _, x, y in [run for run in runs_of_arm if run[0] in diverged]:
                axes.plot(x, y, color=look.colour, linewidth=0.8, linestyle=":", label=None if whole else arm)
                axes.plot(x[-1], y[-1], "x", color=look.colour)
                whole = whole or [(x, y)]  # the arm is named once
        axes.set_xlabel(BUDGETS[by])
        axes.locator_params(axis="x", nbins=5)
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        if settled:
            low, high = min(low for low, _ in settled), max(high for _, high in settled)
            room = 0.06 * (high - low) or 0.05
            axes.set_ylim(low - room, high + room)


def band(runs: list[tuple[Array, Array]]) -> tuple[Array, Array]:
    """The curves of some runs at the points that any of them has and all of them span.

    Returns:
        The points, and the values (runs, points).
    """
    first, last = max(x[0] for x, _ in runs), min(x[-1] for x, _ in runs)
    points = np.unique(np.concatenate([x for x, _ in runs]))
    points = points[(points >= first) & (points <= last)]
    return points, np.stack([np.interp(points, x, y) for x, y in runs])


def _draw_band(axes: Axes, arm: str, look: Look, runs: list[tuple[Array, Array]]) -> tuple[float, float]:
    """Draw an arm, and say between which values it is once it has settled."""
    points, values = band(runs)
    axes.plot(points, values.mean(axis=0), color=look.colour, linestyle=look.line, label=arm)
    if len(values) > 1:
        axes.fill_between(points, values.min(0), values.max(0), color=look.colour, alpha=0.15, linewidth=0)
    late = values[:, points >= SETTLED * points[-1]] if len(points) > 4 else values
    return (float(late.min()), float(late.max())) if late.size else (np.inf, -np.inf)


def _compared(results: Results) -> pd.DataFrame:
    return results.curves[results.curves["folder"].isin(results.compared()["folder"])]
