import csv
import json
import signal
import subprocess
import sys

import misbehaving  # noqa: F401  # registers callbacks
import pytest
import torch
from training_runs import TINY, killed, tiny

from variants.config import compose
from variants.errors import ConfigError
from variants.training.checkpoints import read_checkpoint
from variants.training.folder import Folder
from variants.training.run import train


def silent(line):
    pass


def weights(folder):
    return read_checkpoint(folder / "checkpoints" / "last.ckpt")


def history(folder):
    with (folder / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    return [{k: v for k, v in row.items() if k != "tokens_per_second"} for row in rows]


def assert_same_run(folder, whole):
    assert history(folder) == history(whole)
    one, other = weights(folder), weights(whole)
    assert one["global_step"] == other["global_step"]
    assert one["state_dict"].keys() == other["state_dict"].keys()
    for name, value in one["state_dict"].items():
        assert torch.equal(value, other["state_dict"][name]), name
    moments = [c["optimizer_states"][0]["state"] for c in (one, other)]
    for index, state in moments[0].items():
        for name, value in state.items():
            assert torch.equal(value, moments[1][index][name]), (index, name)
    assert one["progress"] == other["progress"]
    best = [read_checkpoint(f / "checkpoints" / "best.ckpt")["state_dict"] for f in (folder, whole)]
    assert all(torch.equal(best[0][name], best[1][name]) for name in best[0])


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that nobody killed: 8 steps of 2 micro-batches, validated after steps 3, 6 and 8, saved after every 2nd."""
    folder = tmp_path_factory.mktemp("runs") / "whole"
    assert train(tiny(folder), notify=silent).status == "finished"
    return folder


def test_a_run_logs_every_step_once_with_its_validations(whole):
    rows = history(whole)
    assert [int(row["step"]) for row in rows] == list(range(1, 9))
    assert [int(row["step"]) for row in rows if row["val/loss"]] == [3, 6, 8]
    assert all(row["train/loss"] and row["lr"] and row["grad_norm"] for row in rows)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "at"),
    [
        ("step", 1),  # before anything is saved
        ("step", 10),  # in the middle of step 5
        ("clip", 7),  # the gradients are there, the update is not
        ("write", 3),  # best.ckpt, last.ckpt and, half written, the next one
        ("write", 4),
        ("validation", 5),  # in the middle of a validation, after step 6
        ("validated", 2),  # step 6 is validated, and not yet saved
        ("saved", 2),
        ("saved", 4),  # all is done but to say so
    ],
)
def test_a_run_that_is_killed_and_resumed_is_the_run_that_was_not(tmp_path, whole, place, at):
    assert killed(tmp_path / "run", place=place, at=at) == -signal.SIGKILL
    assert train(tiny(tmp_path / "run"), resume=True, notify=silent).status == "finished"
    assert_same_run(tmp_path / "run", whole)
    assert not list((tmp_path / "run" / "checkpoints").glob(".*"))


@pytest.mark.slow
def test_a_run_may_be_killed_again_and_again(tmp_path, whole):
    for at in (6, 5, 3):
        assert killed(tmp_path / "run", place="step", at=at, resume=(tmp_path / "run").exists()) == -signal.SIGKILL
    train(tiny(tmp_path / "run"), resume=True, notify=silent)
    assert_same_run(tmp_path / "run", whole)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_a_run_after_its_step_with_everything_saved(tmp_path, whole, number):
    assert killed(tmp_path / "run", place="step", at=5, number=number) == 0
    assert Folder(tmp_path / "run").noted() == {
        "state": "stopped",
        "step": 3,
        "message": "stopped after step 3, as a signal asked",
    }
    assert weights(tmp_path / "run")["global_step"] == 3
    assert len(history(tmp_path / "run")) == 3
    train(tiny(tmp_path / "run"), resume=True, notify=silent)
    assert_same_run(tmp_path / "run", whole)


@pytest.mark.slow
def test_a_checkpoint_loads_safely_in_a_fresh_process_as_plain_values_and_plain_names(whole):
    code = """
import json, sys, torch
saved = torch.load(sys.argv[1], weights_only=True)
from variants.models import build
facts = saved["facts"]
model = build(facts["config"]["model"], seed=1, **facts["known"])
model.load_state_dict(saved["state_dict"])
print(json.dumps(facts["config"]))
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(whole / "checkpoints" / "last.ckpt")], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == tiny(whole)


def test_a_run_goes_on_longer_under_new_settings_which_it_says(tmp_path):
    train(tiny(tmp_path / "run", "schedule=constant", "trainer.max_steps=2"), notify=silent)
    lines = []
    config = tiny(tmp_path / "run", "schedule=constant", "optimiser.lr=0.5", "trainer.max_steps=4")
    train(config, resume=True, notify=lines.append)
    rows = history(tmp_path / "run")
    assert [float(row["lr"]) for row in rows] == [1e-3, 1e-3, 0.5, 0.5]
    assert [int(row["step"]) for row in rows] == [1, 2, 3, 4]
    assert [line for line in lines if "changed" in line] == [
        "changed since the run was cut: optimiser.lr: None -> 0.5",
        "changed since the run was cut: trainer.max_steps: 2 -> 4",
    ]


def test_the_learning_rate_goes_on_where_it_was(tmp_path, whole):
    schedule = [float(row["lr"]) for row in history(whole)]
    assert len(set(schedule)) == 8
    assert schedule[0] == 1e-3
    assert schedule[-1] == pytest.approx(1e-4)


