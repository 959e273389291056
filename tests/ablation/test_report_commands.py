import json
import math
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import torch
from ablation.studies import SMALL, pretend, study
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from variants.ablation import bench, scaling
from variants.ablation.plan import plan
from variants.ablation.report import report
from variants.cli import main
from variants.errors import ConfigError

BASE = [o for o in SMALL if not o.startswith("tracker")]


LEARNED = {"name": "learned", "max_length": 64}


def swept(folder, **changes):
    made = study(folder, axes={"model.feedforward": ["relu", "swiglu"]}, seeds=3, **changes)
    planned = plan(made)
    for run in planned.main_runs():
        pretend(run, (4.0, 3.0 - (run.arm == "swiglu") - 0.01 * run.seed + 0.001 * len(run.arm) * run.seed))
    return made


def test_compare_prints_each_format(tmp_path, capsys):
    folder = str(swept(tmp_path / "study").folder)
    said = {}
    for form in ("markdown", "latex", "csv"):
        assert main(["compare", folder, "--format", form]) == 0
        said[form] = capsys.readouterr().out
    assert "| swiglu |" in said["markdown"]
    assert r"\toprule" in said["latex"]
    assert said["csv"].splitlines()[1].startswith("swiglu,better,")
    assert main(["compare", folder, "--baseline", "swiglu", "--by", "tokens", "--metric", "train/loss"]) == 0
    assert "against swiglu" in capsys.readouterr().out


def test_compare_says_what_is_wrong(tmp_path, capsys):
    folder = str(swept(tmp_path / "study").folder)
    assert main(["compare", folder, "--metric", "val/los"]) == 2
    assert "val/loss" in capsys.readouterr().err
    assert main(["compare", folder, "--baseline", "rel"]) == 2
    assert "relu" in capsys.readouterr().err


def test_report_prints_where_the_page_is(tmp_path, capsys):
    made = swept(tmp_path / "study")
    assert main(["report", str(made.folder), "--out", str(tmp_path / "out")]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "out" / "index.html")
    assert (tmp_path / "out" / "index.html").is_file()


