"""Decoder-only models become checkpoints of transformers with the same logits, or are refused by name."""

import json

import pytest
import torch

from variants import config as configs
from variants import slots
from variants.data.kept import keep
from variants.data.tokenizer import Tokenizer
from variants.errors import ConfigError
from variants.generation import decode
from variants.generation.text import load_run
from variants.interop import from_transformers, model_config_of, to_transformers
from variants.interop.export import export_run
from variants.models import build
from variants.models.skeleton import Skeleton
from variants.registry import SLOTS, fields_of, merge

transformers = pytest.importorskip("transformers")

SIZES = {"d_model": 32, "n_layers": 2, "n_heads": 4, "vocab": 50, "max_length": 24}


def preset(name, **fields):
    """A preset's choices at a size of nothing, with weights that all matter."""
    fields = {**SIZES, "initialiser": {"name": "normal", "std": 0.2}, **fields}
    model = configs.compose([f"model={name}"])["model"]
    for field, value in fields.items():
        model[field] = merge(model[field], value)
    built = build(model)
    for parameter in built.parameters():
        if parameter.dim() == 1:
            parameter.data.add_(torch.randn_like(parameter), alpha=0.1)
    return built.eval(), model


CASES = {
    "llama": ("llama_tiny", {}),
    "llama untied": ("llama_7b", {"feedforward": {"multiple_of": 8}}),
    "llama with every option that it has": (
        "llama_tiny",
        {
            "mixer": {"n_kv_heads": 2, "d_head": 6, "out_bias": True},
            "position": {"base": 300.0},
            "feedforward": {"name": "geglu", "d_ff": 20, "bias": True},
            "kernel": "math",
            "decoder": {"norm_eps": 1e-3},
        },
    ),
    "gpt2": ("gpt2_tiny", {}),
    "gpt2 untied, without biases, other activation": (
        "gpt2_tiny",
        {"bias": False, "norm": {"norm_bias": False}, "feedforward": "relu", "embedding": "untied"},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_saved_checkpoint_loads_there_and_gives_the_same_logits(name, tmp_path):
    model, config = preset(CASES[name][0], **CASES[name][1])
    to_transformers(model, config, tmp_path)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    ids = torch.randint(50, (2, 11))
    with torch.no_grad():
        logits, expected = theirs(ids).logits, model(ids).logits
    assert expected.abs().max() > 1
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-5)
    back = from_transformers(theirs)
    with torch.no_grad():
        torch.testing.assert_close(back(ids).logits, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_the_way_there_and_back_changes_no_weight(name):
    model, config = preset(*CASES[name][:1])
    theirs = to_transformers(model.bfloat16(), config)
    assert theirs.dtype == torch.bfloat16
    assert not theirs.training
    back = from_transformers(theirs).state_dict()
    assert set(back) == set(model.state_dict())
    assert all(torch.equal(back[n], p) for n, p in model.state_dict().items())
    again = build(model_config_of(theirs.config))
    assert {n: p.shape for n, p in again.named_parameters()} == {n: p.shape for n, p in model.named_parameters()}


CHOICES = [(slot, name) for slot in fields_of(Skeleton) if slot in SLOTS for name in SLOTS[slot].choices]


@pytest.mark.parametrize("family", ["llama", "gpt2"])
@pytest.mark.parametrize(("slot", "name"), CHOICES)
def test_every_choice_is_exported_with_the_same_logits_or_refused_by_name(slot, name, family):
    """None is approximated: a new choice is refused until a family is told of it."""
    try:
        model, config = preset(f"{family}_tiny", **{slot: {"name": name}})
    except ConfigError:
        return  # it does not go with the preset
    try:
        theirs, refused = to_transformers(model, config), ""
    except ConfigError as error:
        theirs, refused = None, str(error)
    if theirs is None:
        assert f"{slot} {name} (it has " in refused.partition(f"{family} has none for ")[2].partition(";")[0]
        return
    ids = torch.randint(50, (2, 11))
    with torch.no_grad():
        torch.testing.assert_close(theirs(ids).logits, model(ids).logits, rtol=0, atol=1e-5)


def refusal(**fields):
    fields = {**SIZES, **fields}
    with pytest.raises(ConfigError) as caught:
        to_transformers(build(fields), fields)
    (problem,) = caught.value.problems
    gpt2, _, llama = problem.removeprefix("no counterpart in transformers: gpt2 has none for ").partition(
        "; llama has none for "
    )
    return gpt2, llama


def test_a_choice_without_counterpart_is_refused_by_name_beside_what_has():
    gpt2, llama = refusal(norm="layernorm_std", residual="post")
    assert llama == "norm layernorm_std (it has rmsnorm), residual post (it has pre)"
    assert gpt2.startswith(
        "position rotary (it has learned), norm layernorm_std (it has layernorm), residual post (it has pre)"
    )
    assert refusal(position="none")[1] == "position none (it has rotary)"
    assert refusal(sharing="all")[1] == "sharing all (it has none)"
    assert refusal(mixer="lstm", position="none")[1].startswith("mixer lstm (it has attention)")
    assert refusal(layout="encoder_decoder")[1] == "layout encoder_decoder (it has decoder_only)"


def test_an_option_without_counterpart_is_refused_by_name_beside_what_has():
    for place, node, words in [
        ("mixer", {"name": "attention", "window": 4}, "mixer attention with window=4 (it has window=null)"),
        ("mixer", {"name": "attention", "qk_norm": "rmsnorm"}, "mixer attention with qk_norm="),
        ("position", {"name": "rotary", "fraction": 0.5}, "position rotary with fraction=0.5 (it has fraction=1.0)"),
        ("position", {"name": "rotary", "layout": "interleaved"}, 'position rotary with layout="interleaved"'),
        ("embedding", {"name": "tied", "scale": True}, "embedding tied with scale=true (it has scale=false)"),
        ("head", {"name": "linear", "bias": True}, "head linear with bias=true (it has bias=false)"),
    ]:
        assert refusal(**{place: node})[1].startswith(words), place
    assert refusal(layers={1: {"n_heads": 2}})[1] == "layer 1 with another n_heads than layer 0's"
    wide = {"d_model": 36, "n_heads": 5, "mixer": {"name": "attention", "d_head": 8}}
    assert refusal(**wide)[1] == "n_heads 5 beside d_model 36 (it has a divisor)"


def test_what_gpt2_alone_lacks_is_refused():
    shape = {"position": "learned", "norm": "layernorm", "feedforward": "gelu"}
    for mixer, words in [({"n_kv_heads": 2}, "n_kv_heads 2 (it has n_heads 4)"), ({"d_head": 4}, "d_head 4 (")]:
        assert refusal(**shape, mixer={"name": "attention", **mixer})[0].startswith(words)


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A language model's folder, as training leaves it."""
    monkeypatch.setenv("VARIANTS_CACHE", str(tmp_path / "cache"))
    story, folder = tmp_path / "story.txt", tmp_path / "run"
    story.write_text("".join(f"{i}: the cat sat on mat {i * i}, and Zoë saw it.\n" for i in range(300)), "utf-8")
    data_fields = ["data=text", f"data.path={story}", "data.vocab=290", "data.length=32"]
    model_fields = ["model=llama_tiny", "model.d_model=16", "model.n_layers=1", "model.n_heads=2"]
    config = configs.compose([*data_fields, *model_fields, "model.initialiser={name: normal, std: 0.4}"])
    data = slots.data.build(config["data"])
    data.prepare()
    known = {"vocab": data.vocab, "max_length": data.length}
    model = build(config["model"], **known)
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "config.yaml").write_text(configs.to_text(config))
    keep(data, folder)
    state = {"state_dict": model.state_dict(), "facts": {"known": known}}
    torch.save(state, folder / "checkpoints" / "last.ckpt")
    return folder


def test_a_run_is_exported_with_its_ids_and_tokenizer_and_generates_there_what_it_does_here(run, tmp_path):
    out = tmp_path / "out"
    export_run(run, out)
    loaded = load_run(run)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(out)
    tokenizer = Tokenizer.load(out / "tokenizer.model")
    ids = [theirs.config.bos_token_id, *tokenizer.encode("the cat")]
    assert ids == [2, *loaded.tokenizer.encode("the cat")]
    told = json.loads((out / "generation_config.json").read_text())
    assert (told["bos_token_id"], told["eos_token_id"], told["pad_token_id"]) == (2, 3, 0)
    assert theirs.config.max_position_embeddings == 32
    new = theirs.generate(torch.tensor([ids]), max_new_tokens=12, do_sample=False)[0, len(ids) :].tolist()
    assert [new] == decode(loaded.model, [ids], max_new=12)
    with pytest.raises(ConfigError, match="out is there already, and is no empty folder"):
        export_run(run, out)


def test_a_folder_without_a_run_leaves_nothing_behind(tmp_path):
    with pytest.raises(ConfigError, match="holds no run"):
        export_run(tmp_path / "none", tmp_path / "out")
    assert not (tmp_path / "out").exists()