def test_what_a_run_trains_may_not_change(whole):
    changes = ("model.d_model=32", "optimiser.weight_decay=0.5", "seed=3", "trainer.accumulate_grad_batches=4")
    with pytest.raises(ConfigError) as error:
        train(tiny(whole, *changes), resume=True, notify=silent)
    assert [line.partition(":")[0] for line in error.value.problems] == [
        "model.d_model",
        "optimiser.weight_decay",
        "seed",
        "trainer.accumulate_grad_batches",
    ]


def test_a_run_of_a_text_goes_on_with_that_text_alone(tmp_path, cache):
    story = tmp_path / "story.txt"
    story.write_text("".join(f"{i}: the cat sat on mat {i * i}.\n" for i in range(300)))
    text = ["model=gpt2_tiny", f"data={{name: text, path: {story}, vocab: 290, length: 16, batch_size: 4}}"]
    text += [o for o in TINY if o.startswith(("model.d", "model.n", "trainer", "tracker"))]
    config = {**compose(text), "folder": str(tmp_path / "run")}
    train({**config, "trainer": {**config["trainer"], "max_steps": 2}}, notify=silent)
    whole = story.read_text()
    story.write_text(whole + "And one line more.\n")
    with pytest.raises(ConfigError, match="data: its files hold something else than what the run in .* began"):
        train(config, resume=True, notify=silent)
    story.write_text(whole)
    assert train(config, resume=True, notify=silent).metrics["step"] == 8


def test_a_run_that_failed_before_its_first_checkpoint_may_be_mended(tmp_path):
    failing = "trainer.callbacks=[{name: raising, at: 1}]"
    with pytest.raises(RuntimeError, match="raised after update 1"):
        train(tiny(tmp_path / "run", failing), notify=silent)
    lines = []
    mended = tiny(tmp_path / "run", "model.d_model=32", "trainer.max_steps=1")
    assert train(mended, resume=True, notify=lines.append).status == "finished"
    assert "changed since the run was cut: model.d_model: 16 -> 32" in lines
    assert len(history(tmp_path / "run")) == 1


def test_a_finished_run_says_so_and_is_left_alone(whole):
    before = (whole / "checkpoints" / "last.ckpt").stat().st_mtime_ns
    lines, config = [], (whole / "config.yaml").read_bytes()
    result = train(tiny(whole, "optimiser.lr=0.5", "trainer.max_steps=7"), resume=True, notify=lines.append)
    assert (whole / "config.yaml").read_bytes() == config
    assert result.status == "finished"
    assert result.metrics["step"] == 8
    assert lines == [f"{whole} is finished, at step 8: there is nothing to resume"]
    assert (whole / "checkpoints" / "last.ckpt").stat().st_mtime_ns == before


def test_a_folder_holds_one_run_and_one_process(whole, tmp_path):
    with pytest.raises(ConfigError, match="holds a run already: resume it with --resume"):
        train(tiny(whole), notify=silent)
    with pytest.raises(ConfigError, match="holds no run that could be resumed"):
        train(tiny(tmp_path / "none"), resume=True, notify=silent)
    other = Folder(whole)
    other.hold()
    with pytest.raises(ConfigError, match="in use: another process is training there"):
        train(tiny(whole), resume=True, notify=silent)
    other.release()


def test_a_run_whose_time_is_up_is_stopped_and_goes_on_with_more(tmp_path):
    soon, lines = ("trainer.max_time=00:00:00:01", "trainer.callbacks=[{name: slow, seconds: 0.1}]"), []
    result = train(tiny(tmp_path / "run", *soon), notify=lines.append)
    step = Folder(tmp_path / "run").noted()["step"]
    assert step < 8
    assert (result.status, result.message) == ("stopped", f"stopped after step {step}, as trainer.max_time says")
    assert lines[-1] == f"{result.message}; go on with --resume"
    assert train(tiny(tmp_path / "run"), resume=True, notify=silent).status == "finished"
    assert [int(row["step"]) for row in history(tmp_path / "run")] == list(range(1, 9))


def test_a_run_that_a_callback_ends_says_so_and_may_go_on(tmp_path):
    ending = tiny(
        tmp_path / "run", "trainer.callbacks=[{name: ending, at: 3}, {name: clock}]", "trainer.early_stopping=9"
    )
    result = train(ending, notify=silent)
    assert (result.status, result.message) == ("finished", "a callback ended it at step 3 of 8")
    assert train(tiny(tmp_path / "run"), resume=True, notify=silent).message is None
    assert int(history(tmp_path / "run")[-1]["step"]) == 8


@pytest.mark.slow
def test_early_stopping_counts_on_after_a_resume(tmp_path):
    overrides = ("trainer.early_stopping=2", "optimiser.lr=1e-30", "schedule=constant", "trainer.max_steps=12")
    overrides = (*overrides, "trainer.val_check_interval=2")  # after every step, and none is better than the first
    train(tiny(tmp_path / "whole", *overrides), notify=silent)
    stopped = Folder(tmp_path / "whole").noted()
    assert stopped["state"] == "finished"
    assert stopped["step"] < 12
    assert stopped["message"] == "no improvement any more"
    assert killed(tmp_path / "run", *overrides, place="step", at=2 * stopped["step"] - 1) == -signal.SIGKILL
    train(tiny(tmp_path / "run", *overrides), resume=True, notify=silent)
    assert_same_run(tmp_path / "run", tmp_path / "whole")
    lines = []
    train(tiny(tmp_path / "run", *overrides), resume=True, notify=lines.append)
    assert "nothing to resume" in lines[0]
