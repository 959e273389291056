"""A model's first loss is what its initial values say: ln V plus half the variance of its logits.

Given a normalised state x with |x|^2 = d and rows w of the output matrix with independent entries of variance s^2, the
logits are independent normals of variance v = s^2 d. A target drawn apart from all else has a logit of mean 0, so

    E loss = E log sum exp z = ln V + v/2 + E log mean exp(z - v/2),

where the mean is that of V terms of mean 1 and variance e^v - 1: the last term is -(e^v - 1)/(2 V), and less beyond.
One draw of the matrix and N targets spread the loss by the root of v/N (the targets' logits) + (e^v - 1)/V (the sum,
where all tokens share x at worst).
"""

import math

import pytest
import torch
import torch.nn.functional as F

from variants import slots
from variants.blocks.initialisers.base import Address
from variants.models import build

V, D, TARGETS = 2048, 64, 1024


@pytest.mark.parametrize("norm", ["rmsnorm", "layernorm"])
@pytest.mark.parametrize(
    "initialiser",
    [
        {"name": "normal", "std": 0.125},
        {"name": "depth_scaled", "std": 0.1},
        {"name": "normal", "std": 0.0},
        {"name": "xavier"},
    ],
    ids=str,
)
def test_the_initial_loss_is_ln_v_plus_half_the_logits_variance(initialiser, norm):
    made = slots.initialisers.build(initialiser)
    s = made.std(Address("embedding.output.weight", (V, D), "linear"))
    v = s**2 * D
    expected = math.log(V) + v / 2 - (math.exp(v) - 1) / (2 * V)
    tolerance = 1e-5 + 4 * math.sqrt(v / TARGETS + (math.exp(v) - 1) / V)
    fields = {"d_model": D, "n_layers": 1, "n_heads": 4, "vocab": V, "embedding": "untied", "norm": norm}
    model = build({**fields, "norm_eps": 1e-8, "initialiser": initialiser}, seed=1)
    ids, targets = torch.randint(V, (2, 8, TARGETS // 8))
    with torch.no_grad():
        logits = model(ids).logits.flatten(0, 1)
    loss = float(F.cross_entropy(logits, targets.flatten()))
    assert abs(loss - expected) < tolerance
    assert float(logits.var(correction=0)) == pytest.approx(v, rel=0.15, abs=1e-9)
    if v > 0.5:  # half the variance is there to be seen
        assert tolerance < v / 2
