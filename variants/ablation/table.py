"""A comparison in words and numbers: for a terminal, as Markdown, as LaTeX and as CSV."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

import pandas as pd
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from variants.ablation.compare import Comparison
from variants.ablation.factorial import Effect
from variants.ablation.speedup import SpeedUp
from variants.ablation.statistics import Verdict

if TYPE_CHECKING:
    from variants.ablation.statistics import Estimate

COLOURS = {"better": "green", "worse": "red", "equivalent": "cyan", "diverged": "magenta"}
DIFFERENCE = "difference (95% interval)"
POWER = ("n", "p", "detectable", "seeds needed")
COSTS = ("parameters", "FLOPs/token", "speed-up", "kernel")
NUMERIC = ("n", "mean", DIFFERENCE, "p", "detectable", "seeds needed", "parameters", "FLOPs/token", "speed-up")


def verdicts(comparison: Comparison) -> pd.DataFrame:
    """The verdicts as text, a row an arm."""
    rows = [_baseline(comparison)]
    for column, verdict in enumerate(comparison.verdicts, start=1):
        rows.append({**_row(verdict), **_cost(comparison, column)})
    table = pd.DataFrame(rows, columns=list(rows[-1])).fillna("")
    return table.drop(columns=[name for name in table.columns if not table[name].any()])


def effects(comparison: Comparison) -> pd.DataFrame:
    """Main effects and interactions as text, a row each."""
    rows = [_effect(effect, comparison.study.better) for effect in comparison.effects]
    return pd.DataFrame(rows, columns=["effect", "n", DIFFERENCE, "p", "verdict"])


def show(comparison: Comparison, console: Console | None = None) -> None:
    """Print a comparison to a terminal, in tables narrow enough for 80 columns."""
    console = console or Console()
    console.print(Text(comparison.study.question, "bold"), Text(f"expected: {comparison.study.prediction}"), sep="\n")
    table = verdicts(comparison)
    console.print(_rich(title(comparison), table.drop(columns=[c for c in (*POWER, *COSTS) if c in table])))
    for heading, columns in (("what the seeds could show", POWER), ("cost", COSTS)):
        console.print(_rich(heading, table[["arm", *(column for column in columns if column in table)]]))
    if comparison.effects:
        console.print(_rich("effects over all arms", effects(comparison).drop(columns=["n"])))
    for note in comparison.notes:
        console.print(f"note: {note}", highlight=False, markup=False)


def title(comparison: Comparison) -> str:
    """What the table compares."""
    at = f" at {_short(comparison.budget)} {comparison.by}" if comparison.by else ""
    seeds = "1 seed" if len(comparison.seeds) == 1 else f"{len(comparison.seeds)} seeds"
    return f"{comparison.metric}{at}, {comparison.study.better} is better; against {comparison.baseline}; {seeds}"


def markdown(comparison: Comparison) -> str:
    """A comparison as Markdown."""
    parts = [f"{title(comparison)}\n\n", _markdown(verdicts(comparison))]
    if comparison.effects:
        parts += ["\n", _markdown(effects(comparison))]
    return "".join(parts) + "".join(f"\n- {note}" for note in comparison.notes) + "\n"


def latex(comparison: Comparison) -> str:
    """A comparison as LaTeX, for booktabs."""
    tables = [verdicts(comparison)] + ([effects(comparison)] if comparison.effects else [])
    notes = "".join(f"% {note}\n" for note in (title(comparison), *comparison.notes))
    return notes + "\n".join(table.to_latex(index=False, escape=True) for table in tables)


FORMATS = ("markdown", "latex", "csv")


def text(comparison: Comparison, form: str) -> str:
    """A comparison in one of `FORMATS`."""
    return {"markdown": markdown, "latex": latex, "csv": csv}[form](comparison)


def csv(comparison: Comparison) -> str:
    """The verdicts as CSV, the numbers in full."""
    rows = []
    for verdict in comparison.verdicts:
        numbers = vars(verdict.estimate) if verdict.estimate else {}
        rows.append(
            {**vars(verdict), **numbers}
            | dict(zip(("diverged_low", "diverged_high"), verdict.diverged_interval, strict=True))
        )
    table = pd.DataFrame(rows).drop(columns=["estimate", "diverged_interval"])
    text: str = table.to_csv(index=False, lineterminator="\n")
    return text


def _baseline(comparison: Comparison) -> dict[str, str]:
    count, seen = int(comparison.diverged[:, 0].sum()), len(comparison.seeds)
    verdict = f"baseline, {count} of {seen} diverged" if count else "baseline"
    n = int((comparison.values[:, 0] == comparison.values[:, 0]).sum())
    return {"arm": comparison.baseline, "n": str(n), "verdict": verdict, **_cost(comparison, 0)}


def _row(verdict: Verdict) -> dict[str, str]:
    said: str = verdict.judgement if verdict.judgement != "none" else "no verdict"
    if verdict.judgement == "diverged":
        low, high = verdict.diverged_interval
        said = f"diverged in {verdict.diverged} of {verdict.seeds} ({low:.2f} to {high:.2f})"
    row = {"arm": verdict.arm, "n": str(verdict.estimate.n if verdict.estimate else 0), "mean": ""}
    row |= {DIFFERENCE: "", "p": ""}
    if verdict.estimate is not None and verdict.judgement != "diverged":
        row |= _numbers(verdict.estimate)
    row |= {"verdict": f"{said}; {verdict.note}" if verdict.note else said}
    return row | {"detectable": _number(verdict.detectable), "seeds needed": _needed(verdict)}


def _numbers(estimate: Estimate) -> dict[str, str]:
    if not estimate.df:
        return {DIFFERENCE: _signed(estimate.difference)}
    interval = f"{_signed(estimate.low)} to {_signed(estimate.high)}"
    p = "<0.0001" if estimate.p < 1e-4 else f"{estimate.p:.4f}"
    return {DIFFERENCE: f"{_signed(estimate.difference)} ({interval})", "p": p}


def _cost(comparison: Comparison, column: int) -> dict[str, str]:
    arm, column_values = comparison.arms[column], comparison.values[:, column]
    there = column_values[column_values == column_values]
    cost = comparison.costs.loc[arm]
    row = {"mean": _number(float(there.mean())) if len(there) else ""}
    row |= {"parameters": _short(float(cost["parameters"])), "FLOPs/token": _short(float(cost["flops_per_token"]))}
    if comparison.speed_ups:
        row["speed-up"] = _speed_up(comparison.speed_ups.get(arm))
    return {**row, "kernel": cost["kernel"] if isinstance(cost["kernel"], str) else ""}


def _effect(effect: Effect, better: str) -> dict[str, str]:
    estimate = effect.estimate
    if not estimate.df:
        said = "no verdict"
    elif estimate.low <= 0 <= estimate.high:
        said = "inconclusive"
    elif len(effect.axes) == 2:
        said = "interact"
    else:
        said = "better" if (estimate.high < 0) == (better == "lower") else "worse"
    if not effect.read_alone:
        said += "; not to be read alone: an interaction is as large"
    return {"effect": effect.name, "n": str(estimate.n), **_numbers(estimate), "verdict": said}


def _needed(verdict: Verdict) -> str:
    """From few seeds, a range."""
    n = verdict.seeds_needed
    if n is None or verdict.estimate is None:
        return ""
    return str(n) if verdict.estimate.n > 10 else f"{max(2, math.ceil(n / 2))} to {2 * n}"


def _speed_up(made: SpeedUp | None) -> str:
    if made is None:
        return ""
    interval = "" if math.isnan(made.low) else f" ({made.low:.2f} to {made.high:.2f})"
    return f"{made.bound} {made.factor:.2f}{interval}".strip()


def _number(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.{_form(value)}}"


def _signed(value: float) -> str:
    """A difference, with its sign; one that four places would hide, in powers of ten.

    >>> _signed(-0.0312), _signed(2.5e-8), _signed(0.0)
    ('-0.0312', '+2.5e-08', '+0.0000')
    """
    return f"{value:+.{_form(value)}}"


def _form(value: float) -> str:
    return "1e" if 0 < abs(value) < 5e-5 else "4f"


def _short(value: float) -> str:
    """A large number, in short.

    >>> _short(1_049_728), _short(500)
    ('1.05M', '500')
    """
    if math.isnan(value):
        return ""
    for size, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"


def _rich(heading: str, frame: pd.DataFrame) -> Table:
    table = Table(title=heading, title_justify="left", box=box.SIMPLE_HEAD)
    for column in frame.columns:
        number = column in NUMERIC
        table.add_column(column, justify="right" if number else "left", no_wrap=number, overflow="fold")
    for row in frame.itertuples(index=False):
        cells = dict(zip(frame.columns, map(str, row), strict=True))
        colour = COLOURS.get(re.split("[; ]", cells.get("verdict", ""))[0], "")
        table.add_row(*(Text(cell, colour if name == "verdict" else "") for name, cell in cells.items()))
    return table


def _markdown(frame: pd.DataFrame) -> str:
    lines = [list(frame.columns), ["---:" if c in NUMERIC else "---" for c in frame.columns]]
    lines += [[str(cell).replace("|", "\\|") for cell in row] for row in frame.itertuples(index=False)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
