"""A sweep that is killed goes on, and ends as one that was not; the commands that a user types, in real processes."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from sweeping import runs, swept, write_study

from variants.errors import ConfigError
from variants.training.checkpoints import read_checkpoint
from variants.training.metrics import read_metrics

OWN = ["--import", str(Path(__file__).parent.parent / "misbehaving.py")]
SLOW = "trainer.callbacks=[{name: slow, seconds: 0.3}]"
STEPS = "trainer.max_steps=8"


def started(folder, *arguments):
    """The command, in a process of its own."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "variants", "sweep", str(folder), *OWN, *arguments]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def history(run):
    return [{k: v for k, v in row.items() if k != "tokens_per_second"} for row in read_metrics(run / "metrics.csv")]


def wait_for(condition, seconds=90):
    for _ in range(seconds * 20):
        if condition():
            return
        time.sleep(0.05)
    raise TimeoutError


def is_under_way(run, step=2):
    return [row["step"] for row in read_metrics(run / "metrics.csv")][-1:] >= [step]


def pid_of(run):
    """The worker of a run, by its command line."""
    for place in Path("/proc").glob("[0-9]*"):
        try:
            words = (place / "cmdline").read_bytes().decode().split("\0")
        except OSError:
            continue
        if f"{run}.job.yaml" in words:
            return int(place.name)
    return None


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="finds processes in /proc")
def test_a_study_whose_run_and_then_whose_sweep_is_killed_ends_as_one_that_was_not(tmp_path):
    study = {"axes": {"model.norm": ["layernorm", "rmsnorm", "layernorm_std"]}, "seeds": 1}
    whole = write_study(tmp_path / "whole", STEPS, **study)
    assert swept(whole)[0] == 0
    folder = write_study(tmp_path / "s", STEPS, SLOW, **study)
    victim, other, orphan = (folder / "runs" / arm / "main-0" for arm in study["axes"]["model.norm"])

    sweep = started(folder, "--slots", "2")
    wait_for(lambda: is_under_way(victim))
    os.kill(pid_of(victim), signal.SIGKILL)
    wait_for(lambda: is_under_way(orphan, 1) and pid_of(other) is None)
    sweep.kill()
    sweep.communicate()
    wait_for(lambda: pid_of(orphan) is None)  # it saved itself, for its parent was gone
    assert json.loads((orphan / "status.json").read_text())["state"] == "stopped"
    assert json.loads((victim / "status.json").read_text())["message"] == "its process was killed by SIGKILL"
    done = (other / "metrics.csv").read_bytes()

    said = started(folder, "--slots", "2").communicate(timeout=120)[0]
    assert "finished  8/8" in said
    assert (other / "metrics.csv").read_bytes() == done
    assert len(runs(folder)) == 3
    for run, twin in zip(runs(folder), runs(whole), strict=True):
        assert history(run) == history(twin)
        weights = [read_checkpoint(r / "checkpoints" / "last.ckpt")["state_dict"] for r in (run, twin)]
        assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    with (folder / "results.csv").open() as file:
        assert [row["state"] for row in csv.DictReader(file)] == ["finished"] * 3


@pytest.mark.slow
def test_ctrl_c_lets_runs_save_themselves_and_says_how_to_go_on_and_a_second_sweep_is_refused_meanwhile(tmp_path):
    folder = write_study(tmp_path / "s", "trainer.max_steps=1000", SLOW, seeds=1)
    sweep = started(folder)
    first = folder / "runs" / "layernorm" / "main-0"
    wait_for(lambda: is_under_way(first, 1))
    with pytest.raises(ConfigError, match="is being swept by another process"):
        swept(folder)
    sweep.send_signal(signal.SIGINT)
    said = sweep.communicate(timeout=60)[0]
    assert sweep.returncode == 1
    assert f"`variants sweep {folder}` goes on" in said
    assert json.loads((first / "status.json").read_text())["state"] == "stopped"
    assert read_checkpoint(first / "checkpoints" / "last.ckpt")["global_step"] == history(first)[-1]["step"]
    assert not (folder / "runs" / "rmsnorm" / "main-0").exists()


@pytest.mark.slow
def test_each_run_of_several_processes_is_carried_out_once_by_all_of_them_one_run_after_another(tmp_path):
    signed = tmp_path / "signed"
    signed.mkdir()
    two = ["trainer.devices=2", "trainer.strategy=ddp", f"trainer.callbacks=[{{name: signing, path: {signed}}}]"]
    folder = write_study(tmp_path / "s", *two, seeds=1)
    sweeping = started(folder)
    said, _ = sweeping.communicate(timeout=300)
    assert sweeping.returncode == 0, said
    assert len(runs(folder)) == 2
    processes = sorted((json.loads(file.read_text()) for file in signed.iterdir()), key=lambda p: p["began"])
    assert [process["of"] for process in processes] == [2, 2, 2, 2], said
    first, second = processes[:2], processes[2:]
    for ranks in (first, second):
        assert {process["rank"] for process in ranks} == {0, 1}
        assert len({(process["folder"], process["identity"]) for process in ranks}) == 1
    assert {process["folder"] for process in processes} == {str(run) for run in runs(folder)}
    assert max(process["ended"] for process in first) < min(process["began"] for process in second)
    for run in runs(folder):
        assert [row["step"] for row in read_metrics(run / "metrics.csv")] == [1, 2, 3, 4]
        assert json.loads((run / "status.json").read_text())["state"] == "finished"
