"""What users write, what checkpoints hold of it, and what a tracker hears."""

import itertools
import os
import subprocess
import sys

import misbehaving
import numpy as np
import pytest
import torch
from lightning.pytorch import Callback
from sweeping import write_study
from training_runs import TINY, tiny

from variants.ablation.compare import compare
from variants.config import compose, flatten
from variants.errors import ConfigError
from variants.slots import callbacks
from variants.training.checkpoints import read_checkpoint
from variants.training.folder import Folder
from variants.training.metrics import read_metrics
from variants.training.run import train
from variants.training.tracking import Tracking

# ---------------------------------------------------------------------------------------------------------------------
# Values


def both_ways(folder, place, text):
    """What a value becomes in a file of its group and on the command line; an error as its words."""
    group, *fields = place.split(".")
    nested = "".join(
        f"{'  ' * depth}{field}:{' ' if depth == len(fields) - 1 else chr(10)}" for depth, field in enumerate(fields)
    )
    (folder / group).mkdir(exist_ok=True)
    starts = {"model": "base: llama_tiny\n", "optimiser": "base: adamw\n"}.get(group, "")
    (folder / group / "mine.yaml").write_text(f"{starts}{nested}{text}\n")
    found = []
    for overrides in ([f"{group}=mine"], [*(["optimiser=adamw"] if group == "optimiser" else []), f"{place}={text}"]):
        try:
            value = compose(overrides, folder)
        except ConfigError as error:
            found.append(str(error))
            continue
        for name in (group, *fields):
            value = value[name]
        found.append(value)
    return found


@pytest.mark.parametrize(
    ("place", "text", "wanted"),
    [
        ("optimiser.lr", "1e-4", 1e-4),
        ("optimiser.lr", "1E-4", 1e-4),
        ("optimiser.lr", "2", 2.0),
        ("optimiser.lr", "'0.1'", "expected a number, got '0.1'"),
        ("trainer.max_steps", "1e5", 100_000),
        ("trainer.max_steps", "1_000", 1000),
        ("trainer.max_steps", "1.5", "expected an integer, got 1.5"),
        ("trainer.max_steps", "010", "expected an integer, got '010'"),  # 8, to YAML 1.1
        ("trainer.max_steps", "1:30", "expected an integer, got '1:30'"),  # 90
        ("model.norm", "none", "no norm 'none'"),
        ("model.norm", "None", "no norm 'None'"),
        ("model.norm", "null", "expected a choice of norm"),
        ("model.norm", "off", "expected a choice of norm"),
        ("model.position", "none", {"name": "none"}),
        ("model.mixer.qk_norm", "null", None),
        ("model.mixer.qk_norm", "None", "no norm 'None'"),
        ("model.bias", "no", False),
        ("model.bias", "on", True),
        ("model.bias", "None", "expected true or false or null, got 'None'"),
        ("model.bias", "null", None),
        ("tracker.name", "1e234", "got 1e+234"),
        ("tracker.name", "'1e234'", "1e234"),
        ("tracker.name", "010", "010"),
        ("tracker.name", "None", "expected text or null, got 'None'"),
        ("tracker.name", "2024-01-01", "2024-01-01"),
    ],
)
def test_a_value_is_what_it_looks_like_in_a_file_and_on_the_command_line_or_refused(tmp_path, place, text, wanted):
    """CFG-03."""
    of_file, of_line = both_ways(tmp_path, place, text)
    assert of_file == of_line
    if isinstance(of_file, str) and of_file.startswith(place):
        assert wanted in of_file
        assert "\n" not in of_file
    else:
        assert of_file == wanted
        assert type(of_file) is type(wanted)


def test_a_seed_is_a_whole_number():
    """CFG-03."""
    assert compose(["seed=1e3"])["seed"] == 1000
    for text in ("010", "1.5", "None", "yes"):
        with pytest.raises(ConfigError, match="seed: expected an integer"):
            compose([f"seed={text}"])


# ---------------------------------------------------------------------------------------------------------------------
# Checkpoints


def types_in(value):
    if isinstance(value, dict):
        return {dict}.union(*map(types_in, value.values()))
    return {list}.union(*map(types_in, value)) if isinstance(value, list) else {type(value)}


def test_a_checkpoint_holds_a_config_as_plain_resolved_values_and_resumes(tmp_path):
    """CKPT-02."""
    (tmp_path / "conf" / "tracker").mkdir(parents=True)
    (tmp_path / "conf" / "tracker" / "mine.yaml").write_text("mode: disabled\nname: s${seed}\ntags: [a, 'b${seed}']\n")
    written = [*TINY[:-1], "tracker=mine", "seed=7", ("optimiser.lr", np.float64(1e-3)), ("folder", tmp_path / "run")]
    config = compose(written, tmp_path / "conf")
    assert train({**config, "trainer": {**config["trainer"], "max_steps": 1}}, notify=str).status == "finished"
    saved = torch.load(tmp_path / "run" / "checkpoints" / "last.ckpt", weights_only=True)["facts"]
    assert types_in(saved) <= {dict, list, str, int, float, bool, type(None)}
    assert saved["config"]["tracker"]["name"] == "s7"
    assert saved["config"]["tracker"]["tags"] == ["a", "b7"]
    assert saved["config"]["optimiser"]["lr"] == 1e-3
    assert saved["config"]["folder"] == str(tmp_path / "run")
    longer = {**config, "trainer": {**config["trainer"], "max_steps": 2}}
    assert train(longer, resume=True, notify=str).metrics["step"] == 2
    assert read_checkpoint(tmp_path / "run" / "checkpoints" / "last.ckpt")["global_step"] == 2


