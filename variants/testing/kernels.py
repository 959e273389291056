"""What a kernel promises: the numbers of a plain loop, forward and backward, or a refusal with its reason."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from variants.blocks.kernels.base import Needs
from variants.blocks.masks import AttentionMask
from variants.testing.base import Broken, finite, noise, same
from variants.testing.examples import Example

SHAPES = ((9, 9), (1, 9), (4, 9))
TOLERANCE = 2e-5


class Case(NamedTuple):
    """One call of a kernel."""

    what: str
    mask: AttentionMask
    n_query: int = 9
    n_key: int = 9
    kv_heads: int = 4
    d_head: int = 4
    d_value: int = 4
    bias: str = "none"
    scale: float | None = None

    def __repr__(self) -> str:
        return (
            f"{self.what}, {self.n_query} queries over {self.n_key} keys, 4 heads over {self.kv_heads}, "
            f"widths {self.d_head} and {self.d_value}"
        )


def matches_a_loop(example: Example) -> None:
    """Every mask at every alignment, forward and backward."""
    _agrees(example, _masked())


def matches_at_awkward_sizes(example: Example) -> None:
    """Lengths and head widths that no tile divides, values of another width, a scale of one's own."""
    _agrees(example, _sized())


def heads_are_grouped(example: Example) -> None:
    """Query head h uses key head ``h // (heads / kv_heads)``."""
    _agrees(example, (Case("grouped heads", AttentionMask(causal=True), kv_heads=n) for n in (1, 2)))


def biases_are_added(example: Example) -> None:
    """A bias on the scores is added, its last keys where it is longer; its gradient is right, or refused."""
    learned = example.plain().refuses(Needs(learned_bias=True)) is None
    for what, mask in (("all", AttentionMask()), ("causal", AttentionMask(causal=True)), ("pads", _keep(9))):
        for n_query in (9, 4):
            _agrees(example, [Case(f"{what} and a bias", mask, n_query, bias="learned" if learned else "fixed")])


def a_blind_query_gives_zero(example: Example) -> None:
    """A query that sees no key gives 0, with finite gradients, though what is hidden is large."""
    keep = torch.tensor([[True] * 4, [False] * 4])
    for dtype in (torch.float32, torch.bfloat16):
        for causal in (True, False):
            q, k, v = (noise(2, 4, 4, 4, seed=s, dtype=dtype).mul_(30).requires_grad_() for s in range(3))
            y = example.plain()(q, k, v, AttentionMask(keep=keep, causal=causal))
            if y[1].any():
                raise Broken(f"a row without keys gives {y[1].abs().max().item():.2g} ({dtype}, causal {causal})")
            for name, slope in zip("qkv", torch.autograd.grad(y.float().sum(), (q, k, v)), strict=True):
                finite(slope, f"a row without keys: the gradient of {name} ({dtype}, causal {causal})")
            finite(y, f"beside a row without keys ({dtype}, causal {causal})")


def dropout_keeps_the_mean(example: Example) -> None:
    """Dropped weights are 0 and the others grow by as much; or dropout is refused."""
    kernel, rate = example.plain(), 0.25
    if kernel.refuses(Needs(dropout=rate)) is not None:
        return
    kernel.settle(Needs(dropout=rate))
    q, k = noise(4, 4, 64, 4), noise(4, 4, 64, 4, seed=1)
    v = torch.ones(4, 4, 64, 4)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        y = kernel(q, k, v, AttentionMask(), dropout=rate)
    if not y.std().item() > 0:
        raise Broken(f"a dropout of {rate} drops nothing")
    if abs(y.mean().item() - 1) > 0.02:
        raise Broken(f"a dropout of {rate} makes the mean {y.mean().item():.3f}, not 1")


