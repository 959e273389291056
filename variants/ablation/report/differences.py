"""The difference from the baseline while the arms trained, within each seed: what curves on top of each other hide."""

from __future__ import annotations

import math

from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from variants.ablation.compare import Comparison
from variants.ablation.report.curves import SETTLED, shared
from variants.ablation.report.style import canvas, legend, looks, styled
from variants.ablation.results import Results
from variants.ablation.statistics import LEVEL, t_quantile


def differences(comparison: Comparison, results: Results, metric: str) -> Figure | None:
    """The mean paired difference over tokens, with the 95% interval of each point; None where no seed has two arms."""
    figure, (axes,) = canvas(10, 3.2)
    runs = results.compared()
    table = results.curves[results.curves["folder"].isin(runs.loc[~runs["diverged"], "folder"])]
    of = dict(iter(table.dropna(subset=[metric, "tokens"]).groupby(["arm", "seed"])))
    late: list[float] = []
    with styled():
        axes.axhline(0, color="#222222", linewidth=1)
        for arm, look in list(looks(comparison.arms).items())[1:]:
            seeds = [s for s in comparison.seeds if (arm, s) in of and (comparison.baseline, s) in of]
            if not seeds:
                continue
            both = [(of[arm, s]["folder"].iloc[0], of[comparison.baseline, s]["folder"].iloc[0]) for s in seeds]
            values = shared(table[table["folder"].isin([folder for pair in both for folder in pair])], metric, "tokens")
            if values.empty:
                continue
            points = values.index.to_numpy(float)
            own, other = (values[list(folders)].to_numpy() for folders in zip(*both, strict=True))
            paired = own - other
            mean = paired.mean(axis=1)
            axes.plot(points, mean, color=look.colour, linestyle=look.line, label=arm)
            seen = points >= SETTLED * points[-1] if len(points) > 4 else points >= 0
            late += mean[seen].tolist()
            if len(seeds) > 2:
                half = t_quantile(1 - LEVEL / 2, len(seeds) - 1) * paired.std(axis=1, ddof=1) / math.sqrt(len(seeds))
                axes.fill_between(points, mean - half, mean + half, color=look.colour, alpha=0.15, linewidth=0)
                late += [*(mean - half)[seen], *(mean + half)[seen]]
        if not late:
            return None
        low, high = min(*late, 0.0), max(*late, 0.0)
        room = 0.06 * (high - low) or 0.05
        axes.set_ylim(low - room, high + room)
        axes.set_xlabel("tokens")
        axes.set_ylabel(f"{metric} minus {comparison.baseline}'s")
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    legend(figure, axes, comparison.arms)
    return figure
