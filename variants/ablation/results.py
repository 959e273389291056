"""What a study's runs came to, from their folders alone: a table with a row a run, and one of their curves."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from variants import config as configs
from variants.ablation import study as studies
from variants.ablation.plan import Arm, Plan, plan
from variants.ablation.study import Study
from variants.errors import ConfigError
from variants.training.files import write
from variants.training.folder import Folder
from variants.training.metrics import read_metrics

FILE = "results.csv"
NUMBERED = ("step", "tokens")
RUN = re.compile(r"(main|tune)(?:-.+)?-(\d+)")


@dataclass(frozen=True)
class Results:
    """What there is of a study.

    Attributes:
        study: The study.
        runs: A row a run: study, arm, a column an axis, stage, seed, a column a tuned field, state, step, diverged,
            stale (of another version of the study: shown, but not compared), parameters, non_embedding,
            flops_per_token, tokens, flops, seconds (of training, validation excepted), kernel, the last value of each
            metric, of each evaluation as ``name/metric``, identity, folder.
        curves: A row a logged step: arm, stage, seed, folder, step, tokens, flops, seconds and the metrics.
        warnings: What is wrong with what is there, a line each.
    """

    study: Study
    runs: pd.DataFrame
    curves: pd.DataFrame
    warnings: tuple[str, ...]

    @property
    def metrics(self) -> list[str]:
        """The metrics that some run logged, evaluations included."""
        first = list(self.runs.columns).index("kernel") + 1
        return [name for name in self.runs.columns[first:] if name not in ("identity", "folder")]

    def compared(self) -> pd.DataFrame:
        """The runs of the comparison, those of another version left out."""
        return self.runs[(self.runs["stage"] == "main") & ~self.runs["stale"]]


def load(study: Study | str | Path, planned: Plan | None = None, config_dir: str | Path | None = None) -> Results:
    """Read the folders of a study's runs, or its ``results.csv`` where there are none.

    Args:
        study: The study, or its folder.
        planned: Its plan, if it is made already.
        config_dir: The user's folder of config files.

    Raises:
        ConfigError: The study itself is wrong; what is wrong with its runs is a warning.
    """
    study = study if isinstance(study, Study) else studies.load(study)
    planned = planned or plan(study, config_dir=config_dir)
    if (study.folder / "runs").is_dir() or not (study.folder / FILE).is_file():
        return _Reader(planned).read()
    return _committed(planned)


def save(results: Results) -> Path:
    """Write ``results.csv``; rows of an older one whose runs are gone stay.

    Returns:
        The file.
    """
    path = results.study.folder / FILE
    table = results.runs
    if path.is_file():
        old = pd.read_csv(path)
        gone = old[~old["folder"].isin(table["folder"])]
        table = pd.concat([table, gone], ignore_index=True) if len(gone) else table
    write(path, table.to_csv(index=False, lineterminator="\n"))
    return path


def _committed(planned: Plan) -> Results:
    """The results that a study keeps in one file."""
    path = planned.study.folder / FILE
    try:
        runs = pd.read_csv(path, dtype={"arm": str, "kernel": str, **dict.fromkeys(planned.study.axes, str)})
        if missing := {"arm", "stage", "seed", "state", "diverged", "stale", "folder"} - set(runs.columns):
            raise ValueError(f"it lacks {', '.join(sorted(missing))}")
    except (ValueError, OSError) as error:
        return Results(planned.study, _frame(planned, []), pd.DataFrame(), (f"{path}: {str(error).splitlines()[0]}",))
    names = {arm.name for arm in planned.arms}
    strangers = sorted(set(runs["arm"]) - names)
    warnings = [f"{path}: {', '.join(strangers)}: no arm of the study any more; left out"] if strangers else []
    runs["stale"] |= ~runs["arm"].isin(names)
    return Results(planned.study, runs, pd.DataFrame(columns=["arm", "stage", "seed", "folder"]), tuple(warnings))


class _Reader:
    """Reads every run's folder, and notes what is wrong with it."""

    def __init__(self, planned: Plan) -> None:
        self.plan, self.study = planned, planned.study
        self.warnings: list[str] = []
        self.versions: dict[str, list[str]] = {}  # how a config differs from the plan's, and the runs where it does
        self.curves: list[pd.DataFrame] = []

    def read(self) -> Results:
        rows = []
        arms = {arm.slug: arm for arm in self.plan.arms}
        for folder in sorted(self.study.folder.glob("runs/*/*/")):
            place = folder.relative_to(self.study.folder)
            named = RUN.fullmatch(folder.name)
            if folder.parent.name not in arms:
                self.warnings.append(f"{place}: belongs to no arm of the study; left out")
            elif named is None:
                self.warnings.append(f"{place}: is no run's folder; left out")
            else:
                rows.append(self._row(arms[folder.parent.name], named[1], int(named[2]), Folder(folder)))
        for change, places in self.versions.items():
            runs = "is a run" if len(places) == 1 else "are runs"
            self.warnings.append(f"{', '.join(places)}: {runs} of another version of the config ({change}); left out")
        curves = pd.concat(self.curves, ignore_index=True) if self.curves else _no_curves()
        return Results(self.study, _frame(self.plan, rows), curves, tuple(self.warnings))

    def _row(self, arm: Arm, stage: str, seed: int, folder: Folder) -> dict[str, Any]:
        place = str(folder.path.relative_to(self.study.folder))
        row = {"study": self.study.name, "arm": arm.name, **arm.factors, "stage": stage, "seed": seed, "stale": False}
        row |= _cost(arm)
        state, curve = "damaged", pd.DataFrame()
        try:
            noted = folder.noted()
            state, row["step"] = noted["state"], noted["step"]
            curve = _curve(read_metrics(folder.metrics), arm)
            row |= _last(curve) | {"diverged": _diverged(noted["state"], curve)}
            row |= {**_effective(folder), **_evaluations(folder.path)}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            self.warnings.append(
                f"{place}: is damaged ({type(error).__name__}: {str(error).splitlines()[0]}); left out"
            )
            state = "damaged"
        row["state"] = state
        row |= self._version(arm, stage, seed, folder, place)
        if seed not in (self.study.seeds if stage == "main" else self.study.tune_seeds):
            row["stale"] = True
            self.warnings.append(f"{place}: {seed} is not among the study's seeds; left out")
        if len(curve) and state != "damaged":
            self.curves.append(curve.assign(arm=arm.name, stage=stage, seed=seed, folder=place))
        return row | {"folder": place}

    def _version(self, arm: Arm, stage: Any, seed: int, folder: Folder, place: str) -> dict[str, Any]:
        """A run's identity, what it was tuned to, and whether the study would run the same now."""
        if not folder.config.is_file():
            return {}
        try:
            config = configs.load(folder.config)
        except ConfigError as error:
            self.versions.setdefault(error.problems[0].removeprefix(f"{folder.config}: "), []).append(place)
            return {"stale": True}
        flat = configs.flatten(config)
        setting = {field: flat[field] for field in self.study.tune if field in flat}
        found = {**setting, "identity": configs.identity(config)}
        if arm.config is None:
            return found
        expected = self.plan.run(arm, seed, stage, setting)
        if expected.identity == found["identity"]:
            return found
        changes = configs.departures(expected.config, config)
        lines = configs.changed((n, c) for n, c in changes.items() if n != "folder" and not n.startswith("tracker."))
        more = f" and {len(lines) - 3} more" if len(lines) > 3 else ""
        self.versions.setdefault("; ".join(lines[:3]) + more, []).append(place)
        return {**found, "stale": True}


