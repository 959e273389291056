"""Composing a run's config: files, overrides, one merge rule, and every problem said before anything starts."""

import pytest

from variants import config as configs
from variants.config import ConfigError, compose


@pytest.fixture
def own(tmp_path):
    """A user's folder of config files."""

    def write(path, text):
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return tmp_path

    return write


def test_the_defaults_compose():
    config = compose()
    assert config["model"]["d_model"] == 128
    assert config["trainer"]["precision"] == "32-true"


def test_another_name_drops_the_presets_fields_and_the_same_name_keeps_them():
    assert compose(["model=gpt2", "model.feedforward=relu"])["model"]["feedforward"] == {"name": "relu"}
    kept = compose(["model=gpt2", "model.feedforward=gelu"])["model"]["feedforward"]
    assert kept["approximate"] == "tanh"


def test_overrides_are_laid_in_their_order_whatever_their_place_beside_presets():
    config = compose(["model.d_model=64", "model=gpt2", "model.d_model=96"])
    assert (config["model"]["d_model"], config["model"]["position"]["name"]) == (96, "learned")


def test_a_value_is_split_at_the_first_equals_sign():
    assert compose(["tracker.notes=a=b"])["tracker"]["notes"] == "a=b"


def test_the_trackers_name_is_no_choice():
    assert compose(["tracker.name=first", "tracker.project=p"])["tracker"]["project"] == "p"
    assert compose(["tracker=wandb", "tracker.name=first"])["tracker"]["mode"] == "online"


def test_the_users_folder_comes_first_and_may_build_on_a_packaged_file(own):
    folder = own("model/mine.yaml", "base: llama_tiny\nfeedforward: relu\nd_model: 64\n")
    model = compose(["model=mine"], folder)["model"]
    assert (model["d_model"], model["feedforward"], model["position"]["name"]) == (64, {"name": "relu"}, "rotary")


@pytest.mark.parametrize(
    ("model", "data", "own"), [("gpt2", "text", "causal_lm"), ("transformer_tiny", "copy", "seq2seq")]
)
def test_an_objectives_fields_alone_are_laid_over_the_layouts_own(model, data, own):
    said = [f"model={model}", f"data={data}", "data.path=x"][: 2 + (data == "text")]
    patched = compose([*said, "objective.label_smoothing=0.1"])
    assert patched["objective"] == {"name": own, "label_smoothing": 0.1}
    assert patched == compose([*said, f"objective={own}", "objective.label_smoothing=0.1"])
    assert compose(said)["objective"] is None


@pytest.mark.parametrize(
    ("said", "line"),
    [
        (
            ["objective.label_smooting=0.1"],
            "objective.label_smooting: no field of objective causal_lm 'label_smooting'",
        ),
        (["objective.label_smoothing=0.1", "model.layout=x"], "model.layout: no layout 'x'"),
        (["objective.label_smoothing=0.1", "model.layout=encoder_only"], "objective: expected a choice of objective"),
    ],
)
def test_a_patch_of_an_objective_that_cannot_be_laid_gets_one_line(said, line):
    with pytest.raises(ConfigError) as caught:
        compose(said)
    assert len(caught.value.problems) == 1
    assert caught.value.problems[0].startswith(line)


def test_interpolations_are_resolved(own):
    folder = own(
        "model/mine.yaml", "base: llama_tiny\nd_model: 64\nfeedforward: {name: relu, d_ff: '${model.d_model}'}\n"
    )
    assert compose(["model=mine"], folder)["model"]["feedforward"]["d_ff"] == 64


@pytest.mark.parametrize("written", ["1e-4", "0.0001"])
def test_numbers_read_the_same_in_a_file_and_on_the_command_line(own, written):
    folder = own("optimiser/mine.yaml", f"name: adamw\nlr: {written}\n")
    of_file = compose(["optimiser=mine"], folder)["optimiser"]["lr"]
    assert of_file == compose([f"optimiser.lr={written}"])["optimiser"]["lr"] == 1e-4


