"""Time and memory of each arm's step over a field that grows, such as the length."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator, ScalarFormatter

from variants.ablation.report.style import canvas, legend, looks, styled
from variants.ablation.scaling import exponents


def scaling(arms: list[str], table: pd.DataFrame | None) -> Figure | None:
    """Both on logarithmic axes, where a power is a straight line, with each arm's exponent in the legend.

    Args:
        arms: In their order, the baseline first.
        table: What `variants.ablation.scaling.over` measured; None: nothing.
    """
    if table is None:
        return None
    fits = exponents(table).set_index(["arm", "measure"])["exponent"]
    figure, (left, right) = canvas(9, 3.8, 2)
    panels = {"step_seconds": (left, 1000.0, "ms a step"), "peak_bytes": (right, 2.0**-20, "MiB at the peak")}
    shown = [arm for arm in arms if arm in set(table["arm"])]
    names = {arm: f"{arm}: time^{fits[arm, 'time']:.2f}, memory^{fits[arm, 'memory']:.2f}" for arm in shown}
    values = sorted(table["value"].unique())
    with styled():
        for column, (axes, unit, label) in panels.items():
            for arm, look in looks(arms).items():
                measured = table[table["arm"] == arm].sort_values("value")
                line = {"color": look.colour, "marker": look.marker, "linestyle": look.line}
                axes.plot(measured["value"], measured[column] * unit, label=names.get(arm), **line)
            axes.set(xscale="log", yscale="log", xlabel=str(table["field"].iloc[0]), ylabel=label)
            axes.xaxis.set_major_locator(FixedLocator(values))
            axes.xaxis.set_minor_locator(NullLocator())
            axes.xaxis.set_major_formatter(ScalarFormatter())
    legend(figure, left, list(names.values()))
    return figure
