import pytest
import torch
from slow_attention import slow_attention, slow_weights
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from variants.blocks.kernels import Auto, Flash, Math, Needs, Sdpa, recorded
from variants.blocks.masks import AttentionMask
from variants.slots import kernels

NAMES = ["auto", "flash", "math", "sdpa"]
SHAPES = [(5, 5), (3, 7), (1, 6)]  # queries, keys: a whole sequence, a chunk after a cache, a single step


def masks(n_query, n_key):
    keep = torch.ones(2, n_key, dtype=torch.bool)
    left, right, holes = keep.clone(), keep.clone(), keep.clone()
    left[0, :3] = False
    right[1, -2:] = False
    holes[0, 2] = holes[1, 0] = False
    nothing = keep.clone()
    nothing[1] = False
    documents = torch.arange(n_key).ge(n_key // 2).long().expand(2, -1).contiguous()
    prefix = torch.arange(n_key).lt(3).expand(2, -1).contiguous()
    own = torch.tensor([[1] * n_query, [7] * n_query])  # the second row's queries belong to no document of the keys
    return {
        "all": AttentionMask(),
        "causal": AttentionMask(causal=True),
        "window": AttentionMask(causal=True, window=2),
        "both sides": AttentionMask(window=2),
        "left pads": AttentionMask(keep=left, causal=True),
        "right pads": AttentionMask(keep=right),
        "holes": AttentionMask(keep=holes, causal=True, window=3),
        "no token": AttentionMask(keep=nothing),
        "documents": AttentionMask(documents=documents, causal=True),
        "pairs": AttentionMask(documents=documents, query_documents=own),
        "prefix": AttentionMask(prefix=prefix, causal=True, window=4),
    }


def inputs(n_query, n_key, n_heads=4, n_kv_heads=2, d_head=6, d_value=6, dtype=torch.float64, batch=2):
    q = torch.randn(batch, n_heads, n_query, d_head, dtype=dtype)
    k = torch.randn(batch, n_kv_heads, n_key, d_head, dtype=dtype)
    v = torch.randn(batch, n_kv_heads, n_key, d_value, dtype=dtype)
    return [t.requires_grad_() for t in (q, k, v)]


def run(attend, tensors, direction):
    out = attend(*tensors)
    return [out, *torch.autograd.grad((out * direction).sum(), tensors)]


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize(("n_query", "n_key"), SHAPES)
@pytest.mark.parametrize("what", list(masks(5, 5)))
def test_every_kernel_equals_the_loop_forward_and_backward(what, n_query, n_key, biased):
    mask, tensors = masks(n_query, n_key)[what], inputs(n_query, n_key)
    bias = torch.randn(2, 4, n_query, n_key + 2, dtype=torch.float64) if biased else None
    direction = torch.randn(2, 4, n_query, 6, dtype=torch.float64)
    expected = run(lambda q, k, v: slow_attention(q, k, v, mask, bias, 0.3), tensors, direction)
    for name in NAMES:
        kernel = kernels.build(name)
        actual = run(lambda q, k, v, f=kernel: f(q, k, v, mask, bias=bias, scale=0.3), tensors, direction)
        torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-10, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.parametrize("name", ["math", "sdpa", "auto"])
def test_a_learned_bias_has_its_gradient(name):
    mask, tensors = AttentionMask(causal=True), inputs(5, 5)
    bias = torch.randn(1, 4, 5, 5, dtype=torch.float64, requires_grad=True)
    kernel, direction = kernels.build(name), torch.randn(2, 4, 5, 6, dtype=torch.float64)
    kernel.settle(Needs(learned_bias=True))
    expected = run(lambda q, k, v, b: slow_attention(q, k, v, mask, b), [*tensors, bias], direction)
    actual = run(lambda q, k, v, b: kernel(q, k, v, mask, bias=b), [*tensors, bias], direction)
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", NAMES)
def test_values_may_have_another_width(name):
    for d_value in (3, 9):
        tensors, mask = inputs(5, 5, d_value=d_value), AttentionMask(causal=True)
        direction = torch.randn(2, 4, 5, d_value, dtype=torch.float64)
        kernel = kernels.build(name)
        expected = run(lambda q, k, v, m=mask: slow_attention(q, k, v, m), tensors, direction)
        actual = run(lambda q, k, v, f=kernel, m=mask: f(q, k, v, m), tensors, direction)
        torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", NAMES)
def test_a_heads_features_need_not_be_neighbours_in_memory(name):
    apart = [t.mT.contiguous().mT for t in inputs(5, 5)]
    assert apart[0].stride(-1) != 1
    torch.testing.assert_close(kernels.build(name)(*apart, AttentionMask()), Math()(*apart, AttentionMask()))


@pytest.mark.parametrize("name", NAMES)
def test_a_query_that_sees_nothing_gives_zero_with_finite_gradients(name):
    for dtype in (torch.float32, torch.bfloat16):
        tensors = inputs(5, 5, dtype=dtype)
        keep = torch.tensor([[False] * 5, [False, False, True, True, True]])
        bias = torch.randn(1, 4, 5, 5, dtype=dtype)
        kernel = kernels.build(name)
        out = kernel(*tensors, AttentionMask(keep=keep, causal=True), bias=bias)
        gradients = torch.autograd.grad(out.float().square().sum(), tensors)
        assert (out[0] == 0).all()
        assert (out[1, :, :2] == 0).all()
        assert (out[1, :, 2:] != 0).all()
        assert all(t.isfinite().all() for t in gradients)


def test_blind_rows_are_guarded_whatever_torch_makes_of_them(monkeypatch):
    seen = {}

    def attend(self, q, k, v, scores_mask, is_causal, scale, dropout):
        seen["mask"] = scores_mask
        return torch.full((*q.shape[:-1], v.shape[-1]), 3.0, dtype=q.dtype)

    monkeypatch.setattr(Sdpa, "attend", attend)
    keep = torch.tensor([[False] * 5, [True] * 5])
    out = Sdpa()(*inputs(5, 5), AttentionMask(keep=keep))
    assert seen["mask"].any(-1).all()
    assert (out[0] == 0).all()
    assert (out[1] == 3).all()
    out = Sdpa()(*inputs(5, 2), AttentionMask(window=2))  # the first queries lie before the first key's window
    assert seen["mask"].any(-1).all()
    assert [bool((out[:, :, i] == 0).all()) for i in range(5)] == [True, True, False, False, False]


@pytest.mark.parametrize("name", ["auto", "flash", "sdpa"])
def test_awkward_lengths_agree_with_float64(name):
    kernel = kernels.build(name)
    for length in (1, 7, 127, 128, 129):
        tensors = inputs(length, length, n_heads=2, n_kv_heads=1, d_head=8, d_value=8)
        keep = torch.ones(2, length, dtype=torch.bool)
        keep[1, : length // 3] = False
        bias, direction = torch.randn(1, 2, length, length), torch.randn(2, 2, length, 8)
        for mask in (AttentionMask(causal=True), AttentionMask(keep=keep, causal=True)):
            expected = run(lambda *t, m=mask, b=bias: Math()(*t, m, bias=b.double()), tensors, direction.double())
            for dtype, tolerance in ((torch.float32, 1e-5), (torch.bfloat16, 5e-2)):
                low = [t.detach().to(dtype).requires_grad_() for t in tensors]
                actual = run(lambda *t, m=mask, b=bias, d=dtype: kernel(*t, m, bias=b.to(d)), low, direction.to(dtype))
                for got, want in zip(actual, expected, strict=True):
                    assert got.isfinite().all()
                    assert (got.double() - want).norm() <= tolerance * want.norm()


class Largest(TorchDispatchMode):
    numel = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        self.numel = max([self.numel, *(t.numel() for t in tree_leaves(out) if isinstance(t, torch.Tensor))])
        return out


@pytest.mark.parametrize(("name", "wants_all"), [("flash", False), ("sdpa", False), ("auto", False), ("math", True)])
def test_causality_alone_makes_no_tensor_of_time_by_time(name, wants_all):
    tensors = inputs(256, 256, n_heads=1, n_kv_heads=1, d_head=8, d_value=8, batch=1, dtype=torch.float32)
    with Largest() as largest:
        kernels.build(name)(*tensors, AttentionMask(causal=True)).sum().backward()
    assert (largest.numel >= 256 * 256) == wants_all


@pytest.mark.parametrize("name", NAMES)
def test_query_head_h_uses_key_head_h_over_group(name):
    kernel, mask = kernels.build(name), AttentionMask(causal=True)
    q, k, v = inputs(5, 5, n_heads=4, n_kv_heads=2)
    order = torch.tensor([0, 0, 1, 1])
    torch.testing.assert_close(kernel(q, k, v, mask), kernel(q, k[:, order], v[:, order], mask))


@pytest.mark.parametrize("name", ["math", "sdpa"])
def test_dropout_drops_weights_and_keeps_their_mean(name):
    q, k, v = inputs(64, 64, dtype=torch.float32)
    ones = torch.ones_like(v)
    out = kernels.build(name)(q, k, ones, AttentionMask(), dropout=0.5)
    assert out.std() > 0.01
    assert abs(out.mean() - 1) < 0.05


def test_flash_refuses_what_it_cannot_do_and_says_who_can():
    for needs in (Needs(dropout=0.1), Needs(learned_bias=True), Needs(learned_bias=True, device="cuda")):
        with pytest.raises(ValueError, match=r"flash .*auto, math and sdpa have"):
            Flash().settle(needs)
    Flash().settle(Needs())
    Flash().settle(Needs(dropout=0.1, device="cuda"))
    for kernel in (Math(), Sdpa()):
        kernel.settle(Needs(dropout=0.1, learned_bias=True))


@pytest.mark.filterwarnings("ignore::UserWarning")  # torch says why it has no kernel
def test_flash_that_is_called_for_what_it_cannot_do_falls_back_on_nothing():
    tensors = inputs(5, 5, dtype=torch.float32)
    for asked in ({"dropout": 0.5}, {"bias": torch.randn(1, 4, 5, 5, requires_grad=True)}):
        with pytest.raises(RuntimeError, match="No available kernel"):
            Flash()(*tensors, AttentionMask(causal=True), **asked)


def test_auto_takes_the_first_that_does_not_refuse_and_says_which():
    auto = Auto()
    assert auto.effective == "sdpa"
    for needs, chosen in (
        (Needs(), "flash"),
        (Needs(dropout=0.1), "sdpa"),
        (Needs(learned_bias=True), "sdpa"),
        (Needs(device="cuda"), "sdpa"),
    ):
        auto.settle(needs)
        assert auto.effective == chosen
    assert [kernels.build(name).effective for name in ("math", "sdpa", "flash")] == ["math", "sdpa", "flash"]


class Two(nn.Module):
    def __init__(self, name):
        super().__init__()
        self.first, self.second = kernels.build(name), kernels.build(name)

    def forward(self, q, k, v, mask, bias):
        self.first(q, k, v, mask, bias=bias, scale=0.3)
        return self.second(q, k, v, mask)


@pytest.mark.parametrize("name", NAMES)
def test_weights_are_recorded_on_request_and_nothing_else_changes(name):
    model, (q, k, v), mask = Two(name), inputs(3, 7), masks(3, 7)["left pads"]
    bias = torch.randn(1, 4, 3, 7, dtype=torch.float64)
    plain = model(q, k, v, mask, bias)
    with recorded(model) as weights:
        watched = model(q, k, v, mask, bias)
    assert torch.equal(watched, plain)
    assert {key: len(calls) for key, calls in weights.items()} == {"first": 1, "second": 1}
    torch.testing.assert_close(weights["first"][0], slow_weights(q, k, mask, bias, 0.3))
    torch.testing.assert_close(weights["second"][0], slow_weights(q, k, mask))
    with recorded(model, lambda key: key == "second") as weights:
        model(q, k, v, mask, bias)
    model(q, k, v, mask, bias)
    assert {key: len(calls) for key, calls in weights.items()} == {"second": 1}