def refuses_with_a_reason(example: Example) -> None:
    """What it cannot do it refuses when it is built, in one line that names the kernels that can."""
    for needs in (Needs(), Needs(dropout=0.1), Needs(learned_bias=True), Needs(0.1, True)):
        reason = example.plain().refuses(needs)
        try:
            example.plain().settle(needs)
        except ValueError as error:
            if reason is None:
                raise Broken(f"refuses {needs} when it settles, and not when it is asked") from error
        else:
            if reason is not None:
                raise Broken(f"refuses {needs} when it is asked, and not when it settles")
        if reason is not None and ("\n" in reason or "math" not in reason):
            raise Broken(f"its reason is not one line that names the kernels that can: {reason!r}")


def _agrees(example: Example, cases: Any) -> None:
    for case in cases:
        kernel = example.plain()
        q, k, v, bias = inputs_of(case)
        y = kernel(q, k, v, case.mask, bias=bias, scale=case.scale)
        same(y, reference(case)[0], repr(case), TOLERANCE)
        leaves = [t for t in (q, k, v, bias) if t is not None and t.requires_grad]
        slopes = torch.autograd.grad((y * _weights(case)).sum(), leaves)
        for name, slope, expected in zip(("q", "k", "v", "bias"), slopes, reference(case)[1], strict=False):
            same(slope, expected, f"{case!r}: the gradient of {name}", TOLERANCE)


def _masked() -> Iterator[Case]:
    for n_query, n_key in SHAPES:
        documents = torch.tensor([[0, 0, 0, 1, 1, 1, 1, 1, 1], [0, 0, 0, 0, 0, 0, 2, 2, 2]])
        prefix = torch.zeros(2, 9, dtype=torch.bool)
        prefix[0, :6], prefix[1, :2] = True, True
        right = torch.ones(2, 9, dtype=torch.bool)
        right[1, 7:] = False
        holes = torch.tensor([[True] * 9, [True, False] * 4 + [True]])
        blind = torch.tensor([[True] * 9, [False] * 9])
        crossed = torch.tensor([[0, 0, 1, 1, 0, 0, 1, 1, 1], [2, 0, 2, 0, 2, 0, 2, 0, 2]])[:, :n_query]
        for what, mask in (
            ("all", AttentionMask()),
            ("causal", AttentionMask(causal=True)),
            ("left pads", _keep(9)),
            ("left pads, causal", AttentionMask(keep=_keep(9).keep, causal=True)),
            ("right pads, causal", AttentionMask(keep=right, causal=True)),
            ("holes", AttentionMask(keep=holes)),
            ("a blind row", AttentionMask(keep=blind, causal=True)),
            ("documents", AttentionMask(documents=documents)),
            ("documents, causal", AttentionMask(documents=documents, causal=True)),
            ("documents, pads, causal, window 3", AttentionMask(_keep(9).keep, documents, causal=True, window=3)),
            ("packed pairs", AttentionMask(documents=documents, query_documents=crossed)),
            ("prefix, causal", AttentionMask(prefix=prefix, causal=True)),
            ("prefix, pads, causal", AttentionMask(keep=_keep(9).keep, prefix=prefix, causal=True)),
            ("window 2", AttentionMask(window=2)),
            ("window 2, causal", AttentionMask(window=2, causal=True)),
        ):
            yield Case(what, mask, n_query, n_key)
    yield Case("causal, more queries than keys", AttentionMask(causal=True), 6, 4)


def _sized() -> Iterator[Case]:
    for n in (1, 7, 127, 128, 129):
        yield Case("causal", AttentionMask(causal=True), n, n, 2, 12, 12)
    for n in (1, 7, 129):
        yield Case("pads", _keep(n), n, n, 4, 5, 5)
    for d_head, d_value in ((1, 1), (5, 5), (12, 12), (4, 6), (12, 5)):
        yield Case("causal", AttentionMask(causal=True), d_head=d_head, d_value=d_value)
    yield Case("scaled", AttentionMask(causal=True), scale=0.9)


