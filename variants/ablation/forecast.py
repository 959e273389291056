"""What a study will cost, before it runs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from statistics import median
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from rich.text import Text

from variants import slots
from variants.ablation.plan import Arm, Plan, Run
from variants.training.folder import Folder
from variants.training.metrics import read_metrics

SHARE = 0.3  # of a matrix product's speed that training is assumed to reach


def show(plan: Plan, todo: Sequence[Run], at_once: int, console: Console) -> None:
    """Print arms, runs, costs, what was matched, and the time that it will take.

    Args:
        plan: The study's; its problems are shown as well.
        todo: The runs that are not done.
        at_once: Runs at a time.
        console: Where.
    """
    study = plan.study
    table = Table(box=None)
    for column in ("arm", "parameters", "FLOPs/token", "matched"):
        number = column in ("parameters", "FLOPs/token")
        table.add_column(column, justify="right" if number else "left", no_wrap=not number)
    for arm in plan.arms:
        name = f"{arm.name} (baseline)" if arm.name == study.baseline else arm.name
        costs = [f"{arm.parameters.total:,}" if arm.parameters else "", f"{arm.flops_per_token or 0:,}"]
        table.add_row(name, *costs, _matched(arm))
    console.print(table)
    console.print(f"\nwhat becomes different from {study.baseline}:")
    for arm in plan.arms:
        if arm.problem or arm.name != study.baseline:
            console.print(Text(f"  {arm.name}: {_effect(arm)}"), soft_wrap=True)
    console.print()
    tune, main = len(plan.tune_runs()), len(plan.main_runs())
    tuning = f"{tune} runs tune ({len(plan.settings)} settings an arm), " if tune else ""
    console.print(f"{tuning}{main} runs are compared (seeds {', '.join(map(str, study.seeds))})")
    console.print(f"{len(todo)} of {tune + main} are left to do", soft_wrap=True)
    if todo:
        seconds, basis = estimate(plan, todo)
        console.print(f"about {_duration(seconds / at_once)} at {at_once} at a time, {basis}", soft_wrap=True)


def estimate(plan: Plan, todo: Sequence[Run]) -> tuple[float, str]:
    """Seconds that runs take one after the other, and what that stands on."""
    work = {arm.name: _flops_of(arm) for arm in plan.arms if arm.config}
    speeds = [speed for run in [*plan.tune_runs(), *plan.main_runs()] if (speed := _speed(plan, run))]
    if speeds:
        return sum(work[run.arm] for run in todo) / median(speeds), f"by the speed of {len(speeds)} runs that are there"
    speed = SHARE * _matrix_speed()
    basis = f"if training reaches {SHARE:.0%} of the {speed / SHARE / 1e9:,.0f} GFLOP/s of a matrix product here"
    return sum(work[run.arm] for run in todo) / speed, basis


def _flops_of(arm: Arm) -> float:
    assert arm.config is not None
    assert arm.flops_per_token is not None
    data: Any = slots.data.build(arm.config["data"])
    trainer = arm.config["trainer"]
    tokens = data.batch_size * data.length * trainer["accumulate_grad_batches"] * trainer["max_steps"]
    return float(arm.flops_per_token * tokens)


def _speed(plan: Plan, run: Run) -> float | None:
    """FLOPs a second of a run that is there."""
    rows = read_metrics(Folder(run.folder).metrics)
    seen = [row["tokens_per_second"] for row in rows[1:] if "tokens_per_second" in row]
    flops = plan[run.arm].flops_per_token
    return median(seen) * flops if seen and flops else None


def _matrix_speed(size: int = 512, seconds: float = 0.2) -> float:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    a = torch.ones(size, size, device=device)
    float((a @ a)[0, 0])
    count, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        float((a @ a)[0, 0])  # waits for the device
        count += 1
    return 2 * size**3 * count / (time.perf_counter() - began)


def _matched(arm: Arm) -> str:
    if arm.matched is None:
        return ""
    solved = "" if arm.matched.value is None else f"{arm.matched.field.rpartition('.')[2]}={arm.matched.value}, "
    return f"{solved}{arm.matched.residual:+.2%}"


def _effect(arm: Arm) -> str:
    if arm.problem:
        return f"cannot run: {arm.problem}"
    lines = [*arm.effect[:3], *([f"and {len(arm.effect) - 3} more"] if len(arm.effect) > 3 else [])]
    return "; ".join([*(lines or ["nothing"]), *arm.without_effect])


def _duration(seconds: float) -> str:
    """A time in words.

    >>> _duration(40), _duration(400), _duration(40_000)
    ('40 s', '7 min', '11.1 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
