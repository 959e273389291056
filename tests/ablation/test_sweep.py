"""A sweep carries out what is left to do, and says what went wrong; its runs are in this process here."""

import json

import pytest
import torch
from sweeping import inline, runs, swept, write_study

from variants import config as configs
from variants.ablation import evaluate
from variants.ablation import study as studies
from variants.ablation.plan import plan
from variants.ablation.sweep import held
from variants.cli import main
from variants.errors import ConfigError
from variants.training.checkpoints import read_checkpoint
from variants.training.metrics import read_metrics

BAD = {"trainer.callbacks": [{"name": "raising", "at": 2}]}


def states(folder):
    noted = {run: json.loads((run / "status.json").read_text()) for run in runs(folder)}
    return {f"{run.parent.name}/{run.name}": status["state"] for run, status in noted.items()}


def history(run):
    return [{k: v for k, v in row.items() if k != "tokens_per_second"} for row in read_metrics(run / "metrics.csv")]


def test_two_runs_of_four_that_fail_stop_no_other_and_are_named_with_their_last_lines(tmp_path):
    arms = {"good": {"model.norm": "rmsnorm"}, "bad": BAD}
    folder = write_study(tmp_path / "s", axes=None, baseline="good", arms=arms)
    undone, said = swept(folder)
    assert undone == 2
    assert states(folder) == {
        "bad/main-0": "failed",
        "bad/main-1": "failed",
        "good/main-0": "finished",
        "good/main-1": "finished",
    }
    for seed in (0, 1):
        assert f"failed: bad/main-{seed}: RuntimeError: raised after update 2" in said


def test_a_run_that_failed_is_tried_again_on_request_alone_and_goes_on_where_it_was(tmp_path, monkeypatch):
    folder = write_study(tmp_path / "s", axes=None, baseline="good", seeds=1, arms={"good": {}, "bad": BAD})
    swept(folder)
    undone, said = swept(folder, launch=lambda jobs, watch: pytest.fail("nothing is to be run"))
    assert undone == 1
    assert "1 failed before, and are tried again with --retry" in said
    import misbehaving

    monkeypatch.setattr(misbehaving.Raising, "on_train_batch_end", lambda *_: None)
    assert swept(folder, retry=True)[0] == 0
    good, bad = (history(folder / "runs" / arm / "main-0") for arm in ("good", "bad"))
    assert [row["step"] for row in bad] == [1, 2, 3, 4]
    assert bad == good


def test_a_run_that_fails_before_it_begins_says_so_and_can_be_tried_again(tmp_path):
    folder = write_study(tmp_path / "s", seeds=1)
    undone, said = swept(folder, imports=["no_such_module"])
    assert undone == 2
    assert "No module named 'no_such_module'" in said
    assert swept(folder, retry=True)[0] == 0


def test_runs_that_are_done_are_left_alone_and_the_others_begun(tmp_path):
    folder = write_study(tmp_path / "s")
    assert swept(folder, only=["layernorm"])[0] == 0
    assert len(runs(folder)) == 2
    begun = []

    def noting(jobs, watch):
        begun.extend(job.name for job in jobs)
        inline(jobs, watch)

    assert swept(folder, noting)[0] == 0
    assert begun == ["rmsnorm/main-0", "rmsnorm/main-1"]


def test_every_run_has_its_own_seed_in_its_config_and_its_arm_in_the_tracker(tmp_path):
    folder = write_study(tmp_path / "s")
    swept(folder)
    there = [configs.load(run / "config.yaml") for run in runs(folder)]
    assert sorted((c["model"]["norm"]["name"], c["seed"]) for c in there) == [
        ("layernorm", 0),
        ("layernorm", 1),
        ("rmsnorm", 0),
        ("rmsnorm", 1),
    ]
    assert {(c["tracker"]["group"], c["tracker"]["job_type"]) for c in there} == {("s", "layernorm"), ("s", "rmsnorm")}
    first = [history(run)[0]["train/loss"] for run in runs(folder)]
    assert first[0] != first[1]


def test_the_order_of_the_runs_changes_none_of_them(tmp_path):
    one, other = write_study(tmp_path / "one"), write_study(tmp_path / "other")
    swept(one)
    swept(other, lambda jobs, watch: inline(jobs[::-1], watch))
    for run, twin in zip(runs(one), runs(other), strict=True):
        assert history(run) == history(twin)
        weights = [read_checkpoint(r / "checkpoints" / "last.ckpt")["state_dict"] for r in (run, twin)]
        assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def test_each_arm_is_compared_with_the_setting_that_its_tuning_chose(tmp_path):
    folder = write_study(tmp_path / "s", "optimiser=adamw", tune={"optimiser.lr": [1e-5, 3e-2]}, seeds=1)
    assert swept(folder)[0] == 0
    rates = {run.name: configs.load(run / "config.yaml")["optimiser"]["lr"] for run in runs(folder)}
    assert rates["main-0"] == 3e-2
    assert sorted(v for n, v in rates.items() if n.startswith("tune")) == [1e-5, 3e-2]