def _keep(n: int) -> AttentionMask:
    keep = torch.ones(2, n, dtype=torch.bool)
    keep[0, : n // 4] = False
    return AttentionMask(keep=keep)


def inputs_of(case: Case, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Queries, keys, values and the bias of a call, the same at every call."""
    q = noise(2, 4, case.n_query, case.d_head, dtype=dtype).requires_grad_()
    k = noise(2, case.kv_heads, case.n_key, case.d_head, seed=1, dtype=dtype).requires_grad_()
    v = noise(2, case.kv_heads, case.n_key, case.d_value, seed=2, dtype=dtype).requires_grad_()
    if case.bias == "none":
        return q, k, v, None
    bias = noise(1, 4, case.n_query, case.n_key + 2, seed=3, dtype=dtype)
    return q, k, v, bias.requires_grad_(case.bias == "learned")


def _weights(case: Case, dtype: torch.dtype = torch.float32) -> Tensor:
    return noise(2, 4, case.n_query, case.d_value, seed=4, dtype=dtype)


_REFERENCES: dict[str, tuple[Tensor, tuple[Tensor, ...]]] = {}


def reference(case: Case) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Output and gradients by loops over heads, queries and keys, in float64; computed once for all kernels."""
    key = f"{case!r}, {case.bias}, {case.scale}"
    if key not in _REFERENCES:
        q, k, v, bias = inputs_of(case, torch.float64)
        y = torch.stack([_row(case, q, k, v, bias, b) for b in range(2)])
        leaves = [t for t in (q, k, v, bias) if t is not None and t.requires_grad]
        slopes = torch.autograd.grad((y * _weights(case, torch.float64)).sum(), leaves)
        _REFERENCES[key] = y.detach(), slopes
    return _REFERENCES[key]


def _row(case: Case, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, b: int) -> Tensor:
    shown = [[j for j in range(case.n_key) if sees(case, b, i, j)] for i in range(case.n_query)]
    return torch.stack([_head(case, q, k, v, bias, b, h, shown) for h in range(4)])


def _head(
    case: Case, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, b: int, h: int, shown: list[list[int]]
) -> Tensor:
    g, rows = h // (4 // case.kv_heads), []
    scale = 1 / case.d_head**0.5 if case.scale is None else case.scale
    for i, seen in enumerate(shown):
        if not seen:
            rows.append(q[b, h, i].sum() * 0 + v.new_zeros(case.d_value))
            continue
        scores = scale * (k[b, g, seen] @ q[b, h, i])
        if bias is not None:
            scores = scores + bias[0, h, i, -case.n_key :][seen]
        powers = (scores - scores.max().detach()).exp()
        rows.append((powers / powers.sum()) @ v[b, g, seen])
    return torch.stack(rows)


def sees(case: Case, row: int, query: int, key: int) -> bool:
    """Whether the mask shows a key to a query, from the definitions: queries are the last of the keys."""
    mask, at = case.mask, query + case.n_key - case.n_query
    shown = not mask.causal or key <= at
    if mask.prefix is not None:
        shown = shown or bool(mask.prefix[row, key])
    if mask.window is not None:
        shown = shown and abs(at - key) < mask.window
    if mask.documents is not None:
        own = mask.documents[row, at] if mask.query_documents is None else mask.query_documents[row, query]
        shown = shown and bool(own == mask.documents[row, key])
    if mask.keep is not None:
        shown = shown and bool(mask.keep[row, key])
    return shown


def what_is_hidden_never_counts(example: Example) -> None:
    """What a mask hides never counts as long as it is finite, however large."""
    q, k, v = (noise(2, 4, 5, 4, seed=s) for s in range(3))
    mask = AttentionMask(causal=True)
    before = example.plain()(q, k, v, mask)
    k[:, :, 4], v[:, :, 4] = 1e6, 1e6
    same(example.plain()(q, k, v, mask)[:, :, :4], before[:, :, :4], "hidden keys and values of 1e6")


KERNEL = (
    matches_a_loop,
    matches_at_awkward_sizes,
    heads_are_grouped,
    biases_are_added,
    a_blind_query_gives_zero,
    what_is_hidden_never_counts,
    dropout_keeps_the_mean,
    refuses_with_a_reason,
)
