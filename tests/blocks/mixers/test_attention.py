import pytest
import torch
from exporting import unchecked
from slow_attention import slow_attention
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from variants.blocks.cache import Cache
from variants.blocks.context import Context
from variants.blocks.kernels import Math, Sdpa
from variants.blocks.masks import AttentionMask, positions_of
from variants.blocks.mixers import Attention
from variants.blocks.mixers.multihead import MultiHead
from variants.blocks.positions import Placement, Relative, Rotary
from variants.slots import kernels, mixers

DOUBLE = torch.float64
LEFT = torch.tensor([[False, False, False, True, True, True, True], [True] * 7])
DOCUMENTS = torch.tensor([[0, 0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 1, 1, 2]])
MASKS = {
    "causal": AttentionMask(causal=True),
    "left pads": AttentionMask(causal=True, keep=LEFT),
    "documents": AttentionMask(causal=True, documents=DOCUMENTS),
    "both": AttentionMask(causal=True, keep=LEFT, documents=DOCUMENTS),
}


def attention(kernel="sdpa", **options):
    made = Attention(16, 4, kernels.build(kernel), **options).to(DOUBLE)
    for parameter in made.parameters():
        nn.init.normal_(parameter, std=0.4)
    return made


def place(mask, length, rotary=True, relative=None):
    where = positions_of(mask, length, "cpu")
    placed = Rotary().place(where, where) if rotary else Placement()
    placed.bias = None if relative is None else relative.place(where, where).bias
    return placed


def by_hand(a, x, mask, placed):
    """The equations of attention, with the loop of `slow_attention` in their midst."""
    x = x if mask.keep is None else torch.where(mask.keep[..., None], x, 0.0)
    located = x if placed.add is None else x + placed.add
    q, k, v = (
        (y @ w.weight.T + (0 if w.bias is None else w.bias)).unflatten(-1, (-1, a.d_head)).transpose(1, 2)
        for w, y in ((a.q, located), (a.k, located), (a.v, x))
    )
    q, k = placed.turn(a.q_norm(q), "q"), placed.turn(a.k_norm(k), "k")
    mixed = slow_attention(q, k, v, mask.narrowed(a.window), placed.bias, a.scale)
    return mixed.transpose(1, 2).flatten(2) @ a.out.weight.T + (0 if a.out.bias is None else a.out.bias)


@pytest.mark.parametrize("what", list(MASKS))
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"n_kv_heads": 2, "bias": True, "window": 3},
        {"n_kv_heads": 1, "d_head": 6, "scale": 0.2, "qkv_bias": True, "qk_norm": nn.RMSNorm},
    ],
)
@pytest.mark.parametrize("kernel", ["math", "auto"])
def test_attention_equals_its_equations_forward_and_backward(kernel, options, what):
    a, mask, relative = attention(kernel, **options), MASKS[what], Relative(4).to(DOUBLE)
    placed = place(mask, 7, relative=relative)
    x = torch.randn(2, 7, 16, dtype=DOUBLE, requires_grad=True)
    wanted = [x, relative.table.weight, *a.parameters()]
    direction = torch.randn(2, 7, 16, dtype=DOUBLE)
    outs = a(x, Context(mask, placed)), by_hand(a, x, mask, placed)
    torch.testing.assert_close(*outs, rtol=1e-9, atol=1e-9)
    actual, expected = (torch.autograd.grad((o * direction).sum(), wanted, retain_graph=True) for o in outs)
    torch.testing.assert_close(actual, expected, rtol=1e-8, atol=1e-8)


def test_what_a_placement_adds_reaches_queries_and_keys_but_not_values():
    a, placed = attention(), Placement()
    placed.add = torch.randn(1, 7, 16, dtype=DOUBLE)
    x = torch.randn(2, 7, 16, dtype=DOUBLE)
    torch.testing.assert_close(a(x, Context(place=placed)), by_hand(a, x, AttentionMask(), placed))


def test_what_a_placement_adds_takes_the_dtype_of_the_input():
    """A placement is told no dtype, and a sine is float32."""
    place = Placement()
    place.add = torch.randn(1, 5, 12)
    attention, x = Attention(12, 3, Math()).bfloat16(), torch.randn(2, 5, 12).bfloat16()
    y = attention(x, Context(place=place))
    assert y.dtype == torch.bfloat16
    exact = attention.double()(x.double(), Context(place=place))
    torch.testing.assert_close(y.double(), exact, atol=0.05, rtol=0.05)


@pytest.mark.parametrize("options", [{}, {"n_kv_heads": 2, "window": 3, "qk_norm": nn.RMSNorm}])
@pytest.mark.parametrize("what", list(MASKS))
@pytest.mark.parametrize("chunks", [[7], [1] * 7, [3, 1, 1, 2]])
def test_cached_chunks_equal_the_whole(chunks, what, options):
    a, mask, relative = attention(**options), MASKS[what], Relative(4).to(DOUBLE)
    x, cache, outs, start = torch.randn(2, 7, 16, dtype=DOUBLE), Cache(7), [], 0
    x[~LEFT] = torch.nan if mask.keep is not None else 0.0
    whole = a(x, Context(mask, place(mask, 7, relative=relative)))
    with torch.no_grad():
        for n in chunks:
            facts = {k: getattr(mask, k) for k in ("keep", "documents")}
            chunk = {k: None if t is None else t[:, start : start + n] for k, t in facts.items()}
            seen = cache.extend(AttentionMask(causal=True, **chunk), 2, n, torch.device("cpu"))
            where = positions_of(seen, start + n, "cpu")
            placed = Rotary().place(where[:, -n:], where)
            placed.bias = relative.place(where[:, -n:], where).bias
            outs.append(a(x[:, start : start + n], Context(seen, placed, cache=cache)))
            start += n
    torch.testing.assert_close(torch.cat(outs, 1), whole)


