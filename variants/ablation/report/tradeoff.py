"""Quality against cost: each arm a point, over what it takes to have it."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from variants.ablation.compare import Comparison
from variants.ablation.match import TOLERANCE
from variants.ablation.report.style import canvas, legend, looks, styled


def tradeoff(comparison: Comparison, benchmark: pd.DataFrame | None) -> Figure | None:
    """The metric over parameters, operations a token, time and memory; None where arms are known to differ in none.

    The time is the benchmark's; without one it is left out, since runs that share a machine slow each other.
    """
    costs = {
        "parameters": comparison.costs["parameters"],
        "FLOPs per token": comparison.costs["flops_per_token"],
    }
    if benchmark is not None:
        costs["step time over the baseline's"] = benchmark["step_ratio"]
        costs["peak memory over the baseline's"] = benchmark["memory_ratio"]
    costs = {name: values.reindex(comparison.arms) for name, values in costs.items() if _differ(values)}
    if not costs:
        return None
    figure, panels = canvas(10 if len(costs) > 2 else 7.5, 3.4, len(costs), sharey=True)
    with styled():
        for axes, (name, values) in zip(panels, costs.items(), strict=True):
            for column, (arm, look) in enumerate(looks(comparison.arms).items()):
                there = comparison.values[:, column][~np.isnan(comparison.values[:, column])]
                if not len(there) or np.isnan(values[arm]):
                    continue
                spread = [[there.mean() - there.min()], [there.max() - there.mean()]]
                axes.errorbar(
                    values[arm], there.mean(), spread, color=look.colour, fmt=look.marker, elinewidth=1, label=arm
                )
            axes.set_xlabel(name)
            axes.margins(x=0.15)
            axes.locator_params(axis="x", nbins=4)
            axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        panels[0].set_ylabel(comparison.metric)
    legend(figure, panels[0], comparison.arms)
    return figure


def _differ(values: pd.Series[float]) -> bool:
    """Whether arms differ by more than matching leaves."""
    return bool(values.max() - values.min() > 2 * TOLERANCE * values.max())
