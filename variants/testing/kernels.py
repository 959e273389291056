"""What a kernel promises: the numbers of a plain loop, forward and backward, or a refusal with its reason."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from variants.blocks.kernels.base import Needs
from variants.blocks.masks import AttentionMask
from variants.testing.base import Broken, finite, noise, same
from variants.testing.examples import Example
from variants.testing.kernel_cases import Case, inputs_of, keep_of, masked, paired, reference, sized, weights_of

TOLERANCE = 2e-5


def matches_a_loop(example: Example) -> None:
    """Every mask at every alignment, forward and backward."""
    _agrees(example, masked())


def matches_at_awkward_sizes(example: Example) -> None:
    """Lengths and head widths that no tile divides, values of another width, a scale of one's own."""
    _agrees(example, sized())


def heads_are_grouped(example: Example) -> None:
    """Query head h uses key head ``h // (heads / kv_heads)``."""
    _agrees(example, (Case("grouped heads", AttentionMask(causal=True), kv_heads=n) for n in (1, 2)))


def biases_are_added(example: Example) -> None:
    """A bias on the scores is added, its last keys where it is longer; its gradient is right, or refused."""
    for what, mask in (("all", AttentionMask()), ("causal", AttentionMask(causal=True)), ("pads", keep_of(9))):
        for n_query in (9, 4):
            _agrees(example, [Case(what, mask, n_query, bias=_kind(example))])


def options_go_together(example: Example) -> None:
    """Each two of a mask, fewer queries, grouped heads, another width, a bias, of each row or of all, and a scale."""
    kind = _kind(example)
    masks = [case for case in masked() if case.n_query == case.n_key == 9]
    others: tuple[list[dict[str, Any]], ...] = (
        [{"n_query": n} for n in (9, 4, 1)],
        [{"kv_heads": n} for n in (4, 2, 1)],
        [{"d_head": 4, "d_value": 4}, {"d_head": 5, "d_value": 3}],
        [{"bias": "none"}, {"bias": kind}, {"bias": kind, "bias_rows": 2}],
        [{"scale": None}, {"scale": 0.9}],
    )
    plain = [masks[0]._asdict(), *(values[0] for values in others)]
    for row in paired([len(masks), *map(len, others)]):
        fields = [masks[row[0]]._asdict(), *(values[index] for values, index in zip(others, row[1:], strict=True))]
        try:
            _agrees(example, [_case(fields)])
        except Broken:
            for number, usual in enumerate(plain):  # what is not needed to break it is left out
                fewer = [*fields[:number], usual, *fields[number + 1 :]]
                fields = fewer if _differs(example, _case(fewer)) else fields
            _agrees(example, [_case(fields)])


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


def what_is_hidden_never_counts(example: Example) -> None:
    """What a mask hides never counts as long as it is finite, however large."""
    q, k, v = (noise(2, 4, 5, 4, seed=s) for s in range(3))
    mask = AttentionMask(causal=True)
    before = example.plain()(q, k, v, mask)
    k[:, :, 4], v[:, :, 4] = 1e6, 1e6
    same(example.plain()(q, k, v, mask)[:, :, :4], before[:, :, :4], "hidden keys and values of 1e6")


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


def _case(fields: list[dict[str, Any]]) -> Case:
    said = {name: value for part in fields for name, value in part.items()}
    mask = said["mask"]
    if mask.query_documents is not None:
        said["mask"] = replace(mask, query_documents=mask.query_documents[:, : said["n_query"]])
    return Case(**said)


def _differs(example: Example, case: Case) -> bool:
    try:
        _agrees(example, [case])
    except Broken:
        return True
    return False


def _kind(example: Example) -> str:
    """What a bias is: fixed where a learned one is refused."""
    return "fixed" if example.plain().refuses(Needs(learned_bias=True)) else "learned"


def _agrees(example: Example, cases: Any) -> None:
    for case in cases:
        kernel = example.plain()
        q, k, v, bias = inputs_of(case)
        y = kernel(q, k, v, case.mask, bias=bias, scale=case.scale)
        same(y, reference(case)[0], repr(case), TOLERANCE)
        leaves = [t for t in (q, k, v, bias) if t is not None and t.requires_grad]
        slopes = torch.autograd.grad((y * weights_of(case)).sum(), leaves)
        for name, slope, expected in zip(("q", "k", "v", "bias"), slopes, reference(case)[1], strict=False):
            same(slope, expected, f"{case!r}: the gradient of {name}", TOLERANCE)


KERNEL = (
    matches_a_loop,
    matches_at_awkward_sizes,
    heads_are_grouped,
    biases_are_added,
    options_go_together,
    a_blind_query_gives_zero,
    what_is_hidden_never_counts,
    dropout_keeps_the_mean,
    refuses_with_a_reason,
)
