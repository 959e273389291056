"""Masks, heads, documents, dropout and caches: every layout under every kernel."""

import copy

import pytest
import torch
from exporting import unchecked
from generating import small

from variants.blocks.cache import Cache
from variants.blocks.context import Context
from variants.blocks.kernels.base import Needs
from variants.blocks.kernels.math import Math
from variants.blocks.masks import AttentionMask
from variants.blocks.mixers import Attention
from variants.blocks.positions.base import Placement
from variants.slots import kernels, layouts, positions

KERNELS = list(kernels.choices)
every_kernel = pytest.mark.parametrize("kernel", KERNELS)
precisions = pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 2e-2)], ids=str)
every_layout = pytest.mark.parametrize("layout", layouts.choices)


def that(**needs):
    """The kernels that can do it; that the others refuse is a promise of their own."""
    return pytest.mark.parametrize("kernel", [k for k in KERNELS if kernels.build(k).refuses(Needs(**needs)) is None])


def outputs(model, ids, mask=None):
    """Logits or hidden states; an encoder-decoder reads the same ids as its source, under the same mask."""
    out = model(ids, ids, mask, mask) if hasattr(model, "encode") else model(ids, mask)
    return out if isinstance(out, torch.Tensor) else out.logits


def some_ids(*shape, seed=0):
    return torch.randint(4, 20, shape, generator=torch.Generator().manual_seed(seed))


@precisions
@every_kernel
@every_layout
def test_a_row_without_a_token_is_finite_and_harms_no_other(layout, kernel, dtype, tolerance):
    """ATT-02."""
    model, ids = small(layout, kernel=kernel).to(dtype), some_ids(2, 5)
    keep = torch.tensor([[True] * 5, [False] * 5])
    y = outputs(model, ids, AttentionMask(keep=keep))
    y.square().mean().backward()
    assert y.isfinite().all()
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)
    torch.testing.assert_close(y[:1], outputs(model, ids[:1]), rtol=tolerance, atol=tolerance)


@precisions
@every_kernel
def test_a_source_without_a_token_is_finite_and_harms_no_other(kernel, dtype, tolerance):
    """ATT-02."""
    model, ids = small("encoder_decoder", kernel=kernel).to(dtype), some_ids(2, 5)
    y = model(ids, ids, AttentionMask(keep=torch.tensor([[True] * 5, [False] * 5]))).logits
    y.square().mean().backward()
    assert y.isfinite().all()
    assert all(p.grad.isfinite().all() for p in model.parameters())
    torch.testing.assert_close(y[:1], model(ids[:1], ids[:1]).logits, rtol=tolerance, atol=tolerance)


@torch.no_grad()
@pytest.mark.parametrize("n_kv_heads", [4, 2])
@pytest.mark.parametrize("position", positions.choices)
@every_kernel
@pytest.mark.parametrize("layout", ["decoder_only", "encoder_decoder"])
def test_every_chunking_of_a_sequence_gives_the_same_logits(layout, kernel, position, n_kv_heads):
    """GEN-02."""
    if position == "relative" and kernels.build(kernel).refuses(Needs(learned_bias=True)):
        return
    grouped = {"name": "attention", "n_kv_heads": n_kv_heads}
    model, ids = small(layout, kernel=kernel, position=position, mixer=grouped), some_ids(2, 12)
    whole = outputs(model, ids)
    for chunks in ([1] * 12, [5, 4, 1, 1, 1]):
        cache = Cache(12)
        memory = model.encode(ids)[0] if layout == "encoder_decoder" else None
        parts = [
            (model(part, None, cache) if memory is None else model.decode(part, memory, None, None, cache)).logits
            for part in ids.split(chunks, 1)
        ]
        torch.testing.assert_close(torch.cat(parts, 1), whole, rtol=0, atol=1e-4)