def _cost(arm: Arm) -> dict[str, Any]:
    if arm.parameters is None:
        return {}
    total, non_embedding, _ = arm.parameters
    return {"parameters": total, "non_embedding": non_embedding, "flops_per_token": arm.flops_per_token}


def _curve(rows: list[dict[str, float]], arm: Arm) -> pd.DataFrame:
    """A run's metrics, with its operations and its seconds of training so far."""
    seconds, timed = 0.0, 0.0
    for row in rows:
        if row.get("tokens_per_second"):
            seconds += (row["tokens"] - timed) / row["tokens_per_second"]
            timed = row["tokens"]
        row |= {"flops": row["tokens"] * (arm.flops_per_token or math.nan), "seconds": seconds}
    return pd.DataFrame(rows)


def _last(curve: pd.DataFrame) -> dict[str, Any]:
    """The last value of each column."""
    return {
        str(name): values.dropna().iloc[-1] for name, values in curve.items() if name != "step" and values.notna().any()
    }


def _diverged(state: str, curve: pd.DataFrame) -> bool:
    """Whether a run diverged: a rule fixed in advance, and blind to the arm.

    It met a number that is not finite, or has ended with a loss that is not below its first one.
    """
    if state != "finished" or "train/loss" not in curve:
        return state == "diverged"
    first = curve["train/loss"].dropna().iloc[0]
    final = curve["val/loss" if "val/loss" in curve else "train/loss"].iloc[-1]
    return not final < first


def _effective(folder: Folder) -> dict[str, str]:
    if not folder.effective.is_file():
        return {}
    kernels = json.loads(folder.effective.read_text())["effective"]["kernel"]
    return {"kernel": ", ".join(sorted(set(kernels.values())))}


def _evaluations(folder: Path) -> dict[str, float]:
    from variants.ablation.evaluate import read  # beside what trains, which this module does not need

    made = read(folder).items()
    return {f"{n}/{m}": v for n, metrics in made for m, v in metrics.items() if isinstance(v, int | float)}


def _frame(planned: Plan, rows: Iterable[dict[str, Any]]) -> pd.DataFrame:
    """The rows as a table whose leading columns are always there."""
    study = planned.study
    leading = ["study", "arm", *study.axes, "stage", "seed", *(f for f in study.tune if f not in study.axes)]
    leading += ["state", "step", "diverged", "stale", "parameters", "non_embedding", "flops_per_token"]
    leading += ["tokens", "flops", "seconds", "kernel"]
    table = pd.DataFrame(list(rows))
    own = [name for name in table.columns if name not in (*leading, "identity", "folder")]
    table = table.reindex(columns=[*leading, *own, "identity", "folder"])
    flags = {name: table[name].map(lambda value: value is True or value == True) for name in ("diverged", "stale")}  # noqa: E712
    return table.assign(**{name: flag.astype(bool) for name, flag in flags.items()})


def _no_curves() -> pd.DataFrame:
    return pd.DataFrame(columns=["arm", "stage", "seed", "folder", "step", "tokens", "flops", "seconds"])
