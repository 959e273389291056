import pytest
import torch
from torch import nn

from variants.blocks.norms import LayerNorm
from variants.blocks.residuals import DeepNorm, Depths, Parallel, PostNorm, PreNorm
from variants.slots import residuals

WIDTH = 6


def slow_pre(x, norms, branches, alpha):
    return x if not branches else slow_pre(x + branches[0](norms[0](x)), norms[1:], branches[1:], alpha)


def slow_post(x, norms, branches, alpha):
    return x if not branches else slow_post(norms[0](x + branches[0](x)), norms[1:], branches[1:], alpha)


def slow_parallel(x, norms, branches, alpha):
    return x + torch.stack([branch(norms[0](x)) for branch in branches]).sum(0)


def slow_deepnorm(x, norms, branches, alpha):
    return x if not branches else slow_deepnorm(norms[0](alpha * x + branches[0](x)), norms[1:], branches[1:], alpha)


REFERENCES = [(PreNorm, slow_pre), (PostNorm, slow_post), (Parallel, slow_parallel), (DeepNorm, slow_deepnorm)]


def randomised(module):
    for parameter in module.parameters():
        nn.init.normal_(parameter)
    return module.double()


@pytest.mark.parametrize("n_branches", [2, 3])
@pytest.mark.parametrize(("kind", "slow"), REFERENCES)
def test_the_stream_and_gradients_are_those_of_the_papers_equation(kind, slow, n_branches):
    residual = randomised(kind(lambda: LayerNorm(WIDTH), n_branches, Depths(8, decoder=8)))
    branches = [randomised(nn.Linear(WIDTH, WIDTH)) for _ in range(n_branches)]
    own = [module for module in residual.modules() if isinstance(module, LayerNorm)]
    x = torch.randn(2, 3, WIDTH, dtype=torch.float64, requires_grad=True)
    made, wanted = residual(x, *branches), slow(x, own, branches, 2.0)  # (2 * 8) ** (1 / 4)
    torch.testing.assert_close(made, wanted, rtol=0, atol=1e-12)
    inputs = [x, *residual.parameters(), *(p for branch in branches for p in branch.parameters())]
    upstream = torch.randn_like(made)
    for one, other in zip(
        torch.autograd.grad(made, inputs, upstream), torch.autograd.grad(wanted, inputs, upstream), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-11)


@pytest.mark.parametrize(
    ("depths", "alpha"),
    [
        (Depths(6, encoder=6, role="encoder"), 1.8612097182041991),  # 12 ** (1 / 4)
        (Depths(100, decoder=100), 3.7606030930863934),  # 200 ** (1 / 4)
        (Depths(16, encoder=16, decoder=1, role="encoder"), 1.62),  # 0.81 * (16 ** 4) ** (1 / 16)
        (Depths(1, encoder=1, decoder=2**16, role="encoder"), 1.62),
        (Depths(27, encoder=3, decoder=27, role="decoder"), 3.0),  # 81 ** (1 / 4)
    ],
)
def test_deepnorm_weighs_the_stream_by_the_depths_of_the_papers_table(depths, alpha):
    assert DeepNorm(lambda: LayerNorm(WIDTH), 2, depths).alpha == pytest.approx(alpha, rel=1e-12)


@pytest.mark.parametrize(("name", "wanted"), [("pre", True), ("parallel", True), ("post", False), ("deepnorm", False)])
def test_a_stack_ends_in_a_norm_exactly_where_its_layers_do_not(name, wanted):
    residual = residuals.build(name, norm=lambda: LayerNorm(WIDTH), n_branches=2, depths=Depths(1))
    assert residual.final_norm is wanted


@pytest.mark.parametrize("name", ["pre", "post", "deepnorm"])
def test_a_branch_too_many_is_refused(name):
    residual = residuals.build(name, norm=lambda: LayerNorm(WIDTH), n_branches=2, depths=Depths(1))
    with pytest.raises(ValueError):
        residual(torch.randn(1, 1, WIDTH), *[nn.Identity()] * 3)


@pytest.mark.parametrize("name", residuals.choices)
def test_it_owns_its_norms_alone(name):
    residual = residuals.build(name, norm=lambda: LayerNorm(WIDTH), n_branches=2, depths=Depths(1))
    assert all(isinstance(m, LayerNorm) for m in residual.modules() if list(m.parameters(recurse=False)))
