import pytest
from ablation.studies import form, study

from variants.ablation.study import load, read
from variants.errors import ConfigError


def problems_of(tmp_path, **changes):
    with pytest.raises(ConfigError) as error:
        read(form(**changes), tmp_path)
    return list(error.value.problems)


def test_a_study_is_read_with_its_defaults(tmp_path):
    study(tmp_path / "ff")
    made = load(tmp_path / "ff")
    assert (made.name, made.baseline, made.seeds, made.tune_seeds) == ("ff", "relu", (0, 1, 2, 3), (1000,))
    assert (made.metric, made.better, made.match, made.match_by) == (
        "val/loss",
        "lower",
        "none",
        "model.feedforward.d_ff",
    )
    assert made == load(tmp_path / "ff" / "study.yaml")


def test_numbers_are_read_as_on_the_command_line(tmp_path):
    (tmp_path / "study.yaml").write_text(
        "question: q?\nprediction: p\nbase: [model=llama_tiny]\nbaseline: relu\n"
        "axes: {model.feedforward: [relu, gelu]}\ntune: {optimiser.lr: [1e-3, 2e-3]}\n"
    )
    assert load(tmp_path).tune == {"optimiser.lr": [0.001, 0.002]}


def test_arms_are_named_by_what_departs_from_the_baseline(tmp_path):
    axes = {
        "model.residual": ["pre", "post"],
        "warmup": {"no-warmup": {"schedule.warmup": 1}, "warmup": {"schedule.warmup": 100}},
        "model.n_layers": [2, 4],
        "model.feedforward": ["relu", {"name": "swiglu", "ratio": 4}],
    }
    made = read(form(axes=axes, baseline="pre, no-warmup, 2, relu"), tmp_path)
    names = [made.name_of(factors) for factors in made.factors()]
    assert made.baseline == names[0] == "pre+no-warmup+n_layers=2+relu"
    assert names[1:4] == ["swiglu ratio=4", "n_layers=4", "n_layers=4+swiglu ratio=4"]
    assert names[-1] == "post+warmup+n_layers=4+swiglu ratio=4"
    assert len(set(names)) == 16
    listed = read(form(axes=axes, baseline=["pre", "no-warmup", 2, "relu"]), tmp_path)
    assert listed.baseline == made.baseline


def test_a_level_that_two_axes_share_is_named_with_its_axis(tmp_path):
    axes = {"model.encoder.norm": ["layernorm", "rmsnorm"], "model.decoder.norm": ["layernorm", "rmsnorm"]}
    made = read(form(axes=axes, baseline="layernorm, layernorm"), tmp_path)
    names = [made.name_of(f) for f in made.factors()]
    assert names[1:3] == ["model.decoder.norm=rmsnorm", "model.encoder.norm=rmsnorm"]


def test_exclusions_leave_combinations_out(tmp_path):
    axes = {"model.feedforward": ["relu", "gelu", "swiglu"], "model.n_layers": [2, 4]}
    rule = [{"model.feedforward": ["gelu", "swiglu"], "model.n_layers": 4}]
    made = read(form(axes=axes, baseline="relu, 2", exclude=rule), tmp_path)
    assert [made.name_of(f) for f in made.factors()] == ["relu+n_layers=2", "n_layers=4", "gelu", "swiglu"]


def test_an_explicit_arm_may_be_the_baseline(tmp_path):
    arms = {"old": {"model.norm": "layernorm"}, "new": {"model.norm": "rmsnorm"}}
    made = read(form(axes=None, arms=arms, baseline="old"), tmp_path)
    assert (made.baseline, dict(made.origin), list(made.factors())) == ("old", {}, [])


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"question": None}, "question: missing; what does it ask? Write it down before the study runs"),
        ({"prediction": ""}, "prediction: missing; what do you expect, and why? Write it down before the study runs"),
        ({"baseline": None}, "baseline: missing; name the arm that the others are compared with, such as relu"),
        ({"baseline": "rleu"}, "baseline: no level of model.feedforward 'rleu' (did you mean 'relu'?)"),
        ({"baseline": "relu, 4"}, "baseline: relu, 4: 2 levels for 1 axes (model.feedforward)"),
        ({"axes": {"model.feedforward": []}}, "axes.model.feedforward: is empty; an axis needs its values"),
        ({"axes": {"model.feedforward": ["relu", "relu"]}}, "axes.model.feedforward: relu is there twice"),
        ({"axes": None}, "axes: missing; name a field to vary, such as model.feedforward: [relu, swiglu]"),
        ({"seeds": 0}, "seeds: 0: at least one seed is needed"),
        ({"seeds": [1, 1]}, "seeds: [1, 1]: a seed is there twice"),
        ({"seeds": "five"}, "seeds: expected an integer or a list, got 'five'"),
        ({"match": "size"}, "match: expected one of 'parameters', 'non_embedding', 'flops', 'none', got 'size'"),
        ({"smallest_effect": 0}, "smallest_effect: 0.0 must be positive"),
        ({"tune": {"optimiser.lr": 1e-3}}, "tune.optimiser.lr: expected a list of values, got 0.001"),
        ({"tune": {"optimiser.lr": [1e-3]}, "tune_seeds": [3]}, "tune_seeds: [3] are in seeds as well"),
        (
            {"exclude": [{"model.feedfoward": "relu"}]},
            "exclude.0: no axis 'model.feedfoward' (did you mean 'model.feedforward'?)",
        ),
        ({"exclude": [{}]}, "exclude.0: is empty, which would leave out every arm"),
        (
            {"evaluate": {"long": "data.length=512"}},
            "evaluate.long: expected a list of overrides, such as [data.length=512]",
        ),
    ],
)
def test_what_is_wrong_with_a_study_is_a_line(tmp_path, changes, line):
    problems = problems_of(tmp_path, **changes)
    assert len(problems) == 1
    assert problems[0].startswith(line)


def test_everything_that_is_wrong_is_said_at_once(tmp_path):
    lines = problems_of(tmp_path, question=None, seed=3, axes={"model.feedforward": []}, smallest_effect=-1)
    assert [line.split(":")[0] for line in lines] == [
        "seed",
        "question",
        "axes.model.feedforward",
        "smallest_effect",
    ]
    assert "did you mean 'seeds'?" in lines[0]


def test_a_folder_without_a_study_says_so(tmp_path):
    with pytest.raises(ConfigError, match="no study there"):
        load(tmp_path)
    (tmp_path / "study.yaml").write_text("question: [half")
    with pytest.raises(ConfigError, match="study.yaml: line 1"):
        load(tmp_path)