def test_scientific_notation_serves_where_it_is_whole():
    assert compose(["trainer.max_steps=1e5"])["trainer"]["max_steps"] == 100_000


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("modle=gpt2", "no part of a run 'modle' (did you mean 'model'?)"),
        ("model=gtp2", "no model preset 'gtp2' (did you mean 'gpt2'?)"),
        ("data=bible", "no data preset 'bible' (did you mean 'bible_en'?)"),
        ("model.nrom=rmsnorm", "model.nrom: no field of a model 'nrom' (did you mean 'norm'?)"),
        ("model.norm=rmsnrom", "model.norm: no norm 'rmsnrom' (did you mean 'rmsnorm'?)"),
        ("model.feedforward.raito=3", "model.feedforward.raito: no field of feedforward swiglu 'raito'"),
        ("model.mixer.qk_norm=rmsnrom", "model.mixer.qk_norm: no norm 'rmsnrom'"),
        ("model.d_model=wide", "model.d_model: expected an integer, got 'wide'"),
        ("model.norm=None", "model.norm: no norm 'None'"),
        ("model.norm=off", "model.norm: expected a choice of norm (layernorm"),
        ("model.bias=maybe", "model.bias: expected true or false or null"),
        ("model.dropout=1.5", "model.dropout: 1.5 is not a rate"),
        ("model.encoder.d_model=3", "model.encoder.d_model: no field of this patch 'd_model'"),
        ("model.layers.x.norm=layernorm", "model.layers.x: neither a layer's index nor a name in the pattern"),
        ("trainer.max_step=3", "trainer.max_step: no field of a trainer 'max_step' (did you mean 'max_steps'?)"),
        ("trainer.gradient_checkpointing=some", "expected none, full or every_N, got 'some'"),
        ("seed=x", "seed: expected an integer, got 'x'"),
        ("folder=2025", "folder: expected text or null, got 2025; if text is meant, quote it: \"'2025'\""),
        ("data.path=2024", "data.path: expected text, got 2024; if text is meant, quote it: \"'2024'\""),
        ("tracker.name=yes", "tracker.name: expected text or null, got True; if text is meant, quote it: \"'true'\""),
        ("model.norm", "an override is written name=value"),
        ("model.norm={name", "is no YAML value"),
    ],
)
def test_a_wrong_override_gets_one_clear_line(override, said):
    with pytest.raises(ConfigError) as caught:
        compose([override])
    assert len(caught.value.problems) == 1
    assert said in caught.value.problems[0]


def test_a_quoted_number_is_text(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "2024").mkdir()
    config = compose(["data=text", "data.path='2024'", "folder='1e3'"])
    assert (config["data"]["path"], config["folder"]) == ("2024", "1e3")
    (tmp_path / "config.yaml").write_text(configs.to_text(config))
    assert configs.load(tmp_path / "config.yaml") == config


def test_all_that_is_wrong_is_said_at_once():
    with pytest.raises(ConfigError) as caught:
        compose(["model.norm=x", "model.d_model=y", "optimiser.lrr=1", "trainer.max_steps=0", "tracker.mode=z"])
    assert len(caught.value.problems) == 5


def test_lightnings_other_arguments_are_passed_on():
    assert compose(["trainer.max_time=00:01:00:00"])["trainer"]["max_time"] == "00:01:00:00"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("base: nowhere\n", "no base 'nowhere'"),
        ("base: mine\n", "base goes in a circle: mine -> mine"),
        ("d_model: [\n", "mine.yaml: line"),
        ("- a\n- b\n", "expected a mapping"),
        ("base: llama_tiny\nd_model: '${model.nothing}'\n", "nothing"),
    ],
)
def test_a_wrong_file_gets_one_clear_line(own, text, said):
    with pytest.raises(ConfigError, match=said) as caught:
        compose(["model=mine"], own("model/mine.yaml", text))
    assert len(caught.value.problems) == 1


def test_a_config_survives_saving_and_loading(tmp_path):
    config = compose(["model=gpt2_tiny", "optimiser.lr=1e-4", "tracker.name=x"])
    (tmp_path / "config.yaml").write_text(configs.to_text(config))
    assert configs.load(tmp_path / "config.yaml") == config


def test_an_identity_changes_with_what_can_change_the_result_alone():
    same = [compose(), compose(["tracker.name=x"]), compose(["trainer.enable_progress_bar=false"])]
    assert len({configs.identity(config) for config in same}) == 1
    assert configs.identity(compose(["seed=1"])) != configs.identity(compose())


def test_departures_name_what_an_override_changed():
    changed = configs.departures(compose(["model.residual=post"]), compose())
    assert changed == {"model.residual": ("pre", "post")}


def test_fields_of_one_choice_are_written_as_overrides_are():
    assert configs.fields(["d_ff=8", "qk_norm.name=rmsnorm", "qk_norm.norm_eps=1e-5"]) == {
        "d_ff": 8,
        "qk_norm": {"name": "rmsnorm", "norm_eps": 1e-5},
    }
    assert configs.fields([]) == {}
    with pytest.raises(ConfigError) as caught:
        configs.fields(["d_ff", "a=1", "b=["])
    assert len(caught.value.problems) == 2
