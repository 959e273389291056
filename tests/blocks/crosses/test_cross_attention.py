import pytest
import torch
from slow_attention import slow_attention
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from variants.blocks.cache import Cache
from variants.blocks.context import Context
from variants.blocks.crosses import CrossAttention, NoCross
from variants.blocks.kernels import Math
from variants.blocks.masks import AttentionMask
from variants.slots import crosses, kernels

DOUBLE = torch.float64
KEEP = torch.tensor([[True] * 5, [True, True, True, False, False]])


def cross(kernel="sdpa", **options):
    made = CrossAttention(16, 4, kernels.build(kernel), **options).to(DOUBLE)
    for parameter in made.parameters():
        nn.init.normal_(parameter, std=0.4)
    return made


def by_hand(c, x, memory, mask):
    q, k, v = (
        (y @ w.weight.T + (0 if w.bias is None else w.bias)).unflatten(-1, (-1, c.d_head)).transpose(1, 2)
        for w, y in ((c.q, x), (c.k, memory), (c.v, memory))
    )
    read = slow_attention(c.q_norm(q), c.k_norm(k), v, mask, None, c.scale)
    return read.transpose(1, 2).flatten(2) @ c.out.weight.T + (0 if c.out.bias is None else c.out.bias)


@pytest.mark.parametrize("kernel", ["math", "sdpa", "flash"])
@pytest.mark.parametrize("options", [{}, {"n_kv_heads": 2, "bias": True, "scale": 0.3, "qk_norm": nn.RMSNorm}])
@pytest.mark.parametrize(
    "mask",
    [
        AttentionMask(),
        AttentionMask(keep=KEEP),
        AttentionMask(
            documents=torch.tensor([[0, 0, 1, 1, 1]] * 2), query_documents=torch.tensor([[0, 0, 1], [1, 1, 2]])
        ),
    ],
)
def test_the_memory_is_read_by_the_equations_forward_and_backward(mask, options, kernel):
    c = cross(kernel, **options)
    x, memory = (torch.randn(2, n, 16, dtype=DOUBLE, requires_grad=True) for n in (3, 5))
    wanted, direction = [x, memory, *c.parameters()], torch.randn(2, 3, 16, dtype=DOUBLE)
    own = AttentionMask(causal=True)  # the decoder's own mask says nothing about the memory
    outs = c(x, Context(own, memory=memory, memory_mask=mask)), by_hand(c, x, memory, mask)
    torch.testing.assert_close(*outs, rtol=1e-9, atol=1e-9)
    actual, expected = (torch.autograd.grad((o * direction).sum(), wanted) for o in outs)
    torch.testing.assert_close(actual, expected, rtol=1e-8, atol=1e-8)


def test_beams_of_one_source_equal_that_source_repeated():
    c, mask = cross(n_kv_heads=2), AttentionMask(keep=KEEP)
    memory, x, cache = torch.randn(2, 5, 16, dtype=DOUBLE), torch.randn(6, 2, 16, dtype=DOUBLE), Cache(8)
    with torch.no_grad():
        first = c(x[:2], Context(memory=memory, memory_mask=mask, cache=cache))
        beams = c(x, Context(memory=None, memory_mask=mask, cache=cache))
    repeated, repeated_mask = memory.repeat_interleave(3, 0), AttentionMask(keep=KEEP.repeat_interleave(3, 0))
    torch.testing.assert_close(first, c(x[:2], Context(memory=memory, memory_mask=mask)))
    torch.testing.assert_close(beams, c(x, Context(memory=repeated, memory_mask=repeated_mask)))


def test_keys_of_the_memory_are_made_once_under_a_cache_and_survive_a_reordering():
    c, memory, cache = cross(), torch.randn(2, 5, 16, dtype=DOUBLE), Cache(8)
    calls = []
    c.k.register_forward_hook(lambda *_: calls.append(1))
    with torch.no_grad():
        for _ in range(3):
            c(torch.randn(4, 1, 16, dtype=DOUBLE), Context(memory=memory, cache=cache))
            cache.reorder(torch.tensor([1, 0, 3, 3]))
    assert len(calls) == 1


def test_what_pads_hold_on_either_side_reaches_neither_output_nor_gradients():
    c, own = cross(bias=True), torch.tensor([[False, True, True], [True] * 3])
    x, memory = (torch.randn(2, n, 16, dtype=DOUBLE) for n in (3, 5))
    results = []
    for filler in (0.0, torch.nan):
        tensors = [t.masked_fill(~k[..., None], filler).requires_grad_() for t, k in ((x, own), (memory, KEEP))]
        context = Context(AttentionMask(keep=own), memory=tensors[1], memory_mask=AttentionMask(keep=KEEP))
        out = c(tensors[0], context)
        out.square().sum().backward()
        results.append([out.detach(), *(t.grad for t in tensors), *(p.grad.clone() for p in c.parameters())])
        c.zero_grad()
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_a_source_without_a_token_gives_the_outputs_bias():
    c, keep = cross(bias=True), torch.tensor([[False] * 5, [True] * 5])
    x, memory = (torch.randn(2, n, 16, dtype=DOUBLE) for n in (3, 5))
    out = c(x, Context(memory=memory, memory_mask=AttentionMask(keep=keep)))
    assert torch.equal(out[0], c.out.bias.expand(3, -1))
    out.sum().backward()
    assert all(p.grad.isfinite().all() for p in c.parameters())


def test_flops_are_those_that_torch_counts():
    c = CrossAttention(16, 4, Math(), n_kv_heads=2).to("meta")
    with FlopCounterMode(display=False) as counter:
        c(torch.empty(1, 3, 16, device="meta"), Context(memory=torch.empty(1, 5, 16, device="meta")))
    assert c.flops(3, 5) == counter.get_total_flops()


def test_none_reads_nothing_and_owns_nothing():
    none, x = crosses.build("none", d_model=16, n_heads=4), torch.randn(2, 3, 16)
    assert isinstance(none, NoCross)
    assert none.absent
    assert not list(none.parameters())
    assert (none(x, Context()) == 0).all()
