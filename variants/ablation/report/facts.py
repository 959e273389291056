"""What a page says of arms and runs beside their results, as tables of text."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterator
from importlib import metadata
from typing import Any

import pandas as pd

from variants import __version__
from variants import config as configs
from variants.ablation.levels import text
from variants.ablation.plan import Arm, Plan
from variants.ablation.results import Results
from variants.training.folder import Folder

PACKAGES = ("torch", "lightning", "numpy", "scipy", "matplotlib", "wandb")


def arms(plan: Plan) -> pd.DataFrame:
    """What each arm sets, costs and was matched by."""
    return pd.DataFrame([_arm(arm, plan) for arm in plan.arms]).fillna("")


def _arm(arm: Arm, plan: Plan) -> dict[str, str]:
    sets = "; ".join(f"{field}={text(value)}" for field, value in arm.overrides)
    name = f"{arm.name} (baseline)" if arm.name == plan.study.baseline else arm.name
    row = {"arm": name, "sets": sets}
    if arm.parameters is not None:
        row |= {"parameters": f"{arm.parameters.total:,}", "non-embedding": f"{arm.parameters.non_embedding:,}"}
        row |= {"FLOPs/token": f"{arm.flops_per_token:,}"}
    if arm.matched is not None:
        solved = "" if arm.matched.value is None else f"{arm.matched.field}={arm.matched.value}, "
        row["matched"] = f"{solved}{arm.matched.residual:+.2%} of the baseline's"
    return row


def settings(results: Results) -> pd.DataFrame:
    """What was requested of the runs beside what took effect, and in which arms; empty where the folders are gone."""
    seen: dict[tuple[str, str, str], list[str]] = {}
    there = []
    for arm, folders in results.compared().groupby("arm", sort=False)["folder"]:
        for folder in folders:
            noted = _json(results, folder)
            there += [arm] if noted and arm not in there else []
            for name in dict.fromkeys([*noted.get("requested", {}), *noted.get("effective", {})]):
                asked, done = (_plain(noted.get(kind, {}).get(name)) for kind in ("requested", "effective"))
                arms_of = seen.setdefault((name, asked, done), [])
                arms_of += [arm] if arm not in arms_of else []
    rows = [
        {"setting": n, "requested": asked, "effective": done, "in": "all arms" if a == there else ", ".join(a)}
        for (n, asked, done), a in sorted(seen.items(), key=lambda item: list(seen).index(item[0]))
    ]
    return pd.DataFrame(rows, columns=["setting", "requested", "effective", "in"]).sort_values("setting", kind="stable")


def _json(results: Results, folder: str) -> dict[str, Any]:
    try:
        read: dict[str, Any] = json.loads(Folder(results.study.folder / folder).effective.read_text("utf-8"))
    except (OSError, ValueError):  # gone or damaged, which the results say themselves
        return {}
    return read


def _plain(value: Any) -> str:
    """A setting in words; of one that each module has, the different ones."""
    if value is None or value == []:
        return "-"
    if isinstance(value, dict):
        return text(value) if "name" in value else ", ".join(sorted({str(v) for v in value.values()})) or "-"
    return "; ".join(map(str, value)) if isinstance(value, list) else str(value)


def runs(results: Results) -> pd.DataFrame:
    """Every run, stale and damaged ones among them."""
    metric, table = results.study.metric, results.runs
    numbers = table[metric] if metric in table else pd.Series(float("nan"), table.index)
    shown = {
        "arm": table["arm"],
        "stage": table["stage"],
        "seed": table["seed"].astype(str),
        **{field: table[field].map(_cell) for field in results.study.tune if field in table},
        "state": [_state(row) for _, row in table.iterrows()],
        "step": table["step"].map(_cell),
        metric: numbers.map(lambda v: "" if pd.isna(v) else f"{v:.4f}"),
        "seconds": table["seconds"].map(lambda v: "" if pd.isna(v) else f"{v:.0f}"),
        "identity": table["identity"].map(_cell),
    }
    return pd.DataFrame(shown)


def _state(run: pd.Series[Any]) -> str:
    said = "diverged" if run["diverged"] else str(run["state"])
    return f"{said}, of another version" if run["stale"] else said


def _cell(value: Any) -> str:
    return "" if pd.isna(value) else f"{value:g}" if isinstance(value, float) else str(value)


def diverged(results: Results) -> pd.DataFrame:
    """The runs that diverged, with the step and what their folders say."""
    table = results.runs[results.runs["diverged"] & ~results.runs["stale"]]
    rows = []
    for _, run in table.iterrows():
        try:
            said = Folder(results.study.folder / run["folder"]).noted()["message"]
        except (OSError, ValueError, KeyError):
            said = None
        why = said or ("its last loss is not below its first" if run["state"] == "finished" else "")
        rows.append([run["arm"], run["stage"], str(run["seed"]), _cell(run["step"]), why])
    return pd.DataFrame(rows, columns=["arm", "stage", "seed", "step", "why"])


def run_configs(results: Results, plan: Plan) -> Iterator[tuple[str, str]]:
    """Each run's folder and its config as YAML; where the folders are gone, each arm's as it is planned."""
    found = False
    for folder in results.runs["folder"]:
        file = Folder(results.study.folder / str(folder)).config
        if file.is_file():
            found = True
            yield str(folder), file.read_text("utf-8", errors="replace")
    for arm in plan.arms if not found else ():
        if arm.config is not None:
            yield f"{arm.name}, as planned", configs.to_text(arm.config)


def versions() -> dict[str, str]:
    """Of what made the page."""
    found = {"variants": __version__, "Python": platform.python_version()}
    for name in PACKAGES:
        found[name] = metadata.version(name)
    return found
