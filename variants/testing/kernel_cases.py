"""Calls of a kernel, and what plain loops give for them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from variants.blocks.masks import AttentionMask
from variants.testing.base import noise

SHAPES = ((9, 9), (1, 9), (4, 9))


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
    bias_rows: int = 1
    scale: float | None = None

    def __repr__(self) -> str:
        said = [] if self.scale is None else [f"scale {self.scale}"]
        said += [] if self.bias == "none" else [f"a {self.bias} bias{' of each row' * (self.bias_rows > 1)}"]
        said += [f"{self.n_query} queries over {self.n_key} keys", f"4 heads over {self.kv_heads}"]
        return ", ".join((self.what, *said, f"widths {self.d_head} and {self.d_value}"))


def masked() -> Iterator[Case]:
    """Every kind of mask at every alignment."""
    for n_query, n_key in SHAPES:
        documents = torch.tensor([[0, 0, 0, 1, 1, 1, 1, 1, 1], [0, 0, 0, 0, 0, 0, 2, 2, 2]])
        prefix = torch.zeros(2, 9, dtype=torch.bool)
        prefix[0, :6], prefix[1, :2] = True, True
        right = torch.ones(2, 9, dtype=torch.bool)
        right[1, 7:] = False
        holes = torch.tensor([[True] * 9, [True, False] * 4 + [True]])
        blind = torch.tensor([[True] * 9, [False] * 9])
        crossed = torch.tensor([[0, 0, 1, 1, 0, 0, 1, 1, 1], [2, 0, 2, 0, 2, 0, 2, 0, 2]])[:, :n_query]
        lonely = torch.tensor([[3, 0, 1, 3, 0, 1, 0, 0, 3], [0, 3, 2, 3, 3, 0, 2, 2, 0]])[:, :n_query]
        for what, mask in (
            ("all", AttentionMask()),
            ("causal", AttentionMask(causal=True)),
            ("left pads", keep_of(9)),
            ("left pads, causal", AttentionMask(keep=keep_of(9).keep, causal=True)),
            ("right pads, causal", AttentionMask(keep=right, causal=True)),
            ("holes", AttentionMask(keep=holes)),
            ("a blind row", AttentionMask(keep=blind, causal=True)),
            ("documents", AttentionMask(documents=documents)),
            ("documents, causal", AttentionMask(documents=documents, causal=True)),
            ("documents, pads, causal, window 3", AttentionMask(keep_of(9).keep, documents, causal=True, window=3)),
            ("packed pairs", AttentionMask(documents=documents, query_documents=crossed)),
            ("packed pairs, some without keys", AttentionMask(documents=documents, query_documents=lonely)),
            ("prefix, causal", AttentionMask(prefix=prefix, causal=True)),
            ("prefix, pads, causal", AttentionMask(keep=keep_of(9).keep, prefix=prefix, causal=True)),
            ("window 2", AttentionMask(window=2)),
            ("window 2, causal", AttentionMask(window=2, causal=True)),
        ):
            yield Case(what, mask, n_query, n_key)
    yield Case("causal, more queries than keys", AttentionMask(causal=True), 6, 4)


def sized() -> Iterator[Case]:
    """Awkward lengths and widths."""
    for n in (1, 7, 127, 128, 129):
        yield Case("causal", AttentionMask(causal=True), n, n, 2, 12, 12)
    for n in (1, 7, 129):
        yield Case("pads", keep_of(n), n, n, 4, 5, 5)
    for d_head, d_value in ((1, 1), (5, 5), (12, 12), (4, 6), (12, 5)):
        yield Case("causal", AttentionMask(causal=True), d_head=d_head, d_value=d_value)
    yield Case("scaled", AttentionMask(causal=True), scale=0.9)


def keep_of(n: int) -> AttentionMask:
    """Pads on the left of the first row."""
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
    bias = noise(case.bias_rows, 4, case.n_query, case.n_key + 2, seed=3, dtype=dtype)
    return q, k, v, bias.requires_grad_(case.bias == "learned")


def weights_of(case: Case, dtype: torch.dtype = torch.float32) -> Tensor:
    """Of the outputs in the loss whose gradients are compared."""
    return noise(2, 4, case.n_query, case.d_value, seed=4, dtype=dtype)


_REFERENCES: dict[str, tuple[Tensor, tuple[Tensor, ...]]] = {}


def reference(case: Case) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Output and gradients by loops over rows, queries and keys, in float64; computed once for all kernels."""
    if repr(case) not in _REFERENCES:
        q, k, v, bias = inputs_of(case, torch.float64)
        y = torch.stack([_row(case, q, k, v, bias, b) for b in range(2)])
        leaves = [t for t in (q, k, v, bias) if t is not None and t.requires_grad]
        slopes = torch.autograd.grad((y * weights_of(case, torch.float64)).sum(), leaves)
        _REFERENCES[repr(case)] = y.detach(), slopes
    return _REFERENCES[repr(case)]


def _row(case: Case, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, b: int) -> Tensor:
    of_head = [head // (4 // case.kv_heads) for head in range(4)]
    keys, values, read = k[b, of_head], v[b, of_head], []
    scale = 1 / case.d_head**0.5 if case.scale is None else case.scale
    for i in range(case.n_query):
        seen = [j for j in range(case.n_key) if sees(case, b, i, j)]
        if not seen:
            read.append(q[b, :, i, :1] * 0 + v.new_zeros(case.d_value))
            continue
        scores = scale * (keys[:, seen] @ q[b, :, i, :, None])[..., 0]
        if bias is not None:
            scores = scores + bias[b % bias.shape[0], :, i, -case.n_key :][:, seen]
        powers = (scores - scores.amax(-1, keepdim=True).detach()).exp()
        read.append(((powers / powers.sum(-1, keepdim=True))[:, None] @ values[:, seen])[:, 0])
    return torch.stack(read, 1)


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


def paired(sizes: list[int]) -> list[tuple[int, ...]]:
    """Few rows of indices, one for each factor, in which any two indices of two factors are together in some row."""
    factors = [[(number, index) for index in range(size)] for number, size in enumerate(sizes)]
    left = dict.fromkeys(pair for two in itertools.combinations(factors, 2) for pair in itertools.product(*two))
    rows = []
    while left:
        row = dict(next(iter(left)))
        for values in factors:
            if values[0][0] not in row:
                meets = [sum(tuple(sorted((value, other))) in left for other in row.items()) for value in values]
                row[values[0][0]] = meets.index(max(meets))
        for pair in itertools.combinations(sorted(row.items()), 2):
            left.pop(pair, None)
        rows.append(tuple(index for _, index in sorted(row.items())))
    return rows
