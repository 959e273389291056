"""Differences with their simultaneous intervals, a row each, over the range in which no difference matters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from variants.ablation import table
from variants.ablation.compare import Comparison
from variants.ablation.report.style import JUDGEMENTS, UNDECIDED, canvas, styled
from variants.ablation.statistics import Estimate


@dataclass(frozen=True)
class Row:
    """A difference.

    Attributes:
        name: Of what it is.
        said: The verdict.
        estimate: With its interval; None: there is none.
        seeds: The difference in each seed.
    """

    name: str
    said: str
    estimate: Estimate | None
    seeds: Sequence[float] = ()


def arms(comparison: Comparison) -> list[Row]:
    """Each arm against the baseline."""
    rows = []
    for column, verdict in enumerate(comparison.verdicts, start=1):
        said: str = "no verdict" if verdict.judgement == "none" else verdict.judgement
        estimate = verdict.estimate
        if verdict.judgement == "diverged":  # the seeds that are left are no sample of all
            said, estimate = f"diverged in {verdict.diverged} of {verdict.seeds}", None
        differences = comparison.values[:, column] - comparison.values[:, 0]
        rows.append(Row(verdict.arm, said, estimate, differences[~np.isnan(differences)].tolist()))
    return rows


def effects(comparison: Comparison) -> list[Row]:
    """Each main effect and interaction."""
    words = table.effects(comparison)["verdict"]
    return [Row(e.name, said.split(";")[0], e.estimate) for e, said in zip(comparison.effects, words, strict=True)]


def forest(comparison: Comparison, rows: Sequence[Row], label: str) -> Figure:
    """A figure of the rows alone."""
    figure, (axes,) = canvas(7.5, 0.95 + 0.36 * len(rows))
    draw(axes, comparison, rows, label)
    return figure


def draw(axes: Axes, comparison: Comparison, rows: Sequence[Row], label: str) -> None:
    """Draw the rows, the first at the top."""
    with styled():
        smallest = comparison.study.smallest_effect if comparison.metric == comparison.study.metric else None
        if smallest is not None:
            axes.axvspan(-smallest, smallest, color="#f0f0f0", zorder=0)
        axes.axvline(0, color="#222222", linewidth=1)
        for height, row in enumerate(rows):
            _draw_row(axes, -height, row)
        axes.set_yticks([-i for i in range(len(rows))], [row.name for row in rows])
        axes.set_ylim(-len(rows) + 0.4, 0.6)
        axes.grid(visible=False, axis="y")
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
        axes.locator_params(axis="x", nbins=6)
        axes.set_xlabel(label)
        said = axes.secondary_yaxis("right")
        said.set_yticks([-i for i in range(len(rows))], [row.said for row in rows])
        said.tick_params(length=0)
        said.spines["right"].set_visible(False)


def _draw_row(axes: Axes, height: float, row: Row) -> None:
    colour, marker = JUDGEMENTS.get(row.said.split(" ")[0], UNDECIDED)
    jitter = np.linspace(-0.12, 0.12, len(row.seeds)) if len(row.seeds) > 1 else np.zeros(len(row.seeds))
    axes.plot(row.seeds, height + jitter, "o", color=colour, alpha=0.4, markersize=3, markeredgewidth=0)
    if row.estimate is None:
        return
    if row.estimate.df:
        axes.plot([row.estimate.low, row.estimate.high], [height, height], color=colour, linewidth=2.2)
    axes.plot(row.estimate.difference, height, marker, color=colour, markersize=7, markeredgecolor="white")
