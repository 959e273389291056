"""What a terminal shows of a sweep: every run, its progress, its loss and its expected end, all from the folders."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from variants.ablation.launch.base import DONE, Job
from variants.training.folder import Folder
from variants.training.metrics import read_metrics

Notify = Callable[[str], None]
STYLES = {"running": "cyan", "finished": "green", "diverged": "yellow", "failed": "red", "stopped": "magenta"}
EVERY = 1.0  # seconds between two looks at the folders


@dataclass
class Seen:
    """What is known of a run now, and where it was when this sweep first saw it at work."""

    state: str = "waiting"
    step: int = 0
    losses: str = ""
    first: tuple[float, int] | None = None  # time and step

    @property
    def speed(self) -> float:
        """Updates a second."""
        if self.first is None or self.step <= self.first[1]:
            return 0.0
        return (self.step - self.first[1]) / (time.time() - self.first[0])


class View:
    """Show how the runs of a stage come along: a table in a terminal, else a line for each change.

    Args:
        title: Of the stage.
        jobs: Its runs, those that were done before included.
        console: Where it is shown.
        notify: Takes a line, where there is no terminal.
    """

    def __init__(self, title: str, jobs: Sequence[Job], console: Console, notify: Notify) -> None:
        self.title, self.jobs, self.console, self.notify = title, jobs, console, notify
        self.began, self._looked = time.time(), 0.0
        self.seen = {job: Seen() for job in jobs}
        self._live: Live | None = None
        self._look()

    def __enter__(self) -> View:
        if self.console.is_terminal:
            self._live = Live(self.render(), console=self.console, auto_refresh=False)
            self._live.start()
        else:
            counts = Counter(seen.state for seen in self.seen.values())
            self.notify(f"{self.title}: " + ", ".join(f"{count} {state}" for state, count in counts.items()))
        return self

    def __exit__(self, *_: object) -> None:
        self.update(now=True)
        if self._live is not None:
            self._live.stop()
            self._live = None

    def update(self, *, now: bool = False) -> None:
        """Look again, where it is time to."""
        if not now and time.time() - self._looked < EVERY:
            return
        before = {job: seen.state for job, seen in self.seen.items()}
        self._look()
        if self._live is not None:
            self._live.update(self.render(), refresh=True)
            return
        for job, seen in self.seen.items():
            if seen.state != before[job]:
                self.notify(
                    "  ".join(filter(None, (job.name, seen.state, f"{seen.step}/{job.max_steps}", seen.losses)))
                )

    def _look(self) -> None:
        self._looked = time.time()
        for job, seen in self.seen.items():
            if seen.state in DONE:
                continue
            noted, folder = job.noted(), Folder(job.folder)
            state = noted["state"]
            is_news = folder.status.exists() and folder.status.stat().st_mtime >= self.began
            seen.state = state if is_news or state in DONE else "waiting"
            if seen.state == "waiting":
                continue
            rows = read_metrics(folder.metrics)
            seen.step = int(rows[-1]["step"]) if rows else 0
            if seen.first is None and seen.state == "running" and rows:
                seen.first = time.time(), seen.step
            latest = {name: value for row in rows for name, value in row.items()}
            shown = [(label, latest.get(f"{label}/loss")) for label in ("train", "val")]
            seen.losses = "  ".join(f"{label} {value:.4f}" for label, value in shown if value is not None)

    def render(self) -> RenderableType:
        """The table: first the runs at work and those that went wrong, as many as there is room for."""
        order = ["running", "failed", "stopped", "prepared", "diverged", "waiting", "finished"]
        jobs = sorted(self.jobs, key=lambda job: order.index(self.seen[job].state))
        room = max(3, self.console.height - 6)
        table = Table(box=None, title=self.title, title_justify="left")
        for column in ("run", "state", "updates", "", "loss", "ends"):
            table.add_column(column)
        for job in jobs[:room]:
            seen = self.seen[job]
            left = (job.max_steps - seen.step) / seen.speed if seen.speed and seen.state == "running" else None
            table.add_row(
                job.name,
                Text(seen.state, STYLES.get(seen.state, "dim")),
                f"{seen.step}/{job.max_steps}",
                ProgressBar(job.max_steps, seen.step, width=20),
                seen.losses,
                _clock(left) if left is not None else "",
            )
        if len(jobs) > room:
            table.add_row(f"and {len(jobs) - room} more")
        return Group(table, Text(self._summary()))

    def _summary(self) -> str:
        counts = Counter(seen.state for seen in self.seen.values())
        line = ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))
        speed = sum(seen.speed for seen in self.seen.values() if seen.state == "running")
        left = sum(job.max_steps - seen.step for job, seen in self.seen.items() if seen.state not in (*DONE, "failed"))
        return f"{line}; all end about {_clock(left / speed)}" if speed else line


def _clock(seconds: float) -> str:
    """When it will be, so many seconds from now."""
    end = datetime.now() + timedelta(seconds=seconds)
    return end.strftime("%H:%M" if seconds < 20 * 3600 else "%a %H:%M")
