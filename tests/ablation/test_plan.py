import pytest
from ablation.studies import SMALL, form, study

from variants.ablation import plan as plans
from variants.ablation.build import build
from variants.ablation.match import solve
from variants.ablation.plan import plan
from variants.ablation.study import read
from variants.config import compose, identity


def planned(tmp_path, only=None, **changes):
    return plan(read(form(**changes), tmp_path), only=only)


def test_an_arms_config_is_what_the_command_line_would_compose(tmp_path):
    made = planned(tmp_path)
    assert not made.problems
    assert [arm.name for arm in made.arms] == ["relu", "gelu", "swiglu"]
    for arm in made.arms:
        assert arm.config == compose([*SMALL, f"model.feedforward={arm.name}"])


def test_a_whole_group_may_be_an_axis(tmp_path):
    made = planned(
        tmp_path, axes={"model": ["llama_tiny", "vanilla_tiny"]}, base=["model.n_layers=2"], baseline="llama_tiny"
    )
    assert made["vanilla_tiny"].config == compose(["model=vanilla_tiny", "model.n_layers=2"])


def test_interpolations_follow_the_arm(tmp_path):
    base = [*SMALL, "data.length=${model.d_model}"]
    made = planned(tmp_path, base=base, axes={"model.d_model": [16, 32]}, baseline="16")
    assert made["d_model=32"].config["data"]["length"] == 32


def test_an_arm_that_no_objective_trains_is_a_problem(tmp_path):
    made = planned(tmp_path, axes={"model.layout": ["decoder_only", "encoder_only"]}, baseline="decoder_only")
    (problem,) = made.problems
    assert problem.startswith("arm encoder_only: objective: no registered one trains layout encoder_only")


def test_effects_are_read_off_the_model_that_is_built(tmp_path):
    axes = {"model.feedforward": ["relu", "swiglu"], "model.residual": ["pre", "post"]}
    made = planned(tmp_path, axes=axes, baseline="relu, pre")
    assert "stack.layers.*.residual: PreNorm -> PostNorm" in made["post"].effect
    assert any(line.startswith("+ stack.layers.*.feedforward.gate.weight") for line in made["swiglu"].effect)
    assert made.baseline.unchanged
    assert not any(arm.unchanged for arm in made.arms[1:])


def test_an_option_that_changes_nothing_is_flagged(tmp_path):
    arms = {
        "relu": {"model.feedforward": "relu"},
        "kernel": {"model.feedforward": "relu", "model.kernel": "flash"},  # what auto picks on a CPU
        "ratio": {"model.feedforward": {"name": "relu", "ratio": 4.0, "d_ff": 64}},
        "lr": {"model.feedforward": "relu", "optimiser.lr": 1e-2},
    }
    made = planned(tmp_path, axes=None, arms=arms)
    assert not made.problems
    assert [arm.name for arm in made.arms if arm.unchanged] == ["relu", "kernel", "ratio"]
    assert made["kernel"].without_effect == ("comes to the same model and run as relu",)
    assert made["lr"].effect == ("optimiser.lr: 0.001 -> 0.01",)


def test_an_option_that_another_makes_idle_is_no_effect(tmp_path):
    noam = {"model.feedforward": "relu", "schedule": "noam"}
    arms = {"relu": noam, "lr": {**noam, "optimiser.lr": 0.1}}
    made = planned(tmp_path, axes=None, arms=arms)
    assert made["lr"].unchanged
    assert "optimiser.lr has no effect" in made["lr"].without_effect[0]
    lstm = {"model.mixer": "lstm", "model.kernel": "auto"}
    arms = {"relu": lstm, "ten": {**lstm, "model.position": {"name": "rotary", "base": 10.0}}}
    assert planned(tmp_path, axes=None, arms=arms)["ten"].unchanged


def test_a_pattern_over_layers_is_an_effect_by_its_order(tmp_path):
    patches = {"local": {"mixer": {"window": 4}}, "global": {}}
    arms = {name: {"model.layers": {**patches, "pattern": name}} for name in ("local global", "global local")}
    made = planned(tmp_path, axes=None, arms=arms, baseline="local global")
    assert made["global local"].effect == ("stack.layers.*.mixer.window: 4, None -> None, 4",)


