"""Whatever a config says, and wherever, it is exported with the same logits, or refused: nothing is approximated."""

from collections import Counter

import pytest
import torch
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from variants.errors import ConfigError
from variants.interop import to_transformers
from variants.models import build
from variants.models.skeleton import LAYER_FIELDS, STACK_FIELDS
from variants.registry import merge

pytest.importorskip("transformers")

SIZES = {"d_model": 16, "n_layers": 2, "n_heads": 4, "vocab": 20, "max_length": 12}
DRAWN = {"initialiser": {"name": "normal", "std": 0.3}}
BASES = {
    "llama": {},
    "gpt2": {"bias": True, "position": "learned", "norm": "layernorm", "feedforward": "gelu"},
}
MIXERS = [{"n_kv_heads": 2}, {"d_head": 6}, {"d_head": 4}, {"qkv_bias": True}, {"out_bias": False}, {"window": 3}]
FIELDS = {  # to values, of which both families have some and lack some
    "n_heads": [1, 2, 4],
    "bias": [True, False, None],
    "norm_eps": [None, 1e-6, 1e-5, 0.5],
    "dropout": [0.0, 0.1],
    "attention_dropout": [None, 0.1],
    "feedforward_dropout": [None, 0.1],
    "mixer": ["attention", *MIXERS, {"scale": 0.25}, {"qk_norm": "rmsnorm"}],
    "cross": ["attention", "none"],
    "kernel": ["auto", "math", "sdpa"],
    "position": ["rotary", "learned", "none", "alibi", {"name": "rotary", "base": 50.0}, {"max_length": 15}],
    "norm": ["rmsnorm", "layernorm", "scalenorm", "identity", {"name": "layernorm", "norm_bias": False}],
    "feedforward": ["relu", "silu", "gelu", "swiglu", "geglu", {"d_ff": 24}, {"bias": False}, {"approximate": "tanh"}],
    "embedding_dropout": [None, 0.1],
    "n_layers": [1, 2, 3],
    "residual": ["pre", "post", "sandwich", "parallel"],
    "sharing": ["none", "all"],
    "embedding": ["tied", "untied", {"scale": True}],
    "head": [{"scaled": True}, {"bias": True}, {"chunk": 2}],
    "max_length": [12, 16],
    "vocab": [1, 20],
    "d_model": [16, 20],
}


def patches(fields):
    """A patch of one or two fields, half of them of those in which the families differ or a layer may."""
    often = ["n_heads", "bias", "norm_eps", "norm", "mixer", "position"]
    names = st.lists(st.one_of(st.sampled_from(often), st.sampled_from(fields)), min_size=1, max_size=2, unique=True)
    return names.flatmap(lambda some: st.fixed_dictionaries({name: st.sampled_from(FIELDS[name]) for name in some}))


of_layer = patches(LAYER_FIELDS)
of_layers = st.one_of(
    of_layer.map(lambda patch: {"pattern": "a", "a": patch}),
    of_layer.map(lambda patch: {0: patch, 1: patch}),
    of_layer.map(lambda patch: {0: patch}),
    of_layer.map(lambda patch: {-1: patch}),
    st.tuples(of_layer, of_layer).map(lambda two: {"pattern": "a b", "a": two[0], "b": two[1]}),
)
of_stack = st.one_of(
    patches([name for name in STACK_FIELDS if name != "layers"]), of_layers.map(lambda layers: {"layers": layers})
)
configs = st.one_of(
    patches(list(FIELDS)),
    of_layers.map(lambda layers: {"layers": layers}),
    of_stack.map(lambda patch: {"decoder": patch}),
    st.tuples(patches(list(FIELDS)), of_layers).map(lambda both: {**both[0], "layers": both[1]}),
    st.tuples(of_stack, of_layers).map(lambda both: {"decoder": both[0], "layers": both[1]}),
    of_stack.map(lambda patch: {"encoder": patch}),  # which no decoder-only model heeds
)


def outcome(config):
    """What becomes of a config; an export is compared."""
    try:
        model = build(config).eval()
    except ConfigError:
        return "not built"
    for parameter in model.parameters():
        if parameter.dim() == 1:
            parameter.data.add_(torch.randn_like(parameter), alpha=0.2)
    try:
        theirs = to_transformers(model, config)
    except ConfigError:
        return "refused"
    ids = torch.randint(config["vocab"], (2, 9))
    with torch.no_grad():
        expected = model(ids).logits
        torch.testing.assert_close(theirs(ids).logits, expected, rtol=0, atol=1e-5 * max(1.0, expected.abs().max()))
    return "exported"


def laid(family, said):
    """A family's config at a size of nothing, with what is said laid over it."""
    config = {**SIZES, **DRAWN, **BASES[family]}
    for name, value in said.items():
        base = config.get(name, {"mixer": "attention", "embedding": "tied", "head": "linear"}.get(name))
        config[name] = merge(base, value)
    return config


@pytest.mark.parametrize("family", BASES)
def test_a_drawn_config_is_exported_with_the_same_logits_or_refused(family):
    outcomes = Counter()

    @seed(0)
    @settings(max_examples=150, database=None, deadline=None, suppress_health_check=list(HealthCheck))
    @given(configs)
    def export(said):
        outcomes[outcome(laid(family, said))] += 1

    export()
    assert min(outcomes["exported"], outcomes["refused"]) > 30, outcomes


EXPORTED_WRONG = {  # before
    "llama, epsilon of every layer": ("llama", {"layers": {0: {"norm_eps": 0.5}, 1: {"norm_eps": 0.5}}}),
    "llama, epsilon of a pattern": ("llama", {"layers": {"pattern": "a", "a": {"norm_eps": 0.5}}}),
    "llama, epsilon of its side's layers": ("llama", {"decoder": {"layers": {"pattern": "a", "a": {"norm_eps": 0.5}}}}),
    "llama, one layer": ("llama", {"n_layers": 1, "layers": {0: {"norm_eps": 0.5}}}),
    "llama, another final norm": ("llama", {"norm": "layernorm", "layers": {"pattern": "a", "a": {"norm": "rmsnorm"}}}),
    "gpt2, epsilon of a pattern": ("gpt2", {"layers": {"pattern": "a", "a": {"norm_eps": 0.5}}}),
    "gpt2, another final norm": ("gpt2", {"norm": "rmsnorm", "layers": {"pattern": "a", "a": {"norm": "layernorm"}}}),
}
WORDS = {
    "llama, another final norm": "final norm layernorm (it has rmsnorm)",
    "gpt2, another final norm": "final norm rmsnorm (it has layernorm)",
}


@pytest.mark.parametrize("name", EXPORTED_WRONG)
def test_layers_with_another_norm_than_the_final_one_are_refused_by_its_name(name):
    family, said = EXPORTED_WRONG[name]
    config = laid(family, said)
    with pytest.raises(ConfigError) as caught:
        to_transformers(build(config), config)
    default = "1e-06" if family == "llama" else "1e-05"
    words = WORDS.get(name, f"norm_eps {default} in the final norm beside 0.5 in the layers (it has one)")
    assert f"{family} has none for {words}" in str(caught.value)


def test_what_makes_no_difference_to_the_final_norm_is_exported():
    for family, patch in [
        ("llama", {"norm_eps": 1e-6}),  # as it is by itself
        ("gpt2", {"norm_eps": 1e-5}),
        ("gpt2", {"norm": {"norm_bias": False}}),  # zeros there
    ]:
        config = laid(family, {"layers": {"pattern": "a", "a": patch}})
        assert outcome(config) == "exported"
