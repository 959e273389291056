"""Costs by closed form: against sums written out here, and against what torch counts."""

import itertools
import logging

import pytest
import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

from variants.errors import ConfigError
from variants.models import assemble, build, cost, memory

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


@pytest.mark.parametrize("every", [0, 1, 2])
def test_memory_is_near_what_torch_allocates(every):
    fields = {**SIZES, "d_model": 64, "n_layers": 6, "vocab": 200}
    model = build(fields, checkpoint_every=every).train()
    optimiser = torch.optim.AdamW(model.parameters())
    ids = torch.zeros(8, 128, dtype=torch.long)

    def step():
        x, _ = model.hidden(ids)
        model.head.loss(x, ids, model.embedding).loss.backward()
        optimiser.step()

    step()
    optimiser.zero_grad(set_to_none=False)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        step()
    events = [event for event in profiled.profiler.kineto_results.events() if event.name() == "[memory]"]
    highest = max(itertools.accumulate(event.nbytes() for event in events))
    measured = highest + memory.COPIES * sum(p.numel() * p.element_size() for p in model.parameters())
    assert 0.8 < memory.peak_bytes(fields, {"checkpoint_every": every}, 8, 128) / measured < 1.2


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("decoder.layers.3.mixer.q.weight", "mixer"),
        ("towers.text.stack.layers.0.feedforward.up.weight", "feedforward"),
        ("stack.norm.weight", "final norm"),
        ("stack.positions.0.table.weight", "position"),
        ("source_embedding.table", "embedding"),
        ("head.bias", "head"),
        ("head.norm", "head"),
        ("head.layers.weight", "head"),
    ],
)
def test_a_parameter_belongs_to_the_slot_in_a_layer_and_to_the_child_elsewhere(name, part):
    assert cost._part_of(name) == part


def test_a_model_without_embedding_or_positions_has_nothing_to_take_off():
    assert cost.parameters(torch.nn.Linear(3, 2)) == (8, 8, {"weight": 6, "bias": 2})


@pytest.mark.parametrize(("chunk", "targets"), [(5, 5), (512, 2 * 7)])
def test_a_larger_vocabulary_costs_its_rows_and_a_chunk_of_logits(chunk, targets):
    fields = {**SIZES, "head": {"name": "linear", "chunk": chunk}}
    small, large = (memory.peak_bytes({**fields, "vocab": vocab}, {}, 2, 7) for vocab in (50, 80))
    rows, logits = memory.COPIES * 4 * 32 * 30, 3 * 4 * targets * 30
    assert large - small == rows + logits


def test_a_head_that_knows_no_chunks_holds_all_logits():
    model = torch.nn.Module()
    model.embedding, model.head = None, lambda x, embedding: x.new_zeros(*x.shape[:2], 30)
    for width in (1, 3):
        assert memory._logits_bytes(model, torch.zeros(2, 7, width)) == 3 * 4 * 2 * 7 * 30


def test_a_part_that_says_nothing_uses_its_matrices_and_no_number_of_its_own():
    part = torch.nn.Linear(3, 5)
    part.temperature = torch.nn.Parameter(torch.tensor(1.0))
    assert cost.flops_of(part, 2, 7) == 2 * 2 * 3 * 5


@pytest.mark.parametrize(("batch", "time"), [(10**17, 10**4), (1, 10**9)])
def test_memory_beyond_counting_is_a_line_and_torch_prints_nothing_of_its_own(batch, time, monkeypatch, caplog):
    monkeypatch.setattr(logging.getLogger("torch._subclasses.fake_tensor"), "handlers", [caplog.handler])
    with pytest.raises(ConfigError, match=rf"{batch} sequences of {time} tokens is too large"):
        memory.peak_bytes({**SIZES, "kernel": "math"}, {}, batch, time)
    assert not caplog.records


def test_another_fault_while_memory_is_counted_is_raised(monkeypatch):
    def raises(*_):
        raise RuntimeError("its own")

    monkeypatch.setattr(memory, "_peak_bytes", raises)
    with pytest.raises(RuntimeError, match="its own"):
        memory.peak_bytes(SIZES, {}, 1, 1)