# -- matching ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("match", ["parameters", "non_embedding", "flops"])
@pytest.mark.parametrize("model", ["llama_tiny", "transformer_tiny"])
def test_matching_solves_the_hidden_width_to_the_unit(tmp_path, match, model):
    data = "copy" if model == "transformer_tiny" else "bible_en"
    made = planned(tmp_path, base=[f"model={model}", f"data={data}"], match=match)
    assert not made.problems
    amount = {
        "parameters": lambda arm: arm.parameters.total,
        "non_embedding": lambda arm: arm.parameters.non_embedding,
        "flops": lambda arm: arm.flops_per_token,
    }[match]
    target = amount(made.baseline)
    swiglu = made["swiglu"]
    assert abs(swiglu.matched.residual) < 0.01
    assert swiglu.matched.residual == pytest.approx(amount(swiglu) / target - 1)
    width = swiglu.config["model"]["feedforward"]["d_ff"]
    assert width == swiglu.matched.value
    for other in (width - 1, width + 1):
        axes = {"model.feedforward": ["relu", {"name": "swiglu", "d_ff": other}]}
        neighbour = planned(tmp_path, base=[f"model={model}", f"data={data}"], axes=axes).arms[1]
        assert abs(amount(neighbour) - target) >= abs(amount(swiglu) - target)
    assert made["gelu"].matched.residual == 0.0


def test_matching_may_solve_depth_or_width(tmp_path):
    axes = {"model.feedforward": ["relu", {"name": "relu", "ratio": 2.0}]}
    base = [*SMALL, "model.n_layers=40"]
    deep = planned(tmp_path, base=base, axes=axes, match="non_embedding", match_by="model.n_layers")
    assert not deep.problems
    assert deep["relu ratio=2.0"].matched.value == pytest.approx(40 * (4 + 8) / (4 + 4), abs=1)
    base = [*SMALL, "model.d_model=128"]
    wide = planned(tmp_path, base=base, axes=axes, match="parameters", match_by="model.d_model")
    matched = wide["relu ratio=2.0"].matched
    assert (matched.value % 2, abs(matched.residual) < 0.01) == (0, True)  # two heads share it


def test_what_cannot_be_matched_says_what_is_nearest(tmp_path):
    axes = {"model.n_layers": [1, 40]}
    made = planned(tmp_path, base=[*SMALL, "model.feedforward=relu"], axes=axes, baseline="1", match="non_embedding")
    assert len(made.problems) == 1
    assert "arm n_layers=40: match_by model.feedforward.d_ff: nearest to non_embedding of" in made.problems[0]


def test_an_axis_over_the_field_that_matching_solves_is_refused(tmp_path):
    axes = {"model.feedforward.d_ff": [32, 64]}
    made = planned(tmp_path, axes=axes, baseline="32", match="parameters")
    assert "is varied by axis model.feedforward.d_ff" in made.problems[0]


def test_solving_copes_with_gaps_and_curves():
    calls = []

    def amount(value):
        calls.append(value)
        return 12 * value**2 + 5 * value if value % 6 == 0 else None

    assert solve(amount, 12 * 600**2 + 5 * 600 + 7) == (600, 12 * 600**2 + 5 * 600)
    assert len(calls) < 200
    assert solve(lambda v: 7 + 2 * v, 3) == (1, 9)
    with pytest.raises(ValueError, match="no influence"):
        solve(lambda v: 5, 100)
    with pytest.raises(ValueError, match="none of its values"):
        solve(lambda v: None, 100)


def test_a_line_is_solved_with_three_builds():
    calls = []
    assert solve(lambda v: calls.append(v) or 1000 + 384 * v, 1000 + 384 * 341 + 100)[0] == 341
    assert len(calls) == 3


# -- what is found before anything starts -----------------------------------------------------------------------------


def problems_of(tmp_path, **changes):
    return list(planned(tmp_path, **changes).problems)


def test_a_misspelt_axis_is_said_once_with_the_nearest_name(tmp_path):
    lines = problems_of(tmp_path, axes={"model.feedfoward": ["relu", "gelu"]})
    assert len(lines) == 1
    assert "did you mean 'feedforward'?" in lines[0]