def test_an_arm_whose_tuning_failed_waits_and_the_others_are_compared(tmp_path):
    arms = {"good": {"model.norm": "rmsnorm"}, "bad": BAD}
    folder = write_study(tmp_path / "s", axes=None, baseline="good", arms=arms, tune={"optimiser.lr": [1e-3]}, seeds=1)
    undone, said = swept(folder)
    assert undone == 2
    assert "arm bad waits for its tuning" in said
    assert states(folder)["good/main-0"] == "finished"


def test_a_trained_run_is_evaluated_on_other_data_and_a_refusal_is_a_finding(tmp_path):
    evaluations = {"long": ["data.max_length=9"], "other": ["data.symbols=7"], "same": ["seed=5"]}
    folder = write_study(tmp_path / "s", seeds=1, evaluate=evaluations)
    assert swept(folder)[0] == 0
    for run in runs(folder):
        found = evaluate.read(run)
        assert found["same"]["val/loss"] == history(run)[-1]["val/loss"]
        assert found["long"]["val/loss"] > 0
        assert found["long"] != found["same"]
        assert "vocab of the data is" in found["other"]["refused"]
    (runs(folder)[0] / evaluate.FILE).unlink()
    begun = []
    swept(folder, lambda jobs, watch: (begun.extend(jobs), inline(jobs, watch)))
    assert len(begun) == 1  # trained already, and evaluated again
    assert evaluate.missing(runs(folder)[0], ["long", "other", "same"]) == []


def test_learned_positions_that_are_too_short_are_a_finding(tmp_path):
    folder = write_study(tmp_path / "s", "model.position=learned", seeds=1, evaluate={"long": ["data.max_length=9"]})
    assert swept(folder, only=["rmsnorm"])[0] == 0
    assert "of the learned positions" in evaluate.read(runs(folder)[0])["long"]["refused"]


def test_a_second_sweep_of_the_same_study_is_refused_and_spoils_nothing(tmp_path):
    folder = write_study(tmp_path / "s")
    with held(studies.load(folder)), pytest.raises(ConfigError, match="is being swept by another process"):
        swept(folder)
    assert runs(folder) == []
    assert swept(folder)[0] == 0


def test_runs_of_another_config_are_refused_and_kept(tmp_path):
    folder = write_study(tmp_path / "s", seeds=1)
    swept(folder)
    before = {run: (run / "metrics.csv").read_text() for run in runs(folder)}
    write_study(folder, "trainer.max_steps=6", seeds=1)
    with pytest.raises(ConfigError, match=r"holds a run of another config \(trainer.max_steps: 4 -> 6\)"):
        swept(folder)
    assert before == {run: (run / "metrics.csv").read_text() for run in runs(folder)}


def test_a_run_of_another_config_that_failed_before_its_first_update_is_begun_anew(tmp_path):
    folder = write_study(tmp_path / "s", "trainer.callbacks=[{name: raising, at: 0}]", seeds=1)
    assert swept(folder)[0] == 2
    write_study(folder, seeds=1)
    assert swept(folder)[0] == 0
    assert set(states(folder).values()) == {"finished"}


def test_time_that_is_over_starts_no_more_runs(tmp_path):
    folder = write_study(tmp_path / "s")
    undone, _ = swept(folder, limit_hours=0.0)
    assert undone == 4
    assert runs(folder) == []


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--slots", "0"], "launcher local: slots=0: must be at least 1"),
        (["--launcher", "slrm"], "launcher: no launcher 'slrm' (did you mean 'slurm'?)"),
        (["--launcher", "{name: slurm, minuts: 5}"], "launcher.minuts: no field of launcher slurm 'minuts'"),
        (["--launcher", "{name: slurm, minutes: 2}"], "launcher slurm: minutes=2: must be at least 3"),
        (["--only", "rmsnrom"], "only: no arm 'rmsnrom' (did you mean 'rmsnorm'?)"),
    ],
)
def test_a_wrong_request_gets_a_line_and_starts_nothing(tmp_path, capsys, arguments, line):
    folder = write_study(tmp_path / "s")
    assert main(["sweep", str(folder), *arguments]) == 2
    assert line in capsys.readouterr().err
    assert runs(folder) == []


def test_a_dry_run_shows_arms_costs_and_time_and_trains_nothing(tmp_path, capsys):
    folder = write_study(tmp_path / "s", match="parameters")
    assert main(["sweep", str(folder), "--dry-run"]) == 0
    said = capsys.readouterr().out
    parameters = plan(studies.load(folder)).baseline.parameters.total
    for words in ("layernorm (baseline)", f"{parameters:,}", "4 of 4 are left to do", "about "):
        assert words in said
    assert not (folder / "runs").exists()