@pytest.mark.parametrize("kernel", ["math", "sdpa", "flash"])
def test_what_pads_hold_reaches_neither_output_nor_gradients(kernel):
    a, mask = attention(kernel, bias=True), MASKS["left pads"]
    x = torch.randn(2, 7, 16, dtype=DOUBLE)
    results = []
    for filler in (0.0, torch.nan, torch.inf):
        filled = x.masked_fill(~LEFT[..., None], filler).requires_grad_()
        out = a(filled, Context(mask, place(mask, 7)))
        out.square().sum().backward()
        results.append([out.detach(), filled.grad, *(p.grad.clone() for p in a.parameters())])
        a.zero_grad()
    for poisoned in results[1:]:
        assert all(torch.equal(p, clean) for p, clean in zip(poisoned, results[0], strict=True))


def test_a_document_does_not_see_another_and_equals_itself_alone():
    a, x = attention(), torch.randn(1, 7, 16, dtype=DOUBLE)
    mask = AttentionMask(causal=True, documents=DOCUMENTS[:1])
    packed = a(x, Context(mask, place(mask, 7)))
    other = x.clone()
    other[:, :4] = torch.randn(1, 4, 16)
    assert torch.equal(a(other, Context(mask, place(mask, 7)))[:, 4:], packed[:, 4:])
    alone = AttentionMask(causal=True)
    torch.testing.assert_close(a(x[:, 4:], Context(alone, place(alone, 3))), packed[:, 4:])


def test_dropout_acts_in_training_alone():
    a, x = attention(attention_dropout=0.5), torch.randn(2, 7, 16, dtype=DOUBLE)
    assert not torch.equal(a(x), a(x))
    a.eval()
    before = torch.get_rng_state()
    assert torch.equal(a(x), a(x))
    assert torch.equal(torch.get_rng_state(), before)


def test_as_many_key_heads_as_query_heads_is_multi_head_attention_to_the_bit():
    a, b, x = attention(), attention(n_kv_heads=4), torch.randn(2, 7, 16, dtype=DOUBLE)
    b.load_state_dict(a.state_dict())
    assert torch.equal(a(x), b(x))


def test_an_offered_bias_gives_way_to_the_configs():
    offers = {"d_model": 16, "n_heads": 4, "kernel": Math(), "bias": True, "attention_dropout": 0.1}
    plain = mixers.build("attention", **offers)
    assert plain.q.bias is not None
    assert plain.needs(learned_bias=True).dropout == 0.1
    own = mixers.build({"name": "attention", "bias": False, "out_bias": True, "attention_dropout": 0}, **offers)
    assert own.q.bias is None
    assert own.out.bias is not None
    assert own.needs().dropout == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_heads": 3}, "n_heads 3 must divide d_model 16"),
        ({"n_heads": 4, "n_kv_heads": 3}, "n_kv_heads 3 must divide n_heads 4"),
        ({"n_heads": 4, "n_kv_heads": 0}, "n_kv_heads 0"),
        ({"n_heads": 4, "window": 0}, "window must be at least 1, not 0"),
        ({"n_heads": 4, "attention_dropout": 1.0}, "attention_dropout must be"),
    ],
)
def test_heads_that_do_not_fit_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Attention(16, kernel=Math(), **options)


def test_flops_are_those_that_torch_counts():
    for options in ({}, {"n_kv_heads": 2, "d_head": 6}):
        a = Attention(16, 4, Math(), **options).to("meta")
        with FlopCounterMode(display=False) as counter:
            a(torch.empty(1, 7, 16, device="meta"))
        assert a.flops(7, 7) == counter.get_total_flops()
    assert a.flops(2, 9) - a.flops(2, 8) == 4 * 2 * 4 * 6


@pytest.mark.parametrize("padded", [False, True])
def test_attention_exports_with_any_batch_and_time(padded):
    a = Attention(16, 4, Sdpa(), n_kv_heads=2).eval()

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.rotary = a, Rotary()

        def forward(self, x, mask):
            where = positions_of(mask, x.shape[1], x.device)
            return self.a(x, Context(mask, self.rotary.place(where, where)))

    batch, time = torch.export.Dim("batch", max=64), torch.export.Dim("time", min=2, max=64)
    mask = MASKS["left pads" if padded else "causal"]
    shapes = ({0: batch, 1: time}, [{0: batch, 1: time}] if padded else [])
    with unchecked():
        program = torch.export.export(Model(), (torch.randn(2, 7, 16), mask), dynamic_shapes=shapes)
    x, keep = torch.randn(3, 11, 16), torch.rand(3, 11) > 0.3
    other = AttentionMask(causal=True, keep=keep if padded else None)
    torch.testing.assert_close(program.module()(x, other), Model()(x, other))


def test_the_least_window_and_head_will_do():
    a = Attention(4, 4, Math(), window=1, d_head=1)
    x = torch.randn(1, 3, 4)
    torch.testing.assert_close(a(x), a.out(a.v(x)))
    for options, message in (({"window": 0}, "window must be at least 1, not 0"), ({"d_head": 0}, "d_head must be at")):
        with pytest.raises(ValueError, match=message):
            Attention(4, 4, Math(), **options)


def test_without_a_word_there_is_no_bias():
    for made in (Attention(4, 2, Math()), MultiHead(4, 2, Math())):
        assert not [name for name, _ in made.named_parameters() if name.endswith("bias")]
