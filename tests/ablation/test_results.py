import pandas as pd
import pytest
from ablation.studies import SMALL, damage, evaluated, pretend, study

from variants.ablation.plan import plan
from variants.ablation.results import load, save


@pytest.fixture
def planned(tmp_path):
    return plan(study(tmp_path / "ff", seeds=2, axes={"model.feedforward": ["relu", "gelu"]}))


def test_a_run_is_a_row_and_a_logged_step_a_row_of_its_curve(planned):
    for run in planned.main_runs():
        pretend(run, losses=(4.0, 3.5))
    made = load(planned.study)
    assert not made.warnings
    row = made.runs.iloc[0]
    arm = planned["gelu"]
    assert (row["study"], row["arm"], row["model.feedforward"], row["stage"], row["seed"]) == (
        "ff",
        "gelu",
        "gelu",
        "main",
        0,
    )
    assert (row["state"], row["step"], row["tokens"], row["val/loss"], row["kernel"]) == (
        "finished",
        3,
        300,
        3.5,
        "flash",
    )
    assert (row["parameters"], row["flops"]) == (arm.parameters.total, 300 * arm.flops_per_token)
    assert row["seconds"] == 6.0  # 200 tokens and then 100 at 50 a second
    assert (row["diverged"], row["stale"], row["identity"]) == (False, False, planned.main_runs()[1].identity)
    assert len(made.runs) == 4
    curve = made.curves[(made.curves["arm"] == "gelu") & (made.curves["seed"] == 1)]
    assert list(curve["step"]) == [1, 2, 3]
    assert list(curve["val/loss"].dropna()) == [4.0, 3.5]
    assert made.metrics == ["train/loss", "tokens_per_second", "val/loss"]


def test_evaluations_are_metrics(planned):
    evaluated(pretend(planned.main_runs()[0]), long={"val/loss": 4.5}, longer={"refused": "too long"})
    made = load(planned.study)
    assert made.runs["long/val/loss"].tolist() == [4.5]


def test_a_study_that_has_not_run_has_empty_results(planned):
    made = load(planned.study)
    assert (len(made.runs), len(made.curves), made.warnings) == (0, 0, ())
    assert made.compared().empty


def test_divergence_is_a_rule_that_does_not_see_the_arm(planned):
    runs = planned.main_runs()
    pretend(runs[0], losses=(4.0,), state="diverged")
    pretend(runs[1], losses=(6.0, 5.0))  # not below the first loss
    pretend(runs[2], losses=(4.0, float("nan")))
    pretend(runs[3], losses=(6.0, 5.5), state="running")
    made = load(planned.study).runs.set_index(["seed", "arm"])["diverged"]
    assert made.to_dict() == {(0, "relu"): True, (0, "gelu"): True, (1, "relu"): True, (1, "gelu"): False}


def test_what_is_damaged_is_a_line_and_nothing_else_is_lost(planned):
    folders = [pretend(run) for run in planned.main_runs()]
    damage(folders[0])
    folders[1].metrics.write_text("step,tokens\nx,y\n")
    folders[2].config.write_text("half: [of")
    made = load(planned.study)
    assert len(made.runs) == 4
    assert sorted(line.split(": ")[0] for line in made.warnings) == [
        "runs/gelu/main-0", "runs/relu/main-0", "runs/relu/main-1",
    ]  # fmt: skip
    assert made.runs.set_index("folder")["state"].to_dict() == {
        "runs/gelu/main-0": "damaged",
        "runs/gelu/main-1": "finished",
        "runs/relu/main-0": "damaged",
        "runs/relu/main-1": "finished",
    }
    assert list(made.compared()["folder"]) == ["runs/gelu/main-0", "runs/gelu/main-1", "runs/relu/main-0"]


def test_runs_of_another_version_are_shown_with_the_change_and_left_out(planned, tmp_path):
    for run in planned.main_runs():
        pretend(run)
    other = study(
        tmp_path / "ff", seeds=2, axes={"model.feedforward": ["relu", "gelu"]}, base=[*SMALL, "trainer.max_steps=9"]
    )
    made = load(other)
    assert len(made.warnings) == 1
    assert "are runs of another version of the config (trainer.max_steps: 4 -> 9)" in made.warnings[0]
    assert len(made.runs) == 4
    assert made.compared().empty


def test_runs_of_other_arms_and_seeds_are_named(planned, tmp_path):
    for run in planned.main_runs():
        pretend(run)
    (tmp_path / "ff" / "runs" / "gelu" / "notes").mkdir()
    made = load(study(tmp_path / "ff", seeds=1, axes={"model.feedforward": ["relu", "swiglu"]}))
    assert sorted(made.warnings) == [
        "runs/gelu/main-0: belongs to no arm of the study; left out",
        "runs/gelu/main-1: belongs to no arm of the study; left out",
        "runs/gelu/notes: belongs to no arm of the study; left out",
        "runs/relu/main-1: 1 is not among the study's seeds; left out",
    ]
    assert list(made.compared()["folder"]) == ["runs/relu/main-0"]


def test_a_tuned_run_is_no_other_version_and_tells_its_setting(tmp_path):
    made = plan(study(tmp_path / "ff", seeds=1, tune={"optimiser.lr": [1e-3, 2e-3]}))
    chosen = {arm.name: {"optimiser.lr": 2e-3} for arm in made.arms}
    for run in [*made.tune_runs(), *made.main_runs(chosen)]:
        pretend(run)
    results = load(made.study)
    assert not results.warnings
    assert sorted(results.runs["optimiser.lr"]) == [1e-3] * 3 + [2e-3] * 6
    assert set(results.compared()["optimiser.lr"]) == {2e-3}


def test_results_csv_serves_where_the_runs_are_not(planned, tmp_path):
    folders = [pretend(run) for run in planned.main_runs()]
    made = load(planned.study)
    path = save(made)
    (tmp_path / "ff" / "runs").rename(tmp_path / "elsewhere")
    again = load(planned.study)
    assert not again.warnings
    pd.testing.assert_frame_equal(again.runs, made.runs, check_dtype=False)
    assert again.curves.empty
    assert again.metrics == made.metrics
    (tmp_path / "elsewhere").rename(tmp_path / "ff" / "runs")
    folders[0].path.rename(tmp_path / "lost")
    save(load(planned.study))
    assert sorted(pd.read_csv(path)["folder"]) == sorted(made.runs["folder"])  # what was there is not lost


def test_a_damaged_results_csv_is_a_line(planned):
    (planned.study.folder / "results.csv").write_text("a,b\n1,2\n")
    made = load(planned.study)
    assert "it lacks arm, diverged" in made.warnings[0]
    assert made.runs.empty
