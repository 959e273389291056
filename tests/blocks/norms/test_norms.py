import math

import pytest
import torch
from torch import nn

from variants.blocks.norms import LayerNorm, LayerNormStd, RMSNorm
from variants.slots import norms


def slow_layernorm(x, weight, bias, eps):
    mean = sum(x) / len(x)
    variance = sum((value - mean) ** 2 for value in x) / len(x)
    return [w * (value - mean) / (variance + eps).sqrt() + b for value, w, b in zip(x, weight, bias, strict=True)]


def slow_layernorm_std(x, weight, bias, eps):
    mean = sum(x) / len(x)
    deviation = (sum((value - mean) ** 2 for value in x) / (len(x) - 1)).sqrt()
    return [w * (value - mean) / (deviation + eps) + b for value, w, b in zip(x, weight, bias, strict=True)]


def slow_rmsnorm(x, weight, bias, eps):
    mean_square = sum(value**2 for value in x) / len(x)
    return [w * value / (mean_square + eps).sqrt() for value, w in zip(x, weight, strict=True)]


REFERENCES = [(LayerNorm, slow_layernorm), (LayerNormStd, slow_layernorm_std), (RMSNorm, slow_rmsnorm)]
KNOWN = [  # of (1, 2, 3, 4), epsilon aside
    (LayerNorm, [-3 / math.sqrt(5), -1 / math.sqrt(5), 1 / math.sqrt(5), 3 / math.sqrt(5)]),
    (LayerNormStd, [-1.5 / math.sqrt(5 / 3), -0.5 / math.sqrt(5 / 3), 0.5 / math.sqrt(5 / 3), 1.5 / math.sqrt(5 / 3)]),
    (RMSNorm, [1 / math.sqrt(7.5), 2 / math.sqrt(7.5), 3 / math.sqrt(7.5), 4 / math.sqrt(7.5)]),
]


def parameters(width, norm):
    for parameter in norm.parameters():
        nn.init.normal_(parameter)
    bias = getattr(norm, "bias", None)
    return norm.weight, torch.zeros(width, dtype=torch.float64) if bias is None else bias


@pytest.mark.parametrize(("kind", "slow"), REFERENCES)
@pytest.mark.parametrize("eps", [1e-5, 0.3])  # a large one shows its place in the formula
def test_numbers_and_gradients_are_those_of_the_papers_equation(kind, slow, eps):
    norm = kind(5, eps).double()
    weight, bias = parameters(5, norm)
    x = torch.randn(2, 3, 5, dtype=torch.float64, requires_grad=True)
    wanted = torch.stack([torch.stack(slow(row, weight, bias, eps)) for row in x.flatten(0, 1)]).view(2, 3, 5)
    made = norm(x)
    torch.testing.assert_close(made, wanted, rtol=0, atol=1e-12)
    upstream = torch.randn_like(made)
    inputs = [x, *norm.parameters()]
    for one, other in zip(
        torch.autograd.grad(made, inputs, upstream), torch.autograd.grad(wanted, inputs, upstream), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-11)


@pytest.mark.parametrize(("kind", "wanted"), KNOWN)
def test_one_to_four_gives_the_numbers_worked_out_by_hand(kind, wanted):
    made = kind(4, 0.0).double()(torch.tensor([[[1.0, 2.0, 3.0, 4.0]]], dtype=torch.float64))
    torch.testing.assert_close(made, torch.tensor([[wanted]], dtype=torch.float64), rtol=0, atol=1e-12)


def test_a_layernorm_has_a_bias_unless_it_is_to_have_none():
    assert [name for name, _ in LayerNorm(4).named_parameters()] == ["weight", "bias"]
    assert [name for name, _ in LayerNorm(4, norm_bias=False).named_parameters()] == ["weight"]


def test_layernorm_std_refuses_one_feature():
    with pytest.raises(ValueError, match="width=1: layernorm_std needs at least 2 features"):
        LayerNormStd(1)


@pytest.mark.parametrize("name", norms.choices)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("autocast", [False, True])
def test_the_dtype_is_the_inputs_even_with_wide_weights_and_under_autocast(name, dtype, autocast):
    norm = norms.build(name, width=8)
    x = torch.randn(2, 3, 8, dtype=dtype, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        made = norm(x)
    assert made.dtype == dtype
    made.sum().backward()
    assert x.grad.dtype == dtype
    assert norm.weight.grad.dtype == torch.float32


@pytest.mark.parametrize("name", norms.choices)
def test_three_hundred_in_half_precision_is_one_and_not_infinity(name):
    signs = torch.tensor([1.0, -1.0] * 512, dtype=torch.float16).view(1, 1, -1)
    made = norms.build(name, width=1024)(300 * signs)
    torch.testing.assert_close(made, signs, rtol=0, atol=1e-3)  # of a thousand features, for one norm counts one less


@pytest.mark.parametrize("name", norms.choices)
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize("eps", [{}, {"norm_eps": 1e-8}])  # which is 0 in float16
def test_zeros_stay_zeros_with_finite_gradients(name, dtype, eps):
    x = torch.zeros(1, 2, 16, dtype=dtype, requires_grad=True)
    made = norms.build(name, width=16, **eps)(x)
    made.sum().backward()
    assert torch.equal(made, torch.zeros_like(made))
    assert x.grad.isfinite().all()


@pytest.mark.parametrize("name", norms.choices)
def test_small_numbers_in_half_precision_keep_a_hundredth(name):
    norm = norms.build(name, width=64, norm_eps=1e-8)
    x = (1e-3 * torch.randn(4, 4, 64)).bfloat16()
    torch.testing.assert_close(norm(x).float(), norm(x.float()), rtol=1e-2, atol=1e-2)


def test_layernorm_std_differs_from_layernorm_by_the_deviation_alone():
    x = torch.randn(1, 3, 10, dtype=torch.float64)
    ratio = LayerNormStd(10, 0.0).double()(x) / LayerNorm(10, 0.0).double()(x)
    torch.testing.assert_close(ratio, torch.full_like(ratio, math.sqrt(9 / 10)))


@pytest.mark.parametrize("name", norms.choices)
def test_a_norm_declares_the_constants_that_it_is_built_with(name):
    norm = norms.build(name, width=4)
    for parameter, value in norm.named_parameters():
        assert torch.equal(value, torch.full((4,), norm.initial[parameter]))
