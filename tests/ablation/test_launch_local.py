"""The local launcher, with workers that are a line of Python each; and a worker that loses its parent."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass

import pytest

from variants.ablation.launch import Job, Local
from variants.errors import ConfigError
from variants.slots import launchers
from variants.training.folder import Folder


@dataclass(frozen=True)
class Scripted(Job):
    """A job whose worker is a script, with the name of its folder as its argument."""

    script: str = ""

    @property
    def command(self):
        return [
            sys.executable,
            "-c",
            f"import os, signal, sys, time\nfolder = sys.argv[1]\n{self.script}",
            str(self.folder),
        ]


def jobs_of(tmp_path, *scripts):
    jobs = [Scripted(f"job {i}", tmp_path / f"main-{i}", 1, script) for i, script in enumerate(scripts)]
    for job in jobs:
        Folder.create(job.folder, "config").release()
        Folder(job.folder).note("running", 3)
    return jobs


def always():
    return True


FINISH = (
    "from pathlib import Path\n"
    'Path(folder, \'status.json\').write_text(\'{"state": "finished", "step": 4, "message": null}\')'
)


def test_a_death_by_sigkill_is_noted_and_harms_no_other_run(tmp_path):
    jobs = jobs_of(tmp_path, "os.kill(os.getpid(), signal.SIGKILL)", FINISH, "sys.exit(1)")
    Local()(jobs, always)
    noted = [job.noted() for job in jobs]
    assert [n["state"] for n in noted] == ["stopped", "finished", "stopped"]
    assert [n["step"] for n in noted] == [3, 4, 3]
    assert noted[0]["message"] == "its process was killed by SIGKILL"
    assert noted[2]["message"] == "its process ended with status 1"


def test_each_run_has_a_log_of_its_own_with_all_its_attempts(tmp_path):
    jobs = jobs_of(tmp_path, "print('out', folder[-1]); print('err', file=sys.stderr)", "print('out', folder[-1])")
    Local()(jobs, always)
    Local()(jobs[1:], always)
    assert sorted(jobs[0].log.read_text().splitlines()) == ["err", "out 0"]
    assert jobs[1].log.read_text().splitlines() == ["out 1", "out 1"]
    assert jobs[1].last_lines(1) == ["out 1"]


@pytest.mark.parametrize("slots", [1, 2])
def test_as_many_run_at_a_time_as_there_are_slots_and_each_has_its_share_of_threads(tmp_path, slots, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    script = (
        "import glob\n"
        "print(time.time(), os.environ['OMP_NUM_THREADS'], flush=True)\n"
        f"while sum(os.path.getsize(log) > 0 for log in glob.glob({str(tmp_path / '*.log')!r})) < {slots}:\n"
        "    time.sleep(0.01)  # until as many as there are slots have begun, however long a start takes\n"
        "time.sleep(0.1)\n"
        "print(time.time(), 0)"
    )
    jobs = jobs_of(tmp_path, *[script] * 4)
    Local(slots=slots)(jobs, always)
    spans = [[float(line.split()[0]) for line in job.log.read_text().splitlines()] for job in jobs]
    together = max(sum(b <= instant < e for b, e in spans) for instant, _ in spans)
    assert together == slots
    threads = {int(job.log.read_text().split()[1]) for job in jobs}
    assert threads == {max(1, len(os.sched_getaffinity(0)) // slots)}


def test_when_the_watch_says_stop_no_run_is_started_and_those_at_work_may_save_themselves(tmp_path):
    script = (
        "signal.signal(signal.SIGTERM, lambda *_: (time.sleep(0.2), print('saved', flush=True), sys.exit(3)))\n"
        "print('ready', flush=True); time.sleep(60)"
    )
    jobs = jobs_of(tmp_path, script, script)
    Local()(jobs, lambda: "ready" not in (jobs[0].log.read_text() if jobs[0].log.exists() else ""))
    assert jobs[0].log.read_text().splitlines() == ["ready", "saved"]
    assert not jobs[1].log.exists()


def test_an_interruption_leaves_no_process_behind(tmp_path):
    jobs = jobs_of(tmp_path, "print(os.getpid(), flush=True); time.sleep(60)")

    def interrupted():
        if jobs[0].log.exists() and jobs[0].log.read_text():
            raise KeyboardInterrupt
        return True

    with pytest.raises(KeyboardInterrupt):
        Local()(jobs, interrupted)
    with pytest.raises(ProcessLookupError):
        os.kill(int(jobs[0].log.read_text()), 0)
    assert jobs[0].noted()["state"] == "stopped"


def test_a_worker_whose_launcher_dies_is_asked_to_stop(tmp_path):
    code = (
        "import time\nfrom variants.ablation.worker import _die_with_parent\n"
        "_die_with_parent()\nprint('up', flush=True)\ntime.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"up\n"
    time.sleep(0.2)
    assert process.poll() is None
    process.stdin.close()
    assert process.wait(20) == -signal.SIGTERM
    process.stdout.close()


def test_a_job_that_died_before_there_was_a_run_has_failed(tmp_path):
    job = Scripted("job", tmp_path / "main-0", 1, "sys.exit('no such module')")
    Local()([job], always)
    assert job.noted() == {"state": "failed", "step": 0, "message": "its process ended with status 1"}


def test_wrong_options_are_refused():
    with pytest.raises(ValueError, match="slots=0: must be at least 1"):
        launchers.build({"name": "local", "slots": 0})
    with pytest.raises(ConfigError, match=r"no launcher 'locl' \(did you mean 'local'"):
        launchers.build("locl")
    with pytest.raises(ValueError, match="minutes=2: must be at least 3"):
        launchers.build({"name": "slurm", "minutes": 2})
