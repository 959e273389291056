"""`variants new study` writes a study that runs as it is."""

import pytest

from variants.ablation import study as studies
from variants.ablation.new import PREDICTION, new
from variants.ablation.plan import plan
from variants.cli import main
from variants.errors import ConfigError

TINY = ["model.d_model=16", "model.n_layers=1", "model.n_heads=2"]


def test_a_new_study_can_be_planned_as_it_is_and_asks_for_a_question_and_a_prediction(tmp_path, capsys):
    arguments = ["new", "study", "ff", "--axis", "model.feedforward=relu,{name: swiglu, ratio: 4}"]
    assert main([*arguments, "--base", *TINY, "--into", str(tmp_path)]) == 0
    assert f"variants sweep {tmp_path / 'ff'}" in capsys.readouterr().out
    study = studies.load(tmp_path / "ff")
    planned = plan(study)
    assert planned.problems == ()
    assert [arm.name for arm in planned.arms] == ["relu", "swiglu ratio=4"]
    assert (study.baseline, study.match, study.prediction) == ("relu", "parameters", PREDICTION)
    assert planned.main_runs()
    readme = (tmp_path / "ff" / "README.md").read_text()
    assert "**Question.**" in readme
    assert "**Prediction.** None was written down." in readme


def test_arms_that_cannot_be_matched_are_compared_as_they_are(tmp_path):
    new(tmp_path / "width", ["model.feedforward.d_ff=32,64"], TINY)
    new(tmp_path / "rate", ["optimiser.lr=1e-3,2e-3", "seed=0,1"][:1], TINY)
    assert {studies.load(tmp_path / name).match for name in ("width", "rate")} == {"none"}


def test_the_base_may_be_another_one(tmp_path):
    new(tmp_path / "s", ["model.norm=layernorm,rmsnorm"], ["model=transformer_tiny", "data=copy"])
    assert studies.load(tmp_path / "s").base == ("trainer.max_steps=300", "model=transformer_tiny", "data=copy")


@pytest.mark.parametrize(
    ("axis", "line"),
    [
        ("model.norm", "an axis is written field=value,value"),
        ("model.norm=", "an axis is written field=value,value"),
        ("model.nrom=layernorm,rmsnorm", "did you mean 'norm'?"),
        ("model.norm=layernorm,rmsnrom", "did you mean 'rmsnorm'?"),
        ("model.norm=rmsnorm", "is the only arm"),
    ],
)
def test_a_study_that_could_not_run_is_not_written(tmp_path, axis, line):
    with pytest.raises(ConfigError) as caught:
        new(tmp_path / "s", [axis], TINY)
    assert line in str(caught.value)
    assert not (tmp_path / "s").exists()


def test_a_study_that_is_there_is_kept(tmp_path):
    new(tmp_path / "s", ["model.norm=layernorm,rmsnorm"], TINY)
    with pytest.raises(ConfigError, match="is there already"):
        new(tmp_path / "s", ["model.norm=layernorm,rmsnorm"], TINY)