def test_a_baseline_that_is_excluded_is_no_arm(tmp_path):
    lines = problems_of(tmp_path, exclude=[{"model.feedforward": "relu"}])
    assert lines == ["baseline: no arm 'relu' (did you mean 'gelu'?); there are: gelu, swiglu"]


def test_arms_that_resolve_to_the_same_config_are_found(tmp_path):
    lines = problems_of(tmp_path, arms={"again": {"model.feedforward": {"name": "gelu"}}})
    assert lines == ["arm again: is the same config as gelu"]


def test_arms_that_cannot_be_built_are_named_all_at_once(tmp_path):
    axes = {"model.n_heads": [2, 3, 5]}
    lines = problems_of(tmp_path, axes=axes, baseline="2")
    assert [line.split(":")[0] for line in lines] == ["arm n_heads=3", "arm n_heads=5"]


def test_a_tuning_grid_that_no_run_could_have_is_found(tmp_path):
    lines = problems_of(tmp_path, tune={"optimiser.lrr": [1e-3, 1e-2]})
    assert len(lines) == 1
    assert lines[0].startswith("tune.optimiser.lrr: ")
    assert "did you mean 'lr'?" in lines[0]


def test_an_unknown_arm_to_run_is_named(tmp_path):
    assert planned(tmp_path, only=["swiglo"]).problems == (
        "only: no arm 'swiglo' (did you mean 'swiglu'?); there are: gelu, relu, swiglu",
    )


def test_a_single_arm_is_nothing_to_compare(tmp_path):
    assert "nothing to compare" in problems_of(tmp_path, axes={"model.feedforward": ["relu"]})[0]


# -- runs -------------------------------------------------------------------------------------------------------------


def test_runs_are_arms_times_seeds_each_with_its_own_config_and_folder(tmp_path):
    made = plan(study(tmp_path / "ff"))
    runs = made.main_runs()
    assert [(run.arm, run.seed) for run in runs[:4]] == [("relu", 0), ("gelu", 0), ("swiglu", 0), ("relu", 1)]
    assert len({run.identity for run in runs}) == len({run.folder for run in runs}) == 12
    for run in runs:
        tracker = run.config["tracker"]
        assert (run.config["seed"], run.config["folder"]) == (run.seed, str(run.folder))
        assert (tracker["group"], tracker["job_type"], tracker["name"]) == ("ff", run.arm, f"{run.arm}/main-{run.seed}")
        assert run.identity == identity(run.config)


def test_tuning_tries_every_arm_at_every_point_on_seeds_of_its_own(tmp_path):
    tune = {"optimiser.lr": [1e-3, 1e-2], "schedule.warmup": [1, 10]}
    made = planned(tmp_path, tune=tune, tune_seeds=[7, 8])
    runs = made.tune_runs()
    assert len(runs) == 3 * 4 * 2
    assert {run.seed for run in runs} == {7, 8}
    assert runs[0].setting == {"optimiser.lr": 1e-3, "schedule.warmup": 1}
    assert runs[0].config["optimiser"]["lr"] == 1e-3
    assert len({run.folder for run in runs}) == len({run.identity for run in runs}) == 24
    main = made.main_runs({"gelu": {"optimiser.lr": 1e-2, "schedule.warmup": 10}})
    assert {run.arm: run.config["optimiser"].get("lr") for run in main} == {"relu": None, "gelu": 1e-2, "swiglu": None}


def test_only_some_arms_may_run(tmp_path):
    made = planned(tmp_path, only=["swiglu"])
    assert {run.arm for run in made.main_runs()} == {"swiglu"}
    assert len(made.arms) == 3


def test_two_hundred_arms_are_planned_with_few_more_models_than_arms(tmp_path, monkeypatch):
    built = []
    monkeypatch.setattr(plans, "build", lambda config: built.append(config) or build(config))
    axes = {
        "model.feedforward": ["relu", "swiglu"],
        "model.mixer.window": [None, 4, 8, 16, 32],
        "optimiser.lr": [1e-4 * i for i in range(1, 21)],
    }
    made = planned(tmp_path, axes=axes, baseline=["relu", None, 1e-4], match="parameters")
    assert len(made.arms) == 200
    assert not made.problems
    assert len(built) < 220  # relu's are the baseline's size as they are, swiglu's are solved once
