"""What the tuning of a study chose."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import fmean

from variants.ablation import evaluate
from variants.ablation.levels import Fields
from variants.ablation.plan import Run
from variants.training.folder import Folder
from variants.training.metrics import read_metrics


def choose(runs: Iterable[Run], metric: str, better: str) -> dict[str, Fields]:
    """Choose for each arm the point of the grid with the best mean over the seeds of the tuning.

    A point where a run diverged loses to every other; where all did, the first is chosen, and the comparison will say
    what comes of it.

    Args:
        runs: The runs that tuned, done, of whole arms.
        metric: What is judged, at the end of a run.
        better: ``lower`` or ``higher``.

    Returns:
        Arm to the chosen setting.
    """
    sign = 1.0 if better == "lower" else -1.0
    scores: dict[str, list[tuple[Fields, list[float]]]] = {}
    for run in runs:
        points = scores.setdefault(run.arm, [])
        values = next((values for setting, values in points if setting == run.setting), None)
        if values is None:
            points.append((run.setting, values := []))
        values.append(sign * final(run, metric))
    return {arm: min(points, key=lambda point: _mean(point[1]))[0] for arm, points in scores.items()}


def final(run: Run, metric: str) -> float:
    """A metric's last value in a run, or an evaluation's as ``name/metric``; NaN: it diverged, or never logged it."""
    if Folder(run.folder).noted()["state"] == "diverged":
        return math.nan
    latest = {name: value for row in read_metrics(Folder(run.folder).metrics) for name, value in row.items()}
    for name, metrics in evaluate.read(run.folder).items():
        latest |= {f"{name}/{metric}": value for metric, value in metrics.items() if metric != "refused"}
    return latest.get(metric, math.nan)


def _mean(values: Sequence[float]) -> float:
    return fmean(values) if all(map(math.isfinite, values)) else math.inf
