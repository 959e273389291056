import math

import pytest
import torch
from torch import nn

from variants.blocks.context import Context
from variants.blocks.feedforwards import GatedFeedForward, GeluFeedForward, PlainFeedForward
from variants.blocks.masks import AttentionMask
from variants.errors import ConfigError
from variants.slots import feedforwards


def phi(x):
    return (1 + torch.erf(x / math.sqrt(2))) / 2


ACTIVATIONS = {
    "relu": lambda x: torch.where(x > 0, x, 0.0),
    "gelu": lambda x: x * phi(x),
    "gelu_tanh": lambda x: x / 2 * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "silu": lambda x: x / (1 + torch.exp(-x)),
}
CASES = [
    ("relu", "relu"),
    ("silu", "silu"),
    ("gelu", "gelu"),
    ({"name": "gelu", "approximate": "tanh"}, "gelu_tanh"),
    ("swiglu", "silu"),
    ("geglu", "gelu"),
]


def slow(layer, x, activation):
    """Row by row, from the papers' equations."""
    up = torch.stack([layer.up.weight @ row + layer.up.bias for row in x])
    if hasattr(layer, "gate"):
        gate = torch.stack([layer.gate.weight @ row + layer.gate.bias for row in x])
        hidden = activation(gate) * up
    else:
        hidden = activation(up)
    return torch.stack([layer.down.weight @ row + layer.down.bias for row in hidden])


@pytest.mark.parametrize(("node", "activation"), CASES)
def test_numbers_and_gradients_are_those_of_the_papers_equation(node, activation):
    layer = feedforwards.build(node, d_model=6, bias=True).double()
    for parameter in layer.parameters():
        nn.init.normal_(parameter)
    x = torch.randn(2, 3, 6, dtype=torch.float64, requires_grad=True)
    made = layer(x)
    wanted = slow(layer, x.flatten(0, 1), ACTIVATIONS[activation]).view(2, 3, 6)
    torch.testing.assert_close(made, wanted, rtol=0, atol=1e-10)
    inputs = [x, *layer.parameters()]
    upstream = torch.randn_like(made)
    for one, other in zip(
        torch.autograd.grad(made, inputs, upstream), torch.autograd.grad(wanted, inputs, upstream), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    ("node", "wanted"),
    [
        ({"name": "relu"}, 0.0),
        ({"name": "silu"}, -0.2689414213699951),
        ({"name": "gelu"}, -0.15865525393145707),
        ({"name": "gelu", "approximate": "tanh"}, -0.15880800939172324),
    ],
)
def test_minus_one_gives_the_known_value_of_the_activation(node, wanted):
    layer = feedforwards.build({**node, "d_ff": 1, "bias": False}, d_model=1).double()
    nn.init.ones_(layer.up.weight)
    nn.init.ones_(layer.down.weight)
    assert layer(torch.tensor([[[-1.0]]], dtype=torch.float64)).item() == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize("name", ["swiglu", "geglu"])
def test_two_gated_by_three_gives_the_known_value(name):
    layer = feedforwards.build({"name": name, "d_ff": 1}, d_model=1).double()
    for linear, value in ((layer.gate, 2.0), (layer.up, 3.0), (layer.down, 1.0)):
        nn.init.constant_(linear.weight, value)
    wanted = {"swiglu": 3 * 1.7615941559557649, "geglu": 3 * 1.9544997361036416}[name]
    assert layer(torch.ones(1, 1, 1, dtype=torch.float64)).item() == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize(
    ("fields", "hidden"),
    [
        ({}, 1368),  # 1365.3 is nearer to 1368 than to 1360
        ({"ratio": 4}, 2048),
        ({"multiple_of": 256}, 1280),
        ({"multiple_of": 4096}, 4096),  # at least one
        ({"d_ff": 1365}, 1365),  # as it is, to the unit
    ],
)
def test_the_hidden_width_of_a_gated_layer_is_the_nearest_multiple(fields, hidden):
    layer = GatedFeedForward(512, **fields)
    assert [m.out_features for m in (layer.gate, layer.up)] == [hidden, hidden]
    assert layer.down.in_features == hidden


