"""What is shown of a sweep at work, from its folders."""

import io

import pytest
from rich.console import Console

from variants.ablation.launch import Job
from variants.ablation.view import View
from variants.training.folder import Folder


@pytest.fixture
def jobs(tmp_path):
    return [Job(f"arm/main-{i}", tmp_path / f"main-{i}", 10) for i in range(3)]


def note(job, state, step, *losses):
    folder = Folder(job.folder)
    job.folder.mkdir(exist_ok=True)
    folder.note(state, step)
    rows = [f"{i + 1},{loss},{loss + 1}" for i, loss in enumerate(losses)]
    folder.metrics.write_text("\n".join(["step,train/loss,val/loss", *rows, ""]))


def terminal():
    return Console(file=io.StringIO(), force_terminal=True, width=100, height=30)


def test_without_a_terminal_each_change_is_a_line(jobs):
    said = []
    with View("comparison", jobs, Console(file=io.StringIO()), said.append) as view:
        note(jobs[0], "running", 0, 3.0)
        view.update(now=True)
        view.update(now=True)
        note(jobs[0], "finished", 10, 3.0, 2.0)
        note(jobs[1], "failed", 0)
    assert said == [
        "comparison: 3 waiting",
        "arm/main-0  running  1/10  train 3.0000  val 4.0000",
        "arm/main-0  finished  2/10  train 2.0000  val 3.0000",
        "arm/main-1  failed  0/10",
    ]


def test_in_a_terminal_a_table_has_every_run_with_its_progress_and_its_end(jobs):
    note(jobs[0], "finished", 10, 3.0)
    console = terminal()
    with View("comparison", jobs, console, pytest.fail) as view:
        note(jobs[1], "running", 0, 3.0)
        view.update(now=True)
        note(jobs[1], "running", 0, 3.0, 2.5)
        view.update(now=True)
    shown = console.file.getvalue()
    for words in (
        "arm/main-1",
        "running",
        "2/10",
        "train 2.5000  val 3.5000",
        "1 finished, 1 running, 1 waiting",
        "all end about",
    ):
        assert words in shown


def test_a_run_that_an_earlier_sweep_left_at_work_waits(jobs):
    import os

    note(jobs[0], "running", 4, 3.0)
    os.utime(Folder(jobs[0].folder).status, (0, 0))
    view = View("comparison", jobs, terminal(), pytest.fail)
    assert view.seen[jobs[0]].state == "waiting"


def test_more_runs_than_there_is_room_for_are_counted(tmp_path):
    jobs = [Job(f"arm/main-{i}", tmp_path / f"main-{i}", 10) for i in range(50)]
    note(jobs[40], "failed", 3)
    console = terminal()
    console.print(View("comparison", jobs, console, pytest.fail).render())
    shown = console.file.getvalue()
    assert len(shown.splitlines()) < 30
    assert "and 26 more" in shown
