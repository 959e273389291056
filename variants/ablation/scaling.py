"""How each arm's time and memory grow with a field of the config, such as the length, and with which exponent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from variants.ablation import bench
from variants.ablation.plan import plan
from variants.ablation.study import Study
from variants.errors import ConfigError
from variants.reading import read_yaml

FILE = "scaling.csv"
MEASURES = {"step_seconds": "time", "peak_bytes": "memory"}


def read(folder: Path) -> pd.DataFrame | None:
    """A study's measurements, a row an arm and value; None: they were not made, or cannot be read."""
    try:
        table = pd.read_csv(folder / FILE, dtype={"arm": str})
    except (OSError, ValueError):
        return None
    return table if {"field", "value", "arm", *MEASURES} <= set(table.columns) else None


def over(
    study: Study,
    field: str,
    values: Sequence[float],
    rounds: int = 20,
    notify: Callable[[str], None] = print,
    config_dir: str | Path | None = None,
) -> pd.DataFrame:
    """Measure the arms at each value of a field, smallest first, and write ``scaling.csv``.

    Args:
        study: The study.
        field: What grows, for all arms alike, over the study's base.
        values: Its values, two or more.
        rounds: How often each arm makes a step that counts, at each value.
        notify: Hears what is being done.
        config_dir: The user's folder of config files.

    Returns:
        What `variants.ablation.bench.measure` gives for each value, with the columns field and value before it.

    Raises:
        ConfigError: The study cannot run at a value, the base sets another, or the folder cannot be written.
    """
    plans = {
        value: plan(replace(study, base=(*study.base, f"{field}={value}")), config_dir=config_dir)
        for value in sorted(values)
    }
    problems = [f"{field}={value}: {problem}" for value, made in plans.items() for problem in made.problems]
    if problems:
        raise ConfigError(problems)
    tables = []
    for value, planned in plans.items():
        notify(f"{field}={value}")
        tables.append(bench.measure(planned, rounds, notify).assign(field=field, value=value))
    table = pd.concat(tables, ignore_index=True)
    table = table[["field", "value", *(name for name in table if name not in ("field", "value"))]]
    bench.save(study.folder / FILE, table)
    return table


def axis(text: str) -> tuple[str, list[float]]:
    """A field and its values, as the command line has them.

    >>> axis("data.length=128,256")
    ('data.length', [128, 256])

    Raises:
        ConfigError: It is not written so.
    """
    field, _, listed = text.partition("=")
    try:
        values: Any = read_yaml(f"values: [{listed}]")["values"]
    except ConfigError:
        values = []
    numbers = [v for v in values if isinstance(v, int | float) and not isinstance(v, bool) and v > 0]
    if "." not in field or len(set(numbers)) < 2 or len(numbers) < len(values):
        raise ConfigError([f"--over {text!r}: expected a field and two numbers or more, data.length=128,256,512"])
    return field, numbers


def exponents(table: pd.DataFrame) -> pd.DataFrame:
    """Fit ``measure = factor * value^exponent`` to each arm, by least squares of the logarithms.

    Returns:
        A row an arm and measure (time, memory): exponent, with its 95% interval low and high (from the scatter about
        the line: NaN where there are two values), and of the two largest values alone last, since a sum of two powers
        bends upwards.
    """
    rows = []
    for arm, measured in table.sort_values("value").groupby("arm", sort=False):
        for column, measure in MEASURES.items():
            x, y = np.log(measured["value"].to_numpy(float)), np.log(measured[column].to_numpy(float))
            fit = stats.linregress(x, y)
            reach = stats.t.ppf(0.975, len(x) - 2) * fit.stderr if len(x) > 2 else np.nan
            last = (y[-1] - y[-2]) / (x[-1] - x[-2])
            row = {"arm": arm, "measure": measure, "exponent": fit.slope, "low": fit.slope - reach}
            rows.append({**row, "high": fit.slope + reach, "last": last})
    return pd.DataFrame(rows)


def shown(table: pd.DataFrame) -> pd.DataFrame:
    """Measurements and exponents as text, a row an arm and measure."""
    columns = {measure: column for column, measure in MEASURES.items()}
    rows = []
    for fit in exponents(table).itertuples():
        measured = table[table["arm"] == fit.arm].sort_values("value")
        values = [_text(fit.measure, value) for value in measured[columns[fit.measure]]]
        interval = "" if np.isnan(fit.low) else f" ({fit.low:.2f} to {fit.high:.2f})"
        row = {"arm": fit.arm, "": fit.measure, **dict(zip(map(str, measured["value"]), values, strict=True))}
        row |= {"exponent (95%)": f"{fit.exponent:.2f}{interval}", "of the last two": f"{fit.last:.2f}"}
        rows.append(row)
    return pd.DataFrame(rows)


def _text(measure: str, value: float) -> str:
    return f"{value * 1000:.3g} ms" if measure == "time" else f"{value / 2**20:.4g} MiB"
