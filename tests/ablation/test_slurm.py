"""The Slurm launcher against a real Slurm: a cluster of this one machine."""

import json
import subprocess
import threading
import time
from pathlib import Path

import pytest
import slurm_cluster
from sweeping import runs, swept, write_study

from variants.ablation.launch import Slurm
from variants.training.metrics import read_metrics

OWN = [str(Path(__file__).parent.parent / "misbehaving.py")]
MISSING = slurm_cluster.missing()

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(MISSING), reason=f"Slurm is not installed here: no {', '.join(MISSING)}"),
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with slurm_cluster.cluster(tmp_path_factory.mktemp("slurm")):
        yield


def eventually(condition, seconds=120):
    for _ in range(seconds * 10):
        if condition():
            return
        time.sleep(0.1)
    raise TimeoutError


@pytest.mark.usefixtures("cluster")
def test_a_study_of_four_runs_ends_though_one_is_preempted_and_requeued(tmp_path):
    slow = "trainer.callbacks=[{name: slow, seconds: 0.4}]"
    folder = write_study(tmp_path / "s", slow, "trainer.max_steps=10")
    victim = folder / "runs" / "layernorm" / "main-0"

    def preempt():
        eventually(lambda: len(read_metrics(victim / "metrics.csv")) >= 2)
        job = victim.with_name("main-0.slurm").read_text().strip()
        subprocess.run(["scancel", "--signal=USR2", job], check=True)  # as Slurm does before it takes a node away

    preemption = threading.Thread(target=preempt)
    preemption.start()
    undone, said = swept(folder, Slurm(slots=2, minutes=5), imports=OWN)
    preemption.join()
    logs = "".join(path.read_text()[-2000:] for path in folder.glob("runs/.slurm/*.err"))
    assert undone == 0, said + logs
    assert len(runs(folder)) == 4
    for run in runs(folder):
        assert [row["step"] for row in read_metrics(run / "metrics.csv")] == list(range(1, 11))
        attempts = run.with_name(f"{run.name}.log").read_text().count("---")
        assert (attempts > 1) == (run == victim)  # scancel may signal the second attempt as well
    numbers = {run.with_name(f"{run.name}.slurm").read_text().strip() for run in runs(folder)}
    assert len({number.partition("_")[0] for number in numbers}) == 1  # one array
    assert len(numbers) == 4


@pytest.mark.usefixtures("cluster")
def test_jobs_outlive_their_sweep_and_the_next_one_waits_for_them(tmp_path):
    slow = "trainer.callbacks=[{name: slow, seconds: 0.3}]"
    folder = write_study(tmp_path / "s", slow, "trainer.max_steps=8", seeds=1)

    class GoneError(Exception):
        pass

    def submit_and_go(jobs, watch):
        def gone():
            raise GoneError

        Slurm(minutes=5)(jobs, gone)

    with pytest.raises(GoneError):
        swept(folder, submit_and_go, imports=OWN)
    submitted = {path: path.read_text() for path in folder.glob("runs/*/*.slurm")}
    assert len(submitted) == 2
    assert swept(folder, Slurm(minutes=5), imports=OWN)[0] == 0
    assert submitted == {path: path.read_text() for path in folder.glob("runs/*/*.slurm")}


@pytest.mark.usefixtures("cluster")
def test_when_the_watch_says_stop_the_jobs_save_themselves(tmp_path):
    slow = "trainer.callbacks=[{name: slow, seconds: 0.3}]"
    folder = write_study(tmp_path / "s", slow, "trainer.max_steps=1000", seeds=1)
    first = folder / "runs" / "layernorm" / "main-0"

    def stopping(jobs, watch):
        Slurm(slots=1, minutes=5)(jobs, lambda: not read_metrics(first / "metrics.csv"))

    assert swept(folder, stopping, imports=OWN)[0] == 2
    assert json.loads((first / "status.json").read_text())["state"] == "stopped"
    assert (first / "checkpoints" / "last.ckpt").is_file()
    assert not (folder / "runs" / "rmsnorm" / "main-0" / "metrics.csv").exists()
