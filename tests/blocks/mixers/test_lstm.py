import pytest
import torch
from exporting import unchecked
from torch import nn

from variants.blocks.cache import Cache
from variants.blocks.context import Context
from variants.blocks.masks import AttentionMask
from variants.blocks.mixers import Lstm
from variants.slots import mixers

DOUBLE = torch.float64
KEEP = torch.ones(4, 9, dtype=torch.bool)
KEEP[0, :4] = KEEP[1, 5:7] = KEEP[2, 7:] = KEEP[3] = False  # left, middle, right, and a row without a token
DOCUMENTS = torch.tensor([[0] * 5 + [1] * 4, [0] * 9, [0] * 2 + [1] * 4 + [2] * 3, [0] * 4 + [1] * 5])
FACTS = {
    "nothing": {},
    "pads": {"keep": KEEP},
    "documents": {"documents": DOCUMENTS},
    "both": {"keep": KEEP, "documents": DOCUMENTS},
}


def lstm(d_model=6, **options):
    made = Lstm(d_model, **options).to(DOUBLE)
    for parameter in made.parameters():  # biases too: with none, an empty state stays empty at blanked pads by itself
        nn.init.normal_(parameter, std=0.7)
    return made


def slow_direction(inner, suffix, x, keep, fresh):
    """The recurrence, a token at a time: reset where a document begins, hold at pads."""
    weights = {n: getattr(inner, f"{n}_l0{suffix}") for n in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")}
    rows = []
    for b in range(len(x)):
        h = c = torch.zeros(inner.hidden_size, dtype=x.dtype)
        steps = []
        for t in range(x.shape[1]):
            if fresh[b, t]:
                h, c = torch.zeros_like(h), torch.zeros_like(c)
            if keep[b, t]:
                gates = (
                    weights["weight_ih"] @ x[b, t] + weights["bias_ih"] + weights["weight_hh"] @ h + weights["bias_hh"]
                )
                i, f, g, o = gates.chunk(4)
                c = f.sigmoid() * c + i.sigmoid() * g.tanh()
                h = o.sigmoid() * c.tanh()
            steps.append(h)
        rows.append(torch.stack(steps))
    return torch.stack(rows)


def by_hand(m, x, keep=None, documents=None):
    keep = torch.ones(x.shape[:2], dtype=torch.bool) if keep is None else keep
    documents = torch.zeros(x.shape[:2], dtype=torch.long) if documents is None else documents
    changes = documents[:, 1:] != documents[:, :-1]
    ends = torch.ones(len(x), 1, dtype=torch.bool)
    out = slow_direction(m.lstm, "", x, keep, torch.cat((ends, changes), 1))
    if m.bidirectional:
        last = torch.cat((changes, ends), 1)  # read backwards, a document begins at its last token
        back = slow_direction(m.lstm, "_reverse", x.flip(1), keep.flip(1), last.flip(1)).flip(1)
        out = torch.cat((out, back), -1)
    return out


@pytest.mark.parametrize("bidirectional", [False, True])
def test_without_pads_it_is_torchs_lstm(bidirectional):
    m, x = lstm(bidirectional=bidirectional), torch.randn(4, 9, 6, dtype=DOUBLE)
    reference = nn.LSTM(6, 3 if bidirectional else 6, batch_first=True, bidirectional=bidirectional).to(DOUBLE)
    reference.load_state_dict(m.lstm.state_dict())
    torch.testing.assert_close(m(x), reference(x)[0])


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("what", list(FACTS))
def test_the_state_is_held_at_pads_and_reset_at_documents_forward_and_backward(what, bidirectional):
    m, x = lstm(bidirectional=bidirectional), torch.randn(4, 9, 6, dtype=DOUBLE, requires_grad=True)
    facts, wanted, direction = FACTS[what], [x, *m.parameters()], torch.randn(4, 9, 6, dtype=DOUBLE)
    outs = m(x, Context(AttentionMask(causal=not bidirectional, **facts))), by_hand(m, x, **facts)
    torch.testing.assert_close(*outs)
    actual, expected = (torch.autograd.grad((o * direction).sum(), wanted) for o in outs)
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("chunks", [[9], [1] * 9, [5, 1, 1, 2]])
@pytest.mark.parametrize("what", list(FACTS))
def test_cached_chunks_equal_the_whole(what, chunks):
    m, x, facts = lstm(), torch.randn(4, 9, 6, dtype=DOUBLE), FACTS[what]
    if "keep" in facts:
        x[~KEEP] = torch.nan
    cache, outs, start = Cache(9), [], 0
    with torch.no_grad():
        for n in chunks:
            chunk = {name: fact[:, start : start + n] for name, fact in facts.items()}
            mask = cache.extend(AttentionMask(causal=True, **chunk), 4, n, torch.device("cpu"))
            outs.append(m(x[:, start : start + n], Context(mask, cache=cache)))
            start += n
    torch.testing.assert_close(torch.cat(outs, 1), m(x, Context(AttentionMask(causal=True, **facts))))


def test_beams_take_their_states_with_them():
    m, x, cache = lstm(), torch.randn(2, 4, 6, dtype=DOUBLE), Cache(5)
    with torch.no_grad():
        m(x, Context(cache=cache))
        cache.reorder(torch.tensor([1, 1]))
        step = torch.randn(1, 1, 6, dtype=DOUBLE).expand(2, -1, -1)
        out = m(step, Context(cache=cache))
        torch.testing.assert_close(out[0], out[1])
        torch.testing.assert_close(out[:1], m(torch.cat((x[1:], step[:1]), 1))[:, -1:])


@pytest.mark.parametrize("bidirectional", [False, True])
def test_what_pads_hold_reaches_neither_output_nor_gradients(bidirectional):
    m, x, results = lstm(bidirectional=bidirectional), torch.randn(4, 9, 6, dtype=DOUBLE), []
    for filler in (0.0, torch.nan):
        filled = x.masked_fill(~KEEP[..., None], filler).requires_grad_()
        out = m(filled, Context(AttentionMask(keep=KEEP)))
        out.square().sum().backward()
        results.append([out.detach(), filled.grad, *(p.grad.clone() for p in m.parameters())])
        m.zero_grad()
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_one_direction_reads_no_later_token():
    m, x = lstm(), torch.randn(1, 9, 6, dtype=DOUBLE)
    other = x.clone()
    other[:, 5] += 1
    assert torch.equal(m(x)[:, :5], m(other)[:, :5])
    assert not torch.equal(m(x)[:, 5], m(other)[:, 5])


def test_the_forget_gate_starts_open_and_every_gate_has_a_name_of_its_own():
    m = Lstm(4, forget_bias=2.0)
    for mixer, forget in ((Lstm(4), 1.0), (m, 2.0)):
        total = mixer.lstm.bias_ih_l0 + mixer.lstm.bias_hh_l0
        assert total.tolist() == [0.0] * 4 + [forget] * 4 + [0.0] * 8
    assert set(m.lstm.initial) == {"bias_ih_l0", "bias_hh_l0"}
    assert torch.equal(m.lstm.initial["bias_ih_l0"](torch.Size([16])), m.lstm.bias_ih_l0)
    assert m.lstm.parts("weight_hh_l0") == [(f"state.{g}", slice(4 * i, 4 * i + 4)) for i, g in enumerate("ifgo")]
    assert m.lstm.parts("bias_ih_l0") is None
    both = Lstm(4, True)
    names = [name for p, _ in both.lstm.named_parameters() for name, _ in both.lstm.parts(p) or []]
    assert len(set(names)) == 16
    assert "reverse.input.f" in names


def test_what_it_cannot_do_is_refused():
    with pytest.raises(ValueError, match="d_model 5 must be even"):
        Lstm(5, True)
    with pytest.raises(ValueError, match="every window, but the mask's is 3"):
        lstm()(torch.randn(1, 4, 6, dtype=DOUBLE), Context(AttentionMask(window=3)))
    with pytest.raises(ValueError, match="reads no token before its turn, but the mask has a prefix"):
        lstm()(torch.randn(1, 4, 6, dtype=DOUBLE), Context(AttentionMask(prefix=torch.ones(1, 4).bool())))
    for context in (Context(AttentionMask(causal=True)), Context(cache=Cache(4))):
        with pytest.raises(AssertionError, match="serves no causal stack"):
            lstm(bidirectional=True)(torch.randn(1, 4, 6, dtype=DOUBLE), context)


def test_it_is_built_from_its_name_and_counts_a_token_at_a_time():
    m = mixers.build({"name": "lstm", "forget_bias": 0}, d_model=6, bidirectional=True, n_heads=2, kernel=None)
    assert m.bidirectional
    assert m.flops(5, 9) == 5 * m.flops(1, 1) == 5 * 2 * 2 * (12 * 6 + 12 * 3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_it_runs_under_autocast_and_stays_finite(dtype):
    m, x = Lstm(8), torch.randn(4, 9, 8, dtype=dtype)
    with torch.autocast("cpu", torch.bfloat16):
        for facts in FACTS.values():
            m(x, Context(AttentionMask(causal=True, **facts))).float().square().sum().backward()
    assert all(p.grad.isfinite().all() for p in m.parameters())


@pytest.mark.filterwarnings("ignore:The tensor attributes self.lstm._flat_weights")  # torch's own list of weights
def test_without_pads_it_exports_with_any_batch():  # torch unrolls the time of a recurrence
    m = Lstm(8).eval()
    with unchecked():
        program = torch.export.export(
            m, (torch.randn(2, 7, 8),), dynamic_shapes=({0: torch.export.Dim("batch", max=64)},)
        )
    x = torch.randn(3, 7, 8)
    torch.testing.assert_close(program.module()(x), m(x))