def test_report_into_a_place_that_cannot_be_written_is_one_line(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert main(["report", str(swept(tmp_path / "study").folder), "--out", str(tmp_path / "file" / "out")]) == 2
    assert "cannot be written" in capsys.readouterr().err


@pytest.mark.slow
def test_the_verdict_is_a_run_of_the_studys_group_in_wandb(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    made = swept(tmp_path / "study", base=[*BASE, "tracker.mode=offline"])
    report(made.folder, track=True)
    (piece,) = (made.folder / "report" / "wandb").glob("offline-run-*")
    wandb = Path(sys.executable).parent / "wandb"
    done = subprocess.run([wandb, "leet", "inspect", piece, "--json"], capture_output=True, text=True, check=True)
    said = [json.loads(line) for line in done.stdout.splitlines()]
    run = next(r["run"] for r in said if r["type"] == "run")
    assert (run["run_group"], run["job_type"]) == ("study", "verdict")
    history = [r["history"]["item"] for r in said if r["type"] == "history"]
    logged = {name.split("/")[0].split(".")[0] for item in history for name in item}
    assert {"verdicts", "main", "effects", "curves"} <= logged
    (table,) = piece.glob("files/media/table/verdicts_*.json")
    assert "swiglu" in table.read_text()
    dry = subprocess.run([wandb, "sync", "--dry-run", piece], capture_output=True, text=True, check=True)
    assert piece.name in dry.stdout + dry.stderr


class Clock(TorchDispatchMode):
    """A second passes for each number that torch computes, however crowded the machine is."""

    now = 0

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        made = operation(*args, **(kwargs or {}))
        self.now += sum(t.numel() for t in tree_leaves(made) if isinstance(t, torch.Tensor))
        return made

    def perf_counter(self):
        return self.now


@pytest.mark.slow
def test_a_benchmark_measures_every_arm_by_its_own_steps(tmp_path, capsys, monkeypatch):
    made = study(
        tmp_path / "study",
        base=[o for o in BASE if not o.startswith("data")]
        + ["data=copy", "model.layout=encoder_decoder", "data.batch_size=8", "trainer.gradient_clip_val=1.0"],
        axes={"width": {"narrow": {"model.d_model": 16}, "wide": {"model.d_model": 256}}},
        baseline="narrow",
    )
    with Clock() as clock:
        monkeypatch.setattr(bench, "time", clock)
        assert main(["bench", str(made.folder), "--rounds", "3"]) == 0
    assert "wide" in capsys.readouterr().out
    table = bench.read(made.folder)
    assert list(table.index) == ["narrow", "wide"]
    assert table.loc["narrow", "step_ratio"] == table.loc["narrow", "memory_ratio"] == 1
    assert table.loc["narrow", "step_seconds"] > 0
    assert 16 < table.loc["wide", "step_ratio"] < 256  # products grow with the width or with its square
    low, high = table["step_ratio_low"], table["step_ratio_high"]
    assert (low <= table["step_ratio"]).all()
    assert high.to_list() == pytest.approx(low.to_list(), rel=0.1)  # of rounds whose lengths differ a little
    weights = [4 * arm.parameters.total for arm in plan(made).arms]
    for peak, size in zip(table["peak_bytes"], weights, strict=True):
        assert peak > 4 * size  # weights, two moments, and at the end of the backward pass gradients
    assert table.loc["wide", "peak_bytes"] < 8 * weights[1]  # and nothing of the other arm
    assert table["tokens_per_second"].gt(0).all()


def test_a_benchmark_of_no_round_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="rounds: 0 must be at least 1"):
        bench.bench(plan(study(tmp_path / "study")), rounds=0)


def test_the_peak_of_allocations_is_what_is_held_at_once():
    def act():
        first = torch.empty(1000)  # 4,000 bytes
        del first
        second = torch.empty(3000)
        third = torch.empty(2000)
        del second, third

    assert bench._peak_of_allocations(act) == pytest.approx(20_000, rel=0.05)
    assert math.isnan(bench._peak_of_allocations(lambda: None))


@pytest.mark.slow
def test_a_benchmark_over_a_field_shows_how_the_arms_grow(tmp_path, capsys):
    made = study(
        tmp_path / "study",
        base=[*BASE, "data.batch_size=2", "model.d_model=16"],
        axes={"model.kernel": ["math", "flash"]},
        baseline="math",
    )
    assert main(["bench", str(made.folder), "--rounds", "3", "--over", "data.length=64,512,256"]) == 0
    assert "exponent" in capsys.readouterr().out
    table = scaling.read(made.folder)
    assert table["value"].tolist() == [64, 64, 256, 256, 512, 512]
    fits = scaling.exponents(table).set_index(["arm", "measure"])
    assert fits.loc[("math", "memory"), "last"] > fits.loc[("flash", "memory"), "last"] + 0.2  # it keeps all scores
    assert fits.loc[("math", "time"), "low"] < fits.loc[("math", "time"), "exponent"]


def test_exponents_are_those_of_powers():
    values = [100, 200, 400, 800]
    rows = [
        {"arm": arm, "field": "data.length", "value": v, "step_seconds": 1e-6 * v**power, "peak_bytes": 50.0 * v + more}
        for arm, power, more in (("square", 2, 0), ("line", 1, 40_000))
        for v in values
    ]
    fits = scaling.exponents(pd.DataFrame(rows)).set_index(["arm", "measure"])
    for arm, power in (("square", 2), ("line", 1)):
        assert fits.loc[(arm, "time"), ["exponent", "low", "high", "last"]].tolist() == pytest.approx([power] * 4)
    assert fits.loc[("line", "memory"), "exponent"] < fits.loc[("line", "memory"), "last"] < 1  # a constant is in it


def test_two_values_give_an_exponent_without_an_interval():
    rows = [{"arm": "a", "value": v, "step_seconds": v**2.0, "peak_bytes": float(v)} for v in (2, 4)]
    assert scaling.shown(pd.DataFrame(rows))["exponent (95%)"].tolist() == ["2.00", "1.00"]


@pytest.mark.parametrize("text", ["data.length", "data.length=128", "length=1,2", "data.length=a,b", "data.length=0,2"])
def test_a_field_that_grows_is_written_with_its_values(text):
    with pytest.raises(ConfigError, match="expected a field and two numbers or more"):
        scaling.axis(text)


def test_a_value_that_cannot_be_built_is_named_before_anything_is_measured(tmp_path):
    made = study(tmp_path / "study", axes={"model.position": ["rotary", LEARNED]}, baseline="rotary")
    with pytest.raises(ConfigError, match="data.length=128: .*64"):
        scaling.over(made, "data.length", [64, 128], notify=pytest.fail)