# ---------------------------------------------------------------------------------------------------------------------
# Runs that fail


@pytest.mark.slow
def test_a_sweep_goes_on_after_each_failure_and_leaves_it_in_the_log_the_summary_and_the_status(tmp_path):
    """SWP-04."""
    first, late = ({"trainer.callbacks": [{"name": "raising", "at": at}]} for at in (0, 3))
    arms = {"one": {}, "two": first, "three": {"model.norm": "layernorm"}, "four": late}
    folder = write_study(tmp_path / "s", axes=None, baseline="one", seeds=1, arms=arms)
    command = [sys.executable, "-m", "variants", "sweep", str(folder), "--slots", "2", "--import", misbehaving.__file__]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 1
    runs = {arm: Folder(folder / "runs" / arm / "main-0") for arm in arms}
    assert [run.noted()["state"] for run in runs.values()] == ["finished", "failed", "finished", "failed"]
    for arm, words in (("two", "raised before the first update"), ("four", "raised after update 3")):
        assert f"failed: {arm}/main-0: RuntimeError: {words}" in done.stdout
        log = runs[arm].path.with_name("main-0.log").read_text()
        assert "Traceback" in log
        assert words in log
    assert any("val/loss" in row for row in read_metrics(runs["four"].metrics))  # which is no result
    assert np.isnan(compare(folder).values).tolist() == [[False, True, False, True]]


# ---------------------------------------------------------------------------------------------------------------------
# The tracker


class Server:
    """wandb, as it keeps runs by their id: a step that is not above a run's last one is ignored."""

    def __init__(self, monkeypatch):
        import wandb

        self.runs = {}
        monkeypatch.setattr(wandb, "init", self.init)
        monkeypatch.delenv("WANDB_MODE")

    def init(self, *, id, config, resume, **others):  # noqa: A002  # wandb's name
        assert id not in self.runs or resume == "allow", "overwritten"
        return self.runs.setdefault(id, ServersRun(config, others))


class ServersRun:
    def __init__(self, config, others):
        self.config, self.others, self.rows, self.exits, self.axes = config, others, {}, [], {}
        self.count = itertools.count()

    def define_metric(self, name, step_metric=None):
        self.axes[name] = step_metric

    def log(self, row, step=None):
        step = next(self.count) if step is None else step
        if step > max(self.rows, default=-1):
            self.rows[step] = row

    def finish(self, exit_code):
        self.exits.append(exit_code)


def logged(tracking, steps, loss):
    for step in steps:
        tracking.log({"step": step, "loss": loss})


@pytest.mark.parametrize("mode", ["online", "offline"])
def test_a_tracker_keeps_every_metric_of_a_resumed_run(tmp_path, monkeypatch, mode):
    """WB-01."""
    server, folder = Server(monkeypatch), Folder(tmp_path)
    first = Tracking({"mode": mode}, {"a": 1}, folder)
    first.start()
    logged(first, range(1, 13), 1.0)  # saved at 10, cut at 12
    second = Tracking({"mode": mode}, {"a": 1}, folder)
    second.start([{"step": step, "loss": 1.0} for step in range(1, 11)])
    logged(second, range(11, 21), 2.0)
    second.finish(0)
    assert len(server.runs) == (1 if mode == "online" else 2)
    newest = list(server.runs.values())[-1]
    known = {row["step"]: row["loss"] for row in newest.rows.values()}  # the last of a step counts
    assert known == {step: 1.0 if step < 11 else 2.0 for step in range(1, 21)}
    assert newest.axes["*"] == "step"
    assert len({run.others["group"] for run in server.runs.values()}) == 1
    assert newest.exits == [0]


def test_runs_of_one_process_are_runs_of_their_own_and_a_failed_one_is_closed_as_failed(tmp_path, monkeypatch):
    """SWP-01."""

    class Fails(Callback):
        def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
            if batch_idx == 2:
                raise RuntimeError("no")

    callbacks.register("fails")(Fails)
    server, configs = Server(monkeypatch), []
    for seed in (1, 2, 3):
        own = [f"seed={seed}", *["trainer.callbacks=[fails]"] * (seed == 2)]
        configs.append(tiny(tmp_path / str(seed), "tracker.mode=offline", "trainer.max_steps=2", *own))
        try:
            train(configs[-1], notify=str)
        except RuntimeError:
            assert seed == 2
    runs = list(server.runs.values())
    assert [run.config for run in runs] == [flatten(config) for config in configs]
    assert [run.exits for run in runs] == [[0], [1], [0]]
    assert [{row["step"] for row in run.rows.values()} for run in runs] == [{1, 2}, {1}, {1, 2}]
    assert Folder(tmp_path / "2").noted()["state"] == "failed"


@pytest.mark.parametrize("name", ["fsdp", "fsdp_cpu_offload", "deepspeed", "deepspeed_stage_3_offload"])
def test_a_strategy_that_shards_is_refused_before_its_norm_could_be_wrong(tmp_path, name):
    """DIST-04."""
    words = rf"trainer.strategy: no strategy '{name}'.*; none of Lightning's that shard parameters$"
    with pytest.raises(ConfigError, match=words):
        tiny(tmp_path, f"trainer.strategy={name}")
