import io

import pytest
from ablation.studies import pretend, study
from rich.console import Console

from variants.ablation import table
from variants.ablation.compare import compare
from variants.ablation.plan import plan
from variants.ablation.results import load, save
from variants.errors import ConfigError

FINAL = {
    "relu": [2.951, 2.967, 2.948, 2.959],
    "gelu": [2.93, 2.949, 2.925, 2.941],
    "swiglu": [2.874, 2.981, 2.902, 2.799],
}


def ran(folder, finals=FINAL, skip=(), **changes):
    """A study whose runs ended so."""
    made = plan(study(folder, smallest_effect=0.02, **changes))
    for run in made.main_runs():
        if (run.arm, run.seed) not in skip:
            pretend(run, losses=(3.9, 3.2, finals[run.arm][run.seed]))
    return made.study


def test_the_table_holds_the_known_answers(tmp_path):
    made = compare(ran(tmp_path / "ff"))
    gelu, swiglu = made.verdicts
    assert (gelu.arm, gelu.judgement, swiglu.judgement) == ("gelu", "better", "inconclusive")
    assert gelu.estimate.p == pytest.approx(0.0010, abs=5e-5)
    frame = table.verdicts(made).set_index("arm")
    assert frame.loc["gelu", table.DIFFERENCE] == "-0.0200 (-0.0251 to -0.0149)"
    assert frame.loc["relu", "verdict"] == "baseline"
    assert frame.loc["relu", "mean"] == "2.9562"
    assert any(note.startswith("untuned") for note in made.notes)


def test_every_form_says_the_same(tmp_path):
    made = compare(ran(tmp_path / "ff"))
    for form in ("markdown", "latex"):
        text = table.text(made, form)
        assert "-0.0200 (-0.0251 to -0.0149)" in text
        assert "inconclusive" in text
        assert "untuned" in text
    assert "gelu,better," in table.text(made, "csv")
    console = Console(file=io.StringIO(), width=80)
    table.show(made, console)
    shown = console.file.getvalue()
    assert made.study.question in shown
    assert "inconclusive" in shown
    assert "untuned" in shown
    assert "-0.0200 (-0.0251 to -0.0149)" in shown
    assert "…" not in shown, "80 columns are enough for every number"


def test_results_csv_alone_gives_the_same_verdicts(tmp_path):
    made = ran(tmp_path / "ff")
    before = compare(made)
    save(load(made))
    (tmp_path / "ff" / "runs").rename(tmp_path / "gone")
    after = compare(made)
    assert after.verdicts == before.verdicts
    assert before.speed_ups
    assert not after.speed_ups


def test_another_baseline_and_metric_may_be_asked_for(tmp_path):
    made = ran(tmp_path / "ff")
    other = compare(made, baseline="gelu")
    assert [v.arm for v in other.verdicts] == ["relu", "swiglu"]
    assert other.verdicts[0].estimate.difference == pytest.approx(0.02)
    assert compare(made, metric="train/loss").metric == "train/loss"
    with pytest.raises(ConfigError, match=r"no metric that a run logged 'val/los' \(did you mean 'val/loss'\?\)"):
        compare(made, metric="val/los")
    with pytest.raises(ConfigError, match="no arm with runs 'geglu'"):
        compare(made, baseline="geglu")


def test_nothing_to_compare_is_said(tmp_path):
    with pytest.raises(ConfigError, match="no run of the comparison has ended yet"):
        compare(study(tmp_path / "ff"))


def test_arms_may_be_compared_at_equal_tokens_operations_or_seconds(tmp_path):
    made = plan(study(tmp_path / "ff", seeds=1, axes={"model.feedforward": ["relu", "swiglu"]}))
    relu, swiglu = made.main_runs()
    pretend(relu, losses=(4.0, 3.0))
    pretend(swiglu, losses=(3.9, 3.1, 2.0))
    at = compare(made.study, by="tokens")
    assert (at.budget, at.values.tolist()) == (300, [[3.0, 3.1]])
    assert compare(made.study).values.tolist() == [[3.0, 2.0]]
    assert compare(made.study, by="seconds").values.tolist() == [[3.0, 3.1]]


def test_seeds_that_are_missing_are_said(tmp_path):
    made = compare(ran(tmp_path / "ff", skip={("gelu", 3)}))
    assert made.verdicts[0].estimate.n == 3
    assert any("not all seeds are there for gelu" in note for note in made.notes)


def test_an_edge_of_the_tuning_grid_is_warned_of_and_a_tuned_study_is_not_called_untuned(tmp_path):
    made = plan(study(tmp_path / "ff", seeds=1, tune={"optimiser.lr": [1e-3, 2e-3, 4e-3]}))
    chosen = {"relu": 2e-3, "gelu": 4e-3, "swiglu": 1e-3}
    for run in [*made.tune_runs(), *made.main_runs({arm: {"optimiser.lr": lr} for arm, lr in chosen.items()})]:
        pretend(run)
    notes = compare(made.study).notes
    assert "gelu: optimiser.lr=0.004 is the largest of its grid; a better one may lie beyond" in notes
    assert "swiglu: optimiser.lr=0.001 is the smallest of its grid; a better one may lie beyond" in notes
    assert not any(note.startswith(("untuned", "relu")) for note in notes)


def test_several_axes_have_main_effects_and_an_interaction(tmp_path):
    axes = {"model.residual": ["pre", "post"], "model.feedforward": ["relu", "swiglu"]}
    made = plan(study(tmp_path / "two", seeds=3, axes=axes, baseline="pre, relu"))
    worth = {"pre+relu": 3.0, "post": 3.2, "swiglu": 2.9, "post+swiglu": 3.1}
    noise = {0: 0.001, 1: -0.002, 2: 0.0015}
    for run in made.main_runs():
        pretend(run, losses=(4.0, worth[run.arm] + noise[run.seed] * len(run.arm) / 10))
    compared = compare(made.study)
    assert [effect.name for effect in compared.effects] == ["post", "swiglu", "post x swiglu"]
    assert compared.effects[0].estimate.difference == pytest.approx(0.2, abs=0.01)
    assert compared.effects[2].estimate.difference == pytest.approx(0.0, abs=0.01)
    frame = table.effects(compared).set_index("effect")["verdict"]
    assert frame["post"] == "worse"
    assert frame["swiglu"] == "better"


def test_the_speed_up_is_read_off_the_baselines_curve_by_operations(tmp_path):
    made = plan(study(tmp_path / "ff", seeds=1, axes={"model.feedforward": ["relu", "swiglu"]}))
    relu, swiglu = made.main_runs()
    pretend(relu, losses=(4.0, 3.5, 3.0))
    pretend(swiglu, losses=(4.0, 3.5))
    ratio = made["relu"].flops_per_token / made["swiglu"].flops_per_token
    assert compare(made.study).speed_ups["swiglu"].factor == pytest.approx(ratio)