@torch.no_grad()
@every_kernel
@every_layout
def test_another_document_moves_a_document_by_exactly_nothing(layout, kernel):
    """ATT-05."""
    model, ids = small(layout, kernel=kernel), some_ids(1, 7)
    other, mask = ids.clone(), AttentionMask(documents=torch.tensor([[0, 0, 0, 1, 1, 1, 1]]))
    other[:, :3] = (ids[:, :3] + 1) % 20
    packed, changed = outputs(model, ids, mask), outputs(model, other, mask)
    assert not torch.equal(packed[:, :3], changed[:, :3])
    assert torch.equal(packed[:, 3:], changed[:, 3:])
    torch.testing.assert_close(packed[:, 3:], outputs(model, ids[:, 3:]), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("kind", "tolerance"), [(torch.float32, 1e-4), (torch.bfloat16, 2e-2)], ids=str)
@every_kernel
def test_one_kernel_takes_awkward_lengths_one_after_another(kernel, kind, tolerance):
    """ATT-06."""
    one = kernels.build(kernel)
    for n in (1, 7, 127, 128, 129, 137, 1025):
        q, k, v = (torch.randn(1, 1, n, 8).to(kind).double() for _ in range(3))
        mask = AttentionMask(keep=torch.arange(n)[None] >= n // 3, causal=True)
        slope = (-0.125 * (torch.arange(n)[:, None] - torch.arange(n)).abs()).expand(1, 1, n, n).to(kind)
        found = []
        for which, dtype in ((one, kind), (Math(), torch.float64)):
            leaves = [t.to(dtype).requires_grad_() for t in (q, k, v)]
            y = which(*leaves, mask, bias=slope.to(dtype))
            found.append([y, *torch.autograd.grad(y.double().square().sum(), leaves)])
        for actual, expected in zip(*found, strict=True):
            assert (actual - expected).norm() <= tolerance * expected.norm() + 1e-9  # one key's have no gradient


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@every_kernel
def test_a_least_bias_and_a_mask_together_do_not_overflow(kernel, dtype):
    """ATT-04."""
    keep = torch.tensor([[False, False, True, True, True], [True] * 5])
    q, k, v = (torch.randn(2, 4, 5, 8, dtype=dtype) for _ in range(3))
    bias = torch.randn(2, 4, 5, 5, dtype=dtype)
    hidden = ~AttentionMask(keep=keep, causal=True).dense(5, 5, "cpu")
    bias = bias.masked_fill(hidden, torch.finfo(dtype).min)  # as those do whose mask is a number
    mask = AttentionMask(keep=keep, causal=True)
    y = kernels.build(kernel)(q, k, v, mask, bias=bias)
    scores = q.double() @ k.double().mT * 8**-0.5 + bias.double()
    weights = scores.masked_fill(hidden, -torch.inf).softmax(-1).nan_to_num(0)
    assert y.isfinite().all()
    assert not y[0, :, :2].any()  # queries that see no key
    tolerance = {torch.float32: 1e-5, torch.bfloat16: 5e-2, torch.float16: 5e-3}[dtype]
    torch.testing.assert_close(y.double(), weights @ v.double(), rtol=tolerance, atol=tolerance)
    large = v.masked_fill(~keep[:, None, :, None], 3e4)  # were a weight not exactly 0, it would show
    assert torch.equal(kernels.build(kernel)(q, k, large, mask, bias=bias)[0, :, 2:], y[0, :, 2:])


@that(dropout=0.5)
@every_layout
def test_evaluation_draws_no_random_number(layout, kernel):
    """ATT-03."""
    model, ids = small(layout, kernel=kernel, dropout=0.5), some_ids(2, 6)
    before = torch.get_rng_state()
    assert torch.equal(outputs(model, ids), outputs(model, ids))
    assert torch.equal(torch.get_rng_state(), before)
    model.train()
    assert not torch.equal(outputs(model, ids), outputs(model, ids))


@pytest.mark.parametrize("n_kv_heads", [1, 2, 4])
@every_kernel
def test_grouped_heads_are_heads_whose_keys_are_copied_group_by_group(kernel, n_kv_heads):
    """ATT-07."""
    grouped = Attention(16, 4, kernels.build(kernel), n_kv_heads=n_kv_heads)
    full = Attention(16, 4, kernels.build(kernel))
    state = copy.deepcopy(grouped.state_dict())
    for name in ("k.weight", "v.weight"):
        state[name] = state[name].unflatten(0, (n_kv_heads, 4)).repeat_interleave(4 // n_kv_heads, 0).flatten(0, 1)
    full.load_state_dict(state)
    x, placed = torch.randn(2, 6, 16), Placement()
    placed.bias = torch.randn(1, 4, 6, 6)
    keep = torch.tensor([[False, False, True, True, True, True], [True] * 6])
    context = Context(AttentionMask(keep=keep, causal=True), placed)
    torch.testing.assert_close(grouped(x, context), full(x, context), rtol=1e-5, atol=1e-6)
    if n_kv_heads == 4:
        assert torch.equal(grouped(x, context), full(x, context))


@torch.no_grad()
@pytest.mark.parametrize("real", [slice(2, 7), slice(0, 5)], ids=["left", "right"])
@every_kernel
@every_layout
def test_true_means_visible_and_pads_and_causality_hold_together(layout, kernel, real):
    """ATT-08."""
    model, ids = small(layout, kernel=kernel), some_ids(1, 7)
    keep = torch.zeros(1, 7, dtype=torch.bool)
    keep[:, real] = True
    causal = layout == "decoder_only"
    before = outputs(model, ids, AttentionMask(keep=keep))
    torch.testing.assert_close(before[:, real], outputs(model, ids[:, real]), rtol=1e-5, atol=1e-5)
    for token in range(7):
        changed = ids.clone()
        changed[:, token] = (changed[:, token] + 1) % 20
        moved = (outputs(model, changed, AttentionMask(keep=keep)) != before).any(-1)[0]
        seen = [i for i in range(7) if keep[0, i] and (i >= token or not causal)]
        for output in range(7)[real]:
            assert moved[output] == (bool(keep[0, token]) and output in seen), (token, output)


@every_layout
def test_a_mask_of_another_size_is_refused(layout):
    """ATT-08."""
    model, ids = small(layout), some_ids(1, 7)
    for length in (9, 5):
        masks = {
            "keep": AttentionMask(keep=torch.ones(1, length, dtype=torch.bool)),
            "documents": AttentionMask(documents=torch.zeros(1, length, dtype=torch.long)),
            "prefix": AttentionMask(prefix=torch.zeros(1, length, dtype=torch.bool)),
        }
        for name, mask in masks.items():
            said = f"{name} has shape .*1, {length}.*there are 7 keys"
            with unchecked(), pytest.raises(ValueError, match=said):  # as it is outside the tests
                outputs(model, ids, mask)


def test_a_mask_of_another_type_is_refused():
    """ATT-08."""
    with unchecked():  # as it is outside the tests
        for dtype in (torch.int64, torch.float32):
            with pytest.raises(ValueError, match=r"keep must be boolean \(True: may attend\)"):
                AttentionMask(keep=torch.ones(1, 7).to(dtype))
        for dtype in (torch.bool, torch.float32):
            with pytest.raises(ValueError, match="documents must be integers"):
                AttentionMask(documents=torch.ones(1, 7).to(dtype))


def test_a_mask_of_a_memory_of_another_size_is_refused():
    """ATT-08."""
    model, ids = small("encoder_decoder"), some_ids(1, 7)
    memory = model.encode(ids)[0]
    with pytest.raises(ValueError, match="keep has shape"):
        model.decode(ids, memory, AttentionMask(keep=torch.ones(1, 9, dtype=torch.bool)))
