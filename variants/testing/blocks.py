"""What norms, feed-forwards, residuals, embeddings, heads and sharings promise."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from variants.blocks.context import Context
from variants.blocks.heads.base import IGNORED
from variants.blocks.masks import AttentionMask
from variants.blocks.norms import LayerNorm
from variants.testing.base import (
    INF,
    NAN,
    Broken,
    distance,
    finite,
    gradients,
    in_both_modes,
    moved,
    noise,
    same,
    weighted,
)
from variants.testing.examples import D_MODEL, VOCAB, Example
from variants.testing.probes import HeadProbe, ids_of, probe

# ---------------------------------------------------------------------------------------------------------------------
# Norms and feed-forwards


@in_both_modes
def each_position_alone(example: Example) -> None:
    """A position's output depends on its input alone, not on other positions or rows."""
    part = example()
    for length in range(1, 6):
        x = noise(2, length, D_MODEL)
        before = part(x)
        for token in range(length):
            changed = x.clone()
            changed[:, token] += noise(D_MODEL, seed=1)
            for position, has_moved in enumerate(moved(part(changed), before)):
                if has_moved and position != token:
                    raise Broken(f"output {position} moved when position {token} changed (length {length})")
                if not has_moved and position == token:
                    raise Broken(f"output {position} did not move when position {token} changed (length {length})")
    order = torch.tensor([3, 1, 4, 0, 2])
    same(part(x[:, order]), before[:, order], "positions in another order")


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
    """Called without a context it is what it is with an empty one."""
    part, x = example(), noise(2, 3, D_MODEL)
    same(part(x), part(x, Context()), "without a context and with an empty one", 0.0)


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
# Embeddings and heads


@in_both_modes
def each_token_alone(example: Example) -> None:
    """A token's vector depends on its id alone, and a hidden state's logits on that state alone."""
    embedding, ids = example(), ids_of(2, 5)
    vectors = embedding(ids)
    if vectors.shape != (2, 5, D_MODEL):
        raise Broken(f"ids (2, 5) become {tuple(vectors.shape)}, not (2, 5, {D_MODEL})")
    for row, time in ((0, 0), (1, 3)):
        same(embedding(ids[row, time].view(1, 1))[0, 0], vectors[row, time], f"the id at {row, time}, and alone")
    logits = embedding.unembed(vectors)
    if logits.shape != (2, 5, VOCAB):
        raise Broken(f"hidden states (2, 5, {D_MODEL}) become {tuple(logits.shape)}, not (2, 5, {VOCAB})")
    same(embedding.unembed(vectors[1, 3]), logits[1, 3], "the logits of a state, and of it alone")


def ids_differ(example: Example) -> None:
    """Every id has a vector of its own."""
    vectors = example()(torch.arange(VOCAB)[None])[0].detach()
    for first in range(VOCAB):
        for second in range(first):
            if torch.equal(vectors[first], vectors[second]):
                raise Broken(f"ids {second} and {first} have the same vector")


def loss_is_cross_entropy_of_the_logits(example: Example) -> None:
    """The summed loss and its gradients are those of torch's cross-entropy of the head's logits, smoothed or not."""
    for smoothing in (0.0, 0.1):
        tried, targets = _head(example), ids_of(2, 6, seed=1)
        targets[0, 2:4] = IGNORED
        found: list[dict[str, Tensor]] = []
        for own in (True, False):
            x = noise(2, 6, D_MODEL).requires_grad_()
            if own:
                loss = tried.component.loss(x, targets, tried.embedding, smoothing)
                if int(loss.count) != 10:
                    raise Broken(f"it counts {int(loss.count)} targets of 10")
                summed = loss.loss
            else:
                logits = tried(x).flatten(0, 1)
                options = {"reduction": "sum", "label_smoothing": smoothing, "ignore_index": IGNORED}
                summed = F.cross_entropy(logits, targets.flatten(), **options)  # type: ignore[arg-type]
                plain = F.cross_entropy(logits, targets.flatten(), reduction="sum", ignore_index=IGNORED)
                same(loss.nll, plain, f"the unsmoothed loss (label_smoothing {smoothing})")
            found.append({"the loss": summed} | gradients(tried, summed * 0.7, x))
        for name, expected in found[1].items():
            same(found[0][name], expected, f"label_smoothing {smoothing}, {name}", 2e-5)
        with torch.no_grad():
            quiet = tried.component.loss(noise(2, 6, D_MODEL), targets, tried.embedding, smoothing)
        same(quiet.loss, found[0]["the loss"], "the loss without gradients and with")


def ignored_targets_do_not_matter(example: Example) -> None:
    """States at ignored targets change nothing, NaN included; without a target the loss and all gradients are 0."""
    tried, targets = _head(example), ids_of(2, 6, seed=1)
    targets[:, 4:] = IGNORED
    expected = tried.component.loss(noise(2, 6, D_MODEL), targets, tried.embedding)
    for held in (7.0, NAN, INF):
        x = noise(2, 6, D_MODEL)
        x[:, 4:] = held
        x.requires_grad_()
        loss = tried.component.loss(x, targets, tried.embedding)
        same(loss.loss, expected.loss, f"states of {held:g} at ignored targets")
        for name, slope in gradients(tried, loss.loss, x).items():
            finite(slope, f"states of {held:g} at ignored targets: the gradient of {name}")
    x = noise(2, 6, D_MODEL).requires_grad_()
    none = tried.component.loss(x, torch.full_like(targets, IGNORED), tried.embedding)
    if none.loss.item() or none.count.item():
        raise Broken(f"without a target the loss is {none.loss.item():g} of {none.count.item()}")
    for name, slope in gradients(tried, none.loss, x).items():
        if distance(slope, torch.zeros_like(slope)):
            raise Broken(f"without a target the gradient of {name} is not 0")


def _head(example: Example) -> HeadProbe:
    tried = probe(example)
    assert isinstance(tried, HeadProbe)
    tried.embedding.requires_grad_()
    return tried


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
RESIDUAL = (every_branch_counts, every_norm_is_its_own, enters_and_leaves)
EMBEDDING = (each_token_alone, ids_differ)
HEAD = (loss_is_cross_entropy_of_the_logits, ignored_targets_do_not_matter)
SHARING = (layers_are_in_order,)
