"""What theory says of positions, attention, schedules and optimisers, each in a closed form written out here."""

import math

import pytest
import torch

from variants.blocks.kernels.base import recorded
from variants.models import build
from variants.slots import mixers, optimisers, positions, schedules

DOUBLE = torch.float64


# positions -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["interleaved", "halves"])
@pytest.mark.parametrize("k", [1, 7, 500])
def test_a_shift_of_sinusoids_is_a_linear_map_of_them_which_no_position_enters(layout, k):
    d, n = 16, 40
    sinusoidal = positions.build({"name": "sinusoidal", "layout": layout}, d_model=d)
    where = torch.arange(n)[None]
    table, shifted = (sinusoidal.input(torch.zeros(1, n, d, dtype=DOUBLE), p)[0] for p in (where, where + k))
    rotation = torch.zeros(d, d, dtype=DOUBLE)
    for i in range(d // 2):
        sine, cosine = (2 * i, 2 * i + 1) if layout == "interleaved" else (i, i + d // 2)
        angle = k * 10000 ** (-2 * i / d)
        rotation[sine, sine] = rotation[cosine, cosine] = math.cos(angle)
        rotation[sine, cosine], rotation[cosine, sine] = math.sin(angle), -math.sin(angle)
    torch.testing.assert_close(shifted, table @ rotation.T, rtol=0, atol=1e-10)


@pytest.mark.parametrize("fields", [{}, {"layout": "interleaved"}, {"fraction": 0.5, "base": 300.0}])
def test_rotary_scores_depend_on_the_distance_alone(fields):
    rotary = positions.build({"name": "rotary", **fields})
    n, shift = 12, 1000
    content = torch.randn(2, 1, 1, 1, 16, dtype=DOUBLE)
    q, k = content.expand(2, 1, 1, n, 16)
    where = torch.arange(n)[None]
    scores = []
    for placed in (where, where + shift):
        place = rotary.place(placed, placed)
        scores.append((place.turn(q, "q") @ place.turn(k, "k").mT)[0, 0])
    torch.testing.assert_close(scores[0], scores[1], rtol=0, atol=1e-10)
    for distance in range(1 - n, n):
        diagonal = scores[0].diagonal(distance)
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal), rtol=0, atol=1e-10)
    assert scores[0][0].std() > 1e-3  # and on it they depend


# attention -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_kv_heads", [4, 1])
def test_the_entropy_of_uniform_scores_is_the_logarithm_of_the_length(n_kv_heads):
    fields = {"d_model": 16, "n_layers": 1, "n_heads": 4, "vocab": 9}
    model = build({**fields, "mixer": {"name": "attention", "n_kv_heads": n_kv_heads}}).double()
    model.stack.layers[0].mixer.q.weight.data.zero_()
    with recorded(model) as weights:
        model(torch.randint(9, (2, 7)))
    ((made,),) = weights.values()
    entropy = -(made * made.clamp(min=1e-300).log()).sum(-1)
    expected = torch.arange(1, 8, dtype=DOUBLE).log().expand_as(entropy)  # a causal row sees one key more each time
    torch.testing.assert_close(entropy, expected, rtol=0, atol=1e-12)


def test_uniform_attention_gives_the_mean_of_the_values():
    for kernel in ("math", "sdpa", "flash"):
        fields = {"d_model": 8, "n_layers": 1, "n_heads": 2, "vocab": 9, "kernel": kernel}
        mixer = build({**fields, "layout": "encoder_only"}).double().stack.layers[0].mixer
        mixer.q.weight.data.zero_()
        x = torch.randn(2, 5, 8, dtype=DOUBLE)
        torch.testing.assert_close(mixer(x), mixer.out(mixer.v(x.mean(1, keepdim=True))).expand_as(x))


# schedules -----------------------------------------------------------------------------------------------------------

LR, D_MODEL, STEPS, WARMUP, FLOOR = 3e-3, 64, 50, 8, 0.1
CURVES = {
    "constant": lambda s: LR * min(s, WARMUP) / WARMUP,
    "cosine": lambda s: (
        LR * s / WARMUP
        if s <= WARMUP
        else LR * (FLOOR + (1 - FLOOR) * math.cos(math.pi / 2 * min(1, (s - WARMUP) / (STEPS - WARMUP))) ** 2)
    ),
    "noam": lambda s: s / math.sqrt(D_MODEL * WARMUP**3) if s <= WARMUP else 1 / math.sqrt(D_MODEL * s),
}


@pytest.mark.parametrize("name", CURVES)
def test_a_schedule_follows_its_closed_form_at_every_update(name):
    schedule = schedules.build({"name": name, "warmup": WARMUP}, lr=LR, d_model=D_MODEL, max_steps=STEPS)
    steps = range(1, STEPS + 10)
    assert [schedule(step) for step in steps] == pytest.approx([CURVES[name](step) for step in steps], rel=1e-12)


# optimisers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("decay", [0.0, 0.3])
@pytest.mark.parametrize("name", ["adam", "adamw"])
def test_steps_of_adam_equal_hand_written_ones_in_float64(name, decay):
    lr, beta1, beta2, eps = 0.02, 0.8, 0.95, 1e-6
    x = torch.randn(4, 3, dtype=DOUBLE)
    parameter = torch.nn.Parameter(x.clone())
    fields = {"lr": lr, "betas": [beta1, beta2], "eps": eps, "weight_decay": decay}
    optimiser = optimisers.build({"name": name, **fields})([{"params": [parameter], "weight_decay": decay}])
    mean, square = torch.zeros_like(x), torch.zeros_like(x)
    for step in (1, 2, 3):
        gradient = torch.randn_like(x)
        parameter.grad = gradient.clone()
        optimiser.step()
        if name == "adam":
            gradient = gradient + decay * x
        else:
            x = x - lr * decay * x
        mean = beta1 * mean + (1 - beta1) * gradient
        square = beta2 * square + (1 - beta2) * gradient**2
        corrected = (mean / (1 - beta1**step), square / (1 - beta2**step))
        x = x - lr * corrected[0] / (corrected[1].sqrt() + eps)
        torch.testing.assert_close(parameter.detach(), x, rtol=0, atol=1e-14)


def test_attention_is_blind_to_order_without_a_position():
    mixer = build({"d_model": 8, "n_layers": 1, "n_heads": 2, "vocab": 9, "layout": "encoder_only"}).double()
    mixer = mixer.stack.layers[0].mixer
    assert type(mixer) is mixers["attention"].component
    x, order = torch.randn(2, 6, 8, dtype=DOUBLE), torch.tensor([3, 0, 5, 1, 4, 2])
    torch.testing.assert_close(mixer(x[:, order]), mixer(x)[:, order])
