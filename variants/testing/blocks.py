"""What norms, feed-forwards, residuals and sharings promise."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from variants.blocks.cache import Cache
from variants.blocks.context import Context
from variants.blocks.masks import AttentionMask
from variants.blocks.norms import LayerNorm
from variants.testing.base import INF, NAN, Broken, finite, gradients, in_both_modes, noise, same, weighted
from variants.testing.examples import D_MODEL, Example

# ---------------------------------------------------------------------------------------------------------------------
# Norms and feed-forwards


@in_both_modes
def each_position_alone(example: Example) -> None:
    """A position's output depends on its input alone, whatever other positions hold, NaN and infinity included.

    A norm is tried on (batch, heads, time, width) too, at another width: so it meets queries and keys.
    """
    part = example()
    for length in range(1, 6):
        _places_alone(part, (1, length, D_MODEL))
    if example.asks("width"):
        part = example(width=8)
        for length in (1, 2):
            _places_alone(part, (1, 2, length, 8))


def _places_alone(run: Callable[[Tensor], Tensor], shape: tuple[int, ...], what: str = "") -> None:
    x, of = noise(*shape), f"({what}input of {shape})"
    before = run(x)
    places = list(itertools.product(*map(range, shape[:-1])))
    for place in places:
        changed = x.clone()
        changed[place] += noise(shape[-1], seed=1)
        apart = (run(changed) - before).abs().amax(-1)
        for other in places:
            if other != place and not apart[other] <= 1e-6:
                by = f"{apart[other]:.2g} when position {_named(place)} changed"
                raise Broken(f"output {_named(other)} moved by {by} {of}")
            if other == place and not apart[other] > 1e-6:
                raise Broken(f"output {_named(place)} did not move when position {_named(place)} changed {of}")
    for place, held in itertools.product(places, (NAN, INF)):
        spoilt = torch.full_like(x, held)
        spoilt[place] = x[place]
        beside = f"output {_named(place)} beside positions of {held:g} and of others {of}"
        same(run(spoilt)[place], before[place], beside)
    same(run(x.flip(-2)), before.flip(-2), f"positions in another order {of}")


def _named(place: tuple[int, ...]) -> str:
    return ", ".join(map(str, place[1:]))


@in_both_modes
def dtype_is_kept(example: Example) -> None:
    """The output has the input's dtype: float64, float32, bfloat16 and float16, and under autocast."""
    for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
        y = example()(noise(2, 3, D_MODEL, dtype=dtype))
        if y.dtype != dtype:
            raise Broken(f"{dtype} becomes {y.dtype}")
    for dtype in (torch.float32, torch.bfloat16):
        with torch.autocast("cpu", torch.bfloat16):
            y = example()(noise(2, 3, D_MODEL, dtype=dtype))
        if y.dtype != dtype:
            raise Broken(f"{dtype} becomes {y.dtype} under autocast")


@in_both_modes
def extremes_are_finite(example: Example) -> None:
    """Finite, forward and backward, at 0 and at constants, and at 300 in float16, whose square overflows there."""
    constant, normal = torch.ones(2, 3, D_MODEL), noise(2, 3, D_MODEL)
    for name, x, dtype in (
        ("zeros", constant * 0, torch.float32),
        ("zeros", constant * 0, torch.bfloat16),
        ("constants", constant, torch.float32),
        ("numbers around 300", normal * 300, torch.float16),
    ):
        norm, x = example(), x.to(dtype).requires_grad_()
        y = norm(x)
        finite(y, f"{name} ({dtype})")
        for what, slope in gradients(norm, weighted(y.float()), x).items():
            finite(slope, f"{name} ({dtype}): the gradient of {what}")


@in_both_modes
def pads_change_nothing(example: Example) -> None:
    """What pads hold, NaN and infinity included, changes no real position and no gradient."""
    part = example()
    for length, real in ((1, [1]), (1, [0]), (3, [2, 3, 4]), (3, [0, 1, 2]), (3, [0, 2, 4])):
        x, n = noise(1, length, D_MODEL), max(2, 2 * length - 1)
        alone = part(x, Context())
        slopes = gradients(part, weighted(alone))
        keep = torch.zeros(1, n, dtype=torch.bool)
        keep[:, real] = True
        for held in (1.0, NAN, INF):
            what = f"pads of {held:g} and none (tokens at {real} of {n})"
            padded = torch.full((1, n, D_MODEL), held)
            padded[:, real] = x
            y = part(padded, Context(AttentionMask(keep=keep)))[:, real]
            same(y, alone, what)
            found = gradients(part, weighted(y))
            for name, slope in slopes.items():
                same(found[name], slope, f"{what}: the gradient of {name}")


