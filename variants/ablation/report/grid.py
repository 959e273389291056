"""What tuning tried: the metric of every arm at every point of the grid, and the point that it was compared with."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from matplotlib.figure import Figure

from variants.ablation import tuning
from variants.ablation.levels import text
from variants.ablation.report.style import canvas, legend, looks, styled
from variants.ablation.results import Results


def points(results: Results, arms: Sequence[str]) -> pd.DataFrame:
    """The grid as text, a row an arm and a column a point; the point that the arm was compared with is marked.

    Args:
        results: With runs that tuned.
        arms: All arms, in the order that they shall have.
    """
    table, fields = tuning.grid(results), list(results.study.tune)
    table = table.sort_values("arm", kind="stable", key=lambda names: names.map(list(arms).index))
    chosen = results.compared().groupby("arm")[fields].last()
    asked = [(row["arm"], row[fields]) for _, row in table.iterrows()]
    picked = [arm in chosen.index and bool((chosen.loc[arm] == setting).all()) for arm, setting in asked]
    values = [
        ("diverged" if pd.isna(mean) else f"{mean:.4f}") + (" (chosen)" if is_chosen else "")
        for mean, is_chosen in zip(table["mean"], picked, strict=True)
    ]
    points = [", ".join(f"{field}={text(value)}" for field, value in setting.items()) for _, setting in asked]
    made = pd.DataFrame({"arm": table["arm"], "point": points, "value": values})
    made = made.pivot_table(index="arm", columns="point", values="value", aggfunc="last", sort=False).fillna("")
    return made.rename_axis(columns=None).reset_index()


def grid(results: Results, arms: list[str]) -> Figure | None:
    """A curve an arm over the field that was tuned; None where several were, or what was tried is no number."""
    table, fields = tuning.grid(results), list(results.study.tune)
    if len(fields) != 1 or table.empty or not pd.api.types.is_numeric_dtype(table[fields[0]]):
        return None
    field = fields[0]
    chosen = results.compared().groupby("arm")[field].last()
    figure, (axes,) = canvas(7.5, 3.4)
    with styled():
        for arm, look in looks(arms).items():
            tried = table[(table["arm"] == arm) & table["mean"].notna()].sort_values(field)
            if tried.empty:
                continue
            axes.plot(tried[field], tried["mean"], look.marker, color=look.colour, linestyle=look.line, label=arm)
            best = tried[tried[field] == chosen.get(arm)]
            axes.plot(best[field], best["mean"], "o", color=look.colour, markersize=12, fillstyle="none")
        values = sorted(set(table[field]))
        if values[0] > 0:
            axes.set_xscale("log")
        axes.set_xticks(values, [f"{value:g}" for value in values])
        axes.minorticks_off()
        axes.set_xlabel(field)
        axes.set_ylabel(results.study.metric)
    legend(figure, axes, arms)
    return figure
