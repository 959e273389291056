"""A run's metrics as a CSV file: a row a logged step."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path

from variants.training.files import write

LEADING = ("step", "tokens")


class MetricsFile:
    """Add rows to a CSV file, each of which is there once it is added.

    The columns are the step, the tokens, and each metric from when it first comes. What is logged at the last row's
    step joins that row.

    Args:
        path: Of the file, which may exist.
        after: Rows of later steps are dropped: the run that wrote them was cut, and will write them again.
    """

    def __init__(self, path: Path, after: int = 0) -> None:
        self.path = path
        columns, rows = _read(path)
        self.rows = [row for row in rows if int(row["step"]) <= after]
        self.columns = [name for name in columns if any(name in row for row in self.rows)]
        self._rewrite()

    def add(self, step: int, metrics: Mapping[str, float | int]) -> None:
        """Add a row, or join the last one."""
        values = {name: repr(value) for name, value in metrics.items() if name != "step"}
        joins = bool(self.rows) and int(self.rows[-1]["step"]) == step
        row = {**self.rows.pop(), **values} if joins else {"step": str(step), **values}
        self.rows.append(row)
        new = [name for name in row if name not in self.columns]
        if new or joins:
            named = [*self.columns, *new]
            self.columns = [n for n in LEADING if n in named] + [n for n in named if n not in LEADING]
            self._rewrite()
        else:
            with self.path.open("a", newline="") as file:
                file.write(self._lines([row]))

    def _rewrite(self) -> None:
        write(self.path, (self._lines([{n: n for n in self.columns}]) if self.columns else "") + self._lines(self.rows))

    def _lines(self, rows: list[dict[str, str]]) -> str:
        text = io.StringIO()
        csv.DictWriter(text, self.columns, restval="", lineterminator="\n").writerows(rows)
        return text.getvalue()


def read_metrics(path: Path) -> list[dict[str, float]]:
    """The rows of a metrics file; a metric that a row does not have is left out."""
    return [{n: int(v) if n in LEADING else float(v) for n, v in row.items()} for row in _read(path)[1]]


def _read(path: Path) -> tuple[list[str], list[dict[str, str]]]:
    """The columns and the rows, without empty values."""
    if not path.is_file():
        return [], []
    text = path.read_text()
    whole = text[: text.rfind("\n") + 1]  # a kill may have cut the last line
    reader = csv.DictReader(io.StringIO(whole))
    rows = [{name: value for name, value in row.items() if value} for row in reader]
    return list(reader.fieldnames or []), rows
