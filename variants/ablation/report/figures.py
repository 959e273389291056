"""Which figures a study has, and the one that stands for it."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from variants.ablation.compare import Comparison
from variants.ablation.report import curves, differences, evaluations, forest, grid, scaling, tradeoff
from variants.ablation.report.style import canvas, legend
from variants.ablation.results import Results


def figures(
    comparison: Comparison, results: Results, benchmark: pd.DataFrame | None, scaled: pd.DataFrame | None
) -> dict[str, Figure]:
    """Every figure that there are numbers for, by name."""
    metric = curves.metric_of(comparison, results)
    made: dict[str, Any] = {
        "main": main(comparison, results, metric),
        "effects": forest.forest(comparison, forest.arms(comparison), _difference(comparison)),
        "curves": curves.curves(comparison, results, metric) if metric else None,
        "differences": differences.differences(comparison, results, metric) if metric else None,
        "tradeoff": tradeoff.tradeoff(comparison, benchmark),
        "scaling": scaling.scaling(comparison.arms, scaled),
        "evaluations": evaluations.evaluations(comparison, results),
        "tuning": grid.grid(results, comparison.arms),
        "factorial": forest.forest(comparison, forest.effects(comparison), f"effect on {comparison.metric}")
        if comparison.effects
        else None,
    }
    return {name: figure for name, figure in made.items() if figure is not None}


def main(comparison: Comparison, results: Results, metric: str | None) -> Figure:
    """The curves over tokens, and the differences at the end."""
    rows = forest.arms(comparison)
    if metric is None:
        return forest.forest(comparison, rows, _difference(comparison))
    figure, (left, right) = canvas(10, 3.2 + 0.1 * max(0, len(rows) - 6), 2)
    curves.draw(left, comparison, results, metric, "tokens")
    left.set_ylabel(metric)
    forest.draw(right, comparison, rows, _difference(comparison))
    legend(figure, left, comparison.arms)
    return figure


def _difference(comparison: Comparison) -> str:
    return f"{comparison.metric} minus {comparison.baseline}'s"
