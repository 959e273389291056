"""Carry out a study: plan, tune, choose, compare. Killed at any time, it goes on where it was."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from rich.console import Console

from variants import config as configs
from variants.ablation import evaluate
from variants.ablation.choice import choose
from variants.ablation.launch.base import DONE, Job
from variants.ablation.plan import Plan, Run
from variants.ablation.study import Study
from variants.ablation.view import View
from variants.errors import ConfigError
from variants.training.folder import Folder
from variants.training.metrics import read_metrics

Notify = Callable[[str], None]
Launch = Callable[[Sequence[Job], Callable[[], bool]], None]


@dataclass
class Sweep:
    """Carries out the runs of a plan, stage by stage.

    Args:
        plan: Checked.
        launch: A launcher.
        imports: Modules that register components, for the workers.
        config_dir: The user's folder of config files.
        retry: Whether runs that failed are tried again.
        limit_hours: After so long no run is started, and those that run save themselves and stop; None: no limit.
        notify: Takes a line.
        console: Where the runs are shown.
        after: Called whenever a run has ended.
    """

    plan: Plan
    launch: Launch
    imports: Sequence[str] = ()
    config_dir: str | Path | None = None
    retry: bool = False
    limit_hours: float | None = None
    notify: Notify = print
    console: Console = field(default_factory=lambda: Console(stderr=True))
    after: Callable[[], None] = lambda: None
    stopped: str | None = None  # why no more runs are started

    def __post_init__(self) -> None:
        self._began = time.monotonic()
        self._told: set[str] = set()  # what failed runs of this sweep said

    def carry_out(self, title: str, runs: Sequence[Run]) -> list[Run]:
        """Carry out the runs that are not done.

        Returns:
            The runs that are not done still, because they failed or were stopped.

        Raises:
            ConfigError: A run's folder holds a run of another config.
        """
        check_folders(runs)
        evaluations = self.plan.study.evaluate
        todo = [run for run in runs if not is_done(run, evaluations)]
        failed = [run for run in todo if job_of(run).noted()["state"] == "failed"]
        if failed and not self.retry:
            self.notify(f"{title}: {len(failed)} failed before, and are tried again with --retry")
            todo = [run for run in todo if run not in failed]
        if todo and self.stopped is None:
            for run in todo:
                others = {n: evaluate.other_config(run.config, o, self.config_dir) for n, o in evaluations.items()}
                job_of(run).prepare(run.config, others, self.imports)
            jobs = [job_of(run) for run in todo]
            with View(title, [job_of(run) for run in runs], self.console, self.notify) as view, self._listening():
                self.launch(jobs, self._watch(view, jobs))
        self.after()
        undone = [run for run in runs if not is_done(run, evaluations)]
        for run in undone:
            self._tell(job_of(run))
        return undone

    def _watch(self, view: View, jobs: Sequence[Job]) -> Callable[[], bool]:
        done = {job: view.seen[job].state for job in jobs}

        def watch() -> bool:
            view.update()
            ended = {job: view.seen[job].state for job in jobs}
            if any(state in (*DONE, "failed") and done[job] != state for job, state in ended.items()):
                self.after()
            done.update(ended)
            if self.limit_hours is not None and time.monotonic() - self._began > self.limit_hours * 3600:
                self.stopped = self.stopped or f"{self.limit_hours:g} hours are over"
            return self.stopped is None

        return watch

    @contextlib.contextmanager
    def _listening(self) -> Iterator[None]:
        """Take Ctrl-C and SIGTERM as the wish to stop; a second one ends all at once."""

        def ask(number: int, frame: FrameType | None) -> None:
            if self.stopped is not None:
                raise KeyboardInterrupt
            self.stopped = f"{signal.Signals(number).name} came"
            self.notify("stopping: runs save themselves; once more to end them at once")

        before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _tell(self, job: Job) -> None:
        noted = job.noted()
        if noted["state"] == "failed":
            self.notify(f"failed: {job.name}: {noted['message']} ({job.log})")
            for line in job.last_lines() if noted["message"] not in self._told else ():
                self.notify(f"    {line}")
            self._told.add(noted["message"])
        elif job.log.is_file() and noted["state"] in DONE:  # but its evaluations are not there
            self.notify(f"not evaluated: {job.name} ({job.log})")
        elif job.log.is_file():
            self.notify(f"cut: {job.name}, at update {noted['step']}: {noted['message']} ({job.log})")


def job_of(run: Run) -> Job:
    """A run as a launcher takes it."""
    return Job(f"{run.arm}/{run.folder.name}", run.folder, run.config["trainer"]["max_steps"])


def is_done(run: Run, evaluations: Mapping[str, Any]) -> bool:
    """Whether there is nothing left to do for a run."""
    state = job_of(run).noted()["state"]
    return state in DONE and (state == "diverged" or not evaluate.missing(run.folder, list(evaluations)))


def check_folders(runs: Sequence[Run]) -> None:
    """Refuse to mix runs of another config with these; one that failed before its first update is cleared away.

    Raises:
        ConfigError: A line for each folder that holds another run.
    """
    problems = []
    for run in runs:
        folder = Folder(run.folder)
        if not folder.config.is_file():
            continue
        try:
            there = configs.load(folder.config)
        except ConfigError as error:
            problems += [f"{line}; move {run.folder} away" for line in error.problems]
            continue
        if configs.identity(there) == run.identity:
            continue
        if folder.noted()["state"] == "failed" and not folder.last.exists() and not read_metrics(folder.metrics):
            shutil.rmtree(run.folder)
        else:
            changes = {n: c for n, c in configs.departures(run.config, there).items() if not n.startswith("tracker")}
            words = "; ".join(configs.changed((n, c) for n, c in changes.items() if n != "folder"))
            problems.append(f"{run.folder} holds a run of another config ({words}); move it away, or undo the change")
    if problems:
        raise ConfigError(problems)


@contextlib.contextmanager
def held(study: Study) -> Iterator[None]:
    """Keep other sweeps of the same study out.

    Raises:
        ConfigError: There is one already, or the folder cannot be written.
    """
    runs = study.folder / "runs"
    try:
        runs.mkdir(parents=True, exist_ok=True)
        lock = os.open(runs / ".lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise ConfigError([f"{runs} cannot be written: {error.strerror}"]) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise ConfigError([f"{study.folder} is being swept by another process: let it end, or stop it first"]) from None
    finally:
        os.close(lock)


def sweep(plan: Plan, stages: Sweep) -> int:
    """Carry out a study that nobody else carries out.

    Returns:
        How many runs are not done, because they failed or were stopped, or come only after such.

    Raises:
        ConfigError: The plan cannot run, or folders are in the way.
    """
    plan.check()
    with held(plan.study):
        check_folders(plan.tune_runs())
        undone = stages.carry_out("tuning", plan.tune_runs()) if plan.tune_runs() else []
        untuned = {run.arm for run in undone}
        chosen = choose(
            [run for run in plan.tune_runs() if run.arm not in untuned], plan.study.metric, plan.study.better
        )
        runs = [run for run in plan.main_runs(chosen) if run.arm not in untuned]
        for arm in sorted(untuned):
            stages.notify(f"arm {arm} waits for its tuning")
        waiting = len(plan.main_runs(chosen)) - len(runs)
        return len(undone) + waiting + len(stages.carry_out("comparison", runs))
