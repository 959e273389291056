import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from training_runs import killed, tiny

from variants.training.folder import Folder
from variants.training.metrics import read_metrics
from variants.training.run import train
from variants.training.tracking import Tracking


def records(piece):
    done = subprocess.run(
        [Path(sys.executable).parent / "wandb", "leet", "inspect", piece, "--json"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def pieces(folder):
    return sorted((folder / "wandb").glob("offline-run-*"), key=lambda p: p.stat().st_mtime)


@pytest.fixture
def no_account(monkeypatch, tmp_path):
    """wandb where nobody has logged in."""
    for name in ("WANDB_MODE", "WANDB_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))


@pytest.mark.slow
def test_an_offline_run_that_is_resumed_is_whole_in_its_newest_piece(tmp_path):
    folder = tmp_path / "run"
    overrides = ("tracker.mode=offline", "tracker.tags=[a]", "trainer.max_steps=5")
    assert killed(folder, *overrides, place="step", at=8) == -signal.SIGKILL
    train(tiny(folder, *overrides), resume=True, notify=str)
    old, new = pieces(folder)
    said = records(new)
    run = next(r["run"] for r in said if r["type"] == "run")
    assert new.name.endswith(run["run_id"])
    assert not old.name.endswith(run["run_id"])
    assert run["run_group"] == "run"
    history = [r["history"]["item"] for r in said if r["type"] == "history"]
    rows = read_metrics(folder / "metrics.csv")
    for row in rows:  # a row of the file may have come in two: of the update, and of its validation
        logged = {}
        for item in history:
            logged |= item if item["step"] == row["step"] else {}
        assert {name: logged[name] for name in row} == row
    assert [row["step"] for row in rows] == [1, 2, 3, 4, 5]
    config = run["config"]["update"]
    assert config["model.residual"] == "post"
    assert config["model.feedforward"] == "relu"
    assert config["optimiser"] == "adamw"
    metrics = [r["metric"] for r in said if r["type"] == "metric"]
    assert {"name": "tokens", "options": {"defined": True}} in metrics
    assert any(m.get("glob_name") == "*" and m["step_metric"] == "step" for m in metrics)
    assert said[-1]["exit"]["exit_code"] == 0


def test_without_a_key_a_run_goes_on_offline_and_says_so_once(tmp_path, no_account):
    lines = []
    folder = tmp_path / "run"
    result = train(tiny(folder, "tracker.mode=online", "trainer.max_steps=1"), notify=lines.append)
    assert result.status == "finished"
    assert [line for line in lines if "wandb" in line] == [
        "wandb is offline, `wandb sync` can bring the run online later: "
        "No API key configured. Use `wandb login` to log in."
    ]
    assert len(pieces(folder)) == 1


def test_without_a_network_a_run_goes_on_offline_after_a_moment(tmp_path, no_account, monkeypatch):
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    lines = []
    folder = Folder.create(tmp_path / "run", "")
    tracking = Tracking({"mode": "online"}, {}, folder, lines.append, init_timeout=1)
    tracking.start()
    tracking.log({"step": 1, "loss": 2.0})
    tracking.finish(1)
    assert tracking.mode == "offline"
    assert len(lines) == 1
    assert [r["history"]["item"]["loss"] for r in records(pieces(folder.path)[0]) if r["type"] == "history"] == [2.0]
    assert records(pieces(folder.path)[0])[-1]["exit"]["exit_code"] == 1
    folder.release()


@pytest.mark.parametrize(
    ("configured", "environment", "mode"),
    [("online", "offline", "offline"), ("disabled", "offline", "disabled"), ("offline", "online", "offline")],
)
def test_the_quieter_mode_holds(tmp_path, monkeypatch, configured, environment, mode):
    monkeypatch.setenv("WANDB_MODE", environment)
    assert Tracking({"mode": configured}, {}, Folder(tmp_path)).mode == mode


def test_a_tracker_that_fails_never_ends_a_training(tmp_path, monkeypatch):
    import wandb

    def broken(*args, **kwargs):
        raise RuntimeError("broken\nwith details")

    monkeypatch.setattr(wandb, "init", broken)
    lines = []
    result = train(tiny(tmp_path / "run", "tracker.mode=offline", "trainer.max_steps=1"), notify=lines.append)
    assert result.status == "finished"
    assert lines[0] == f"wandb does not start, metrics go to {tmp_path / 'run' / 'metrics.csv'} alone: broken"