@pytest.mark.parametrize(("fields", "hidden"), [({}, 40), ({"ratio": 2.5}, 25), ({"ratio": 3, "d_ff": 7}, 7)])
def test_the_hidden_width_of_a_plain_layer_is_ratio_times_the_models(fields, hidden):
    assert PlainFeedForward(10, **fields).up.out_features == hidden


@pytest.mark.parametrize("fields", [{"ratio": 0.0}, {"ratio": -1.0}, {"d_ff": 0}])
@pytest.mark.parametrize("name", feedforwards.choices)
def test_a_hidden_width_that_is_not_positive_is_refused_with_field_and_value(name, fields):
    field, value = next(iter(fields.items()))
    with pytest.raises(ValueError, match=rf"{field}={value}.*must be positive, at d_model=8"):
        feedforwards.build({"name": name, **fields}, d_model=8)


def test_a_multiple_of_zero_is_refused():
    with pytest.raises(ValueError, match="multiple_of=0: must be positive"):
        GatedFeedForward(8, multiple_of=0)


def test_an_option_that_does_nothing_is_not_in_the_schema():
    assert "approximate" in feedforwards["gelu"].fields
    for name in ("relu", "silu", "swiglu", "geglu"):
        assert not {"approximate", "activation", "gate"} & set(feedforwards[name].fields)
    with pytest.raises(ConfigError, match="expected one of 'none', 'tanh', got 'quick'"):
        feedforwards.build({"name": "gelu", "approximate": "quick"}, d_model=8)


@pytest.mark.parametrize("name", feedforwards.choices)
def test_the_config_sets_the_bias_else_the_model_else_the_default(name):
    has_bias = feedforwards[name].fields["bias"].default
    for node, offers, wanted in [
        ({}, {}, has_bias),
        ({}, {"bias": not has_bias}, not has_bias),
        ({"bias": has_bias}, {"bias": not has_bias}, has_bias),
    ]:
        layer = feedforwards.build({"name": name, **node}, d_model=8, **offers)
        assert {m.bias is not None for m in layer.modules() if isinstance(m, nn.Linear)} == {wanted}


@pytest.mark.parametrize("kind", [PlainFeedForward, GeluFeedForward, GatedFeedForward])
def test_dropout_falls_on_the_hidden_features_and_only_in_training(kind):
    layer = kind(8, d_ff=2000, feedforward_dropout=0.25, bias=False)
    x = torch.randn(1, 1, 8)
    seen = []
    layer.down.register_forward_pre_hook(lambda module, args: seen.append(args[0]))
    layer(x)
    layer.eval()(x)
    dropped, whole = seen
    kept = (dropped != 0) & (whole != 0)
    share = 1 - kept.sum() / (whole != 0).sum()
    assert share == pytest.approx(0.25, abs=0.05)
    torch.testing.assert_close(dropped[kept], whole[kept] / 0.75)


@pytest.mark.parametrize("name", feedforwards.choices)
def test_what_pads_hold_reaches_neither_results_nor_gradients(name):
    layer = feedforwards.build(name, d_model=8)
    keep = torch.tensor([[False, True, True]])
    clean = torch.randn(1, 3, 8)
    results = []
    for poison in (0.0, math.nan, math.inf):
        x = clean.masked_fill(~keep[..., None], poison).requires_grad_()
        made = layer(x, Context(AttentionMask(keep=keep)))[keep]
        results.append((made, *torch.autograd.grad(made.sum(), [x, *layer.parameters()])))
    for other in results[1:]:
        for one, two in zip(results[0], other, strict=True):
            assert torch.equal(one, two)


@pytest.mark.parametrize("name", feedforwards.choices)
def test_its_declarations_name_its_children(name):
    layer = feedforwards.build(name, d_model=8)
    assert set(layer.parallel) == {n for n, m in layer.named_children() if isinstance(m, nn.Linear)}
    assert layer.writes == ("down",)


def test_plain_projections_have_a_bias_unless_told():
    assert [name for name, _ in PlainFeedForward(4).named_parameters() if name.endswith("bias")] == [
        "up.bias",
        "down.bias",
    ]
    assert not [name for name, _ in PlainFeedForward(4, bias=False).named_parameters() if name.endswith("bias")]