@in_both_modes
def a_context_is_optional(example: Example) -> None:
    """Called without a context it is what it is with any that has no pads: causal, of documents, with a cache."""
    part, causal = example(), AttentionMask(causal=True)
    for length in (1, 3):
        x, cache = noise(2, length, D_MODEL), Cache(4)
        documents = torch.arange(length).clamp(max=1).expand(2, -1)
        for what, context in (
            ("an empty one", Context()),
            ("a causal one", Context(causal)),
            ("one of documents", Context(AttentionMask(documents=documents, causal=True))),
            ("one with a cache", Context(cache.extend(causal, 2, length, x.device), cache=cache)),
        ):
            same(part(x, context), part(x), f"with a context, {what}, and without (length {length})", 0.0)


# ---------------------------------------------------------------------------------------------------------------------
# Residuals


@in_both_modes
def every_branch_counts(example: Example) -> None:
    """With two and with three branches: each runs once, moves the output, and gets a gradient; so does the input."""
    for n in (2, 3):
        residual = example(n_branches=n)
        branches, calls = _branches(n), [0] * n

        def run(index: int, x: Tensor, calls: list[int] = calls, branches: nn.ModuleList = branches) -> Tensor:
            calls[index] += 1
            y: Tensor = branches[index](x)
            return y

        x = noise(2, 3, D_MODEL).requires_grad_()
        y = residual.leave(residual(residual.enter(x), *(partial(run, index) for index in range(n))))
        if y.shape != x.shape:
            raise Broken(f"{n} branches: {tuple(x.shape)} becomes {tuple(y.shape)}")
        if calls != [1] * n:
            raise Broken(f"{n} branches: they run {calls} times, not once each")
        for name, slope in gradients(nn.ModuleList([residual, branches]), weighted(y), x).items():
            finite(slope, f"{n} branches: the gradient of {name}")
            if not slope.any():
                raise Broken(f"{n} branches: {name} gets no gradient")


@in_both_modes
def the_stream_is_each_positions_own(example: Example) -> None:
    """Around branches that keep positions apart, so does it, whatever other positions hold, NaN and infinity too."""
    for n in (2, 3):
        residual, branches = example(n_branches=n), _branches(n)

        def run(x: Tensor, residual: Any = residual, branches: nn.ModuleList = branches) -> Tensor:
            y: Tensor = residual.leave(residual(residual.enter(x), *branches))
            return y

        for length in range(1, 4):
            _places_alone(run, (1, length, D_MODEL), f"{n} branches, ")


def every_norm_is_its_own(example: Example) -> None:
    """Every norm that it makes is registered once, and it says whether a stack still needs one at its end."""
    for n in (2, 3):
        made: list[nn.Module] = []

        def norm(made: list[nn.Module] = made) -> nn.Module:
            made.append(LayerNorm(D_MODEL))
            return made[-1]

        residual = example(n_branches=n, norm=norm)
        held = [module for module in residual.modules() if isinstance(module, LayerNorm)]
        if {id(m) for m in made} != {id(m) for m in held}:
            raise Broken(f"{n} branches: it makes {len(made)} norms and holds {len(held)}")
    if not isinstance(example().final_norm, bool):
        raise Broken(f"final_norm is {example().final_norm!r}, neither True nor False")


@in_both_modes
def enters_and_leaves(example: Example) -> None:
    """The stream ends in the shape in which the stack's input came, in its dtype, with another layer between."""
    first, second = example(), example(seed=1)
    branches = _branches(2)
    for dtype in (torch.float32, torch.float64):
        x = noise(2, 3, D_MODEL, dtype=dtype)
        first, second, branches = first.to(dtype), second.to(dtype), branches.to(dtype)
        stream = first.enter(x)
        for residual in (first, second):
            before, stream = stream, residual(stream, *branches)
            if stream.shape != before.shape:
                raise Broken(f"a layer changes the stream from {tuple(before.shape)} to {tuple(stream.shape)}")
        left = first.leave(stream)
        if left.shape != x.shape or left.dtype != dtype:
            raise Broken(f"{tuple(x.shape)} of {dtype} leaves as {tuple(left.shape)} of {left.dtype}")


def _branches(n: int) -> nn.ModuleList:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return nn.ModuleList(nn.Linear(D_MODEL, D_MODEL) for _ in range(n))


# ---------------------------------------------------------------------------------------------------------------------
# Sharings


def layers_are_in_order(example: Example) -> None:
    """For every depth an index; the first is 0, and a new one is the next after those before."""
    for n in range(1, 13):
        order = list(example()(n))
        if len(order) != n:
            raise Broken(f"{n} layers have {len(order)} indices: {order}")
        for depth, index in enumerate(order):
            if not 0 <= index <= max(order[:depth], default=-1) + 1:
                raise Broken(f"{n} layers: {order} has {index} at depth {depth}, where at most the next new one may be")


NORM = (each_position_alone, dtype_is_kept, extremes_are_finite)
FEEDFORWARD = (each_position_alone, pads_change_nothing, a_context_is_optional)
RESIDUAL = (every_branch_counts, the_stream_is_each_positions_own, every_norm_is_its_own, enters_and_leaves)
SHARING = (layers_are_in_order,)
