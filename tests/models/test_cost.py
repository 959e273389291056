"""Costs by closed form: against sums written out here, and against what torch counts."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from variants.models import assemble, cost, memory

SIZES = {"d_model": 32, "n_layers": 2, "n_heads": 4, "vocab": 50}


def test_flops_of_a_decoder_equal_the_sum_over_its_products():
    d, hidden, time, vocab = 32, 64, 10, 50
    model = assemble({**SIZES, "feedforward": {"name": "swiglu", "d_ff": hidden}})
    layer = 4 * d * d + 3 * d * hidden
    forward = 2 * (time * (2 * layer + d * vocab) + 2 * 2 * time * time * d)
    assert model.flops(time) == forward
    assert cost.training_flops(model, time) == 3 * forward // time


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"mixer": {"name": "attention", "n_kv_heads": 2, "d_head": 12}, "feedforward": "relu"},
        {"sharing": "all", "embedding": "untied"},
        {"layout": "encoder_decoder", "encoder": {"n_layers": 3}},
        {"layout": "encoder_only"},
    ],
)
def test_flops_equal_torchs_count(fields):
    # torch counts no flash kernel on a CPU, and the products of `math` on the meta device
    model = assemble({**SIZES, "kernel": "math", **fields})
    ids = torch.zeros(1, 9, dtype=torch.long, device="meta")
    inputs = (torch.zeros(1, 7, dtype=torch.long, device="meta"), ids) if hasattr(model, "encode") else (ids,)
    with FlopCounterMode(display=False) as counter:
        model(*inputs)
    assert counter.get_total_flops() == model.flops(9, 7)


def test_parameters_are_counted_by_part_and_a_tied_matrix_once():
    model = assemble({**SIZES, "position": "learned", "max_length": 20, "norm": "layernorm"})
    counted = cost.parameters(model)
    assert counted.parts["embedding"] == 50 * 32
    assert counted.parts["position"] == 20 * 32
    assert counted.parts["final norm"] == 64
    assert counted.total == sum(p.numel() for p in model.parameters())
    assert counted.non_embedding == counted.total - 70 * 32


def test_memory_grows_with_the_batch_and_shrinks_under_checkpointing():
    model = {**SIZES, "d_model": 64, "n_layers": 6}
    small, large = (memory.peak_bytes(model, {}, batch, 64) for batch in (2, 8))
    saving = memory.peak_bytes(model, {"checkpoint_every": 1}, 8, 64)
    half = memory.peak_bytes(model, {}, 8, 64, precision="bf16-true")
    assert small < large
    assert saving < large
    assert half < 0.6 * large
