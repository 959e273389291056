"""The verdicts and the figures in wandb, as one more run of the study's group."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from variants.ablation import table
from variants.ablation.compare import Comparison
from variants.ablation.plan import Plan
from variants.training.folder import Folder
from variants.training.tracking import Tracking

JOB = "verdict"


def track(plan: Plan, comparison: Comparison, folder: Path, pictures: Mapping[str, bytes]) -> None:
    """Log a comparison where the study's runs are logged, if they are.

    Args:
        plan: Of the study.
        comparison: What it shows.
        folder: Where the run's files go.
        pictures: The figures as PNG, by name.
    """
    if plan.baseline.config is None:
        return
    study = comparison.study
    named = {"group": study.name, "job_type": JOB, "name": f"{study.name}/{JOB}"}
    tracker = plan.baseline.config["tracker"]
    asked = {"question": study.question, "prediction": study.prediction, "metric": comparison.metric}
    tracking = Tracking({**tracker, **named}, {**asked, "notes": "\n".join(comparison.notes)}, Folder(folder))
    tracking.start()
    tables = {"verdicts": table.verdicts(comparison)}
    if comparison.effects:
        tables["effects"] = table.effects(comparison)
    tracking.show({name: _plain(frame) for name, frame in tables.items()}, pictures)
    tracking.finish(0)


def _plain(frame: pd.DataFrame) -> tuple[list[str], list[list[str]]]:
    return list(frame.columns), frame.astype(str).to_numpy().tolist()
