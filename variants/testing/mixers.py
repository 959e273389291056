"""What a mixer promises: it reads only where the mask allows, and a cache changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from variants.blocks.cache import Cache
from variants.blocks.context import Context
from variants.blocks.masks import AttentionMask, positions_of
from variants.blocks.positions import NoPosition, Relative, Rotary
from variants.blocks.positions.base import Position
from variants.testing.base import (
    CHUNKS,
    INF,
    NAN,
    Broken,
    finite,
    gradients,
    moved,
    noise,
    same,
    spoil_unused,
    weighted,
)
from variants.testing.examples import D_MODEL, N_HEADS, Example, shaken


def causality(example: Example) -> None:
    """Under a causal mask a token changes its own output and later ones, and no earlier one."""
    mixer = example()
    for length in range(1, 9):
        x, context = noise(1, length, D_MODEL), Context(AttentionMask(causal=True))
        before = mixer(x, context)
        for token in range(length):
            changes = moved(mixer(_nudged(x, token), context), before)
            for earlier in range(token):
                if changes[earlier]:
                    by = (mixer(_nudged(x, token), context) - before)[0, earlier].abs().max()
                    raise Broken(f"output {earlier} moved by {by:.2g} when token {token} changed (length {length})")
            if not changes[token]:
                raise Broken(f"output {token} did not move when token {token} changed (length {length})")
            if token + 1 < length and not changes[token + 1]:
                raise Broken(f"output {token + 1} did not move when token {token} changed (length {length})")


def both_sides(example: Example) -> None:
    """In a bidirectional stack, under a mask without causality, a token sees the one before it and the one after."""
    mixer = example(bidirectional=True)
    x = noise(1, 2, D_MODEL)
    before = mixer(x, Context())
    for token, output in ((0, 1), (1, 0)):
        if not moved(mixer(_nudged(x, token), Context()), before)[output]:
            raise Broken(f"output {output} did not move when token {token} changed, though no mask hides it (length 2)")


def window(example: Example) -> None:
    """Under a window of 3 an output depends on its own token and the two before it; or the mixer refuses windows."""
    mixer, context = example(), Context(AttentionMask(causal=True, window=3))
    x = noise(1, 8, D_MODEL)
    try:
        before = mixer(x, context)
    except ValueError:
        return
    changes = moved(mixer(_nudged(x, 2), context), before)
    if late := [position for position in range(5, 8) if changes[position]]:
        raise Broken(f"output {late[0]} moved when token 2 changed, {late[0] - 2} tokens before it (window 3)")
    if getattr(mixer, "window", None) is None and not changes[4]:
        raise Broken("output 4 did not move when token 2 changed, 2 tokens before it (window 3)")


def pads_change_nothing(example: Example) -> None:
    """Pads on either side or between, whatever they hold, change no real output and no gradient.

    A window counts the pads between tokens too, so those are left out where the mixer has one.
    """
    for causal, mixer in _modes(example):
        for side, real, n in _padded():
            if side == "middle" and getattr(mixer, "window", None) is not None:
                continue
            x, weights = noise(2, len(real), D_MODEL), noise(2, len(real), D_MODEL, seed=3)
            leaf = x.clone().requires_grad_()
            alone = mixer(leaf, Context(AttentionMask(causal=causal)))
            slopes = gradients(mixer, (alone * weights).sum(), leaf)
            for held in (1.0, NAN, INF):
                sizes = f"{len(real)} tokens, {n - len(real)} pads"
                what = f"{side} pads of {held:g} ({'causal' if causal else 'both sides'}, {sizes})"
                padded = torch.full((2, n, D_MODEL), held)
                padded[:, real] = x
                padded.requires_grad_()
                keep = torch.zeros(2, n, dtype=torch.bool)
                keep[:, real] = True
                y = mixer(padded, Context(AttentionMask(keep=keep, causal=causal)))
                finite(y, what)
                same(y[:, real], alone, what)
                found = gradients(mixer, (y[:, real] * weights).sum(), padded)
                finite(found["input 0"], f"{what}: the gradient of the input")
                found["input 0"] = found["input 0"][:, real]
                for name, slope in slopes.items():
                    same(found[name], slope, f"{what}: the gradient of {name}")


def documents_are_alone(example: Example) -> None:
    """Packed documents, also with pads before and between them, are what each is by itself."""
    for causal, mixer in _modes(example):
        plain = Context(AttentionMask(causal=causal))
        for what, of in (
            ("no pads", [0, 1]),
            ("no pads", [0, 0, 0, 1, 1, 1, 1]),
            ("pads", [-1, 0, -1, 1]),
            ("pads", [-1, 0, 0, 0, -1, 1, 1, 1, 1, -1]),
        ):
            sizes = of.count(0), of.count(1)
            first, second = (noise(1, n, D_MODEL, seed=seed) for seed, n in enumerate(sizes))
            expected = torch.cat((mixer(first, plain), mixer(second, plain)), 1)
            real = [index for index, document in enumerate(of) if document >= 0]
            x = torch.full((1, len(of), D_MODEL), NAN)
            x[:, real] = torch.cat((first, second), 1)
            documents = torch.tensor([of]).cummax(1).values.clamp(min=0)
            keep = None if what == "no pads" else torch.tensor([of]) >= 0
            y = mixer(x, Context(AttentionMask(keep=keep, documents=documents, causal=causal)))
            same(
                y[:, real],
                expected,
                f"documents of {sizes[0]} and {sizes[1]} tokens, packed and alone ({what}, causal {causal})",
            )


def a_blind_row_is_harmless(example: Example) -> None:
    """A row of pads alone gives finite outputs and gradients, does not depend on what it holds, and harms no other."""
    for causal, mixer in _modes(example):
        x = noise(2, 4, D_MODEL)
        keep = torch.tensor([[True] * 4, [False] * 4])
        outputs = []
        for held in (0.0, 1.0, NAN):
            held_x = x.clone()
            held_x[1] = held
            held_x.requires_grad_()
            y = mixer(held_x, Context(AttentionMask(keep=keep, causal=causal)))
            finite(y, f"a row of pads that hold {held:g}")
            for name, slope in gradients(mixer, weighted(y), held_x).items():
                finite(slope, f"a row of pads that hold {held:g}: the gradient of {name}")
            outputs.append(y)
        same(outputs[1], outputs[0], "a row of pads that hold 1 and 0")
        same(outputs[2], outputs[0], "a row of pads that hold NaN and 0")
        alone = mixer(x[:1], Context(AttentionMask(causal=causal)))
        same(outputs[0][:1], alone, "a row beside a row of pads, and alone")


def cached_is_uncached(example: Example) -> None:
    """Prefill, chunks and single steps give what one pass gives, whatever unused slots hold."""
    mixer = example()
    for chunks in CHUNKS:
        time = sum(chunks)
        x = noise(2, time, D_MODEL)
        for what, mask in _cached_masks(time):
            for position in _positions():
                expected = _in_chunks(mixer, x, mask, position, [time], None)
                real = torch.ones(2, time, dtype=torch.bool) if mask.keep is None else mask.keep
                for held in (NAN, INF):
                    y = _in_chunks(mixer, x, mask, position, chunks, Cache(20), held)
                    named = f"chunks {chunks}, {what}, position {type(position).__name__}, unused slots of {held:g}"
                    same(y[real], expected[real], f"cached and uncached, {named}")


def cached_rows_can_be_reordered(example: Example) -> None:
    """After a prefill, rows of a cache that are repeated and taken in another order go on as those rows do."""
    mixer, x = example(), noise(2, 12, D_MODEL)
    mask, rows = AttentionMask(causal=True), torch.tensor([3, 0, 1, 2])
    later = noise(4, 7, D_MODEL, seed=5)
    whole = torch.cat((x[:, :5].repeat_interleave(2, 0)[rows], later), 1)
    expected = mixer(whole, Context(mask))[:, 5:]

    def between(cache: Cache) -> None:
        cache.repeat(2)
        cache.reorder(rows)

    cache = Cache(12)
    _in_chunks(mixer, x[:, :5], mask, NoPosition(), [5], cache)
    between(cache)
    y = _in_chunks(mixer, later, mask, NoPosition(), [1, 3, 3], cache)
    same(y, expected, "rows repeated and reordered after 5 tokens")


def _cached_masks(time: int) -> Iterator[tuple[str, AttentionMask]]:
    keep = torch.ones(2, time, dtype=torch.bool)
    keep[0, : min(3, time - 1)] = False
    documents = torch.tensor([[0] * 12, [0] * 1 + [1] * 8 + [2] * 3])[:, :time]
    yield "no pads", AttentionMask(causal=True)
    yield "left pads", AttentionMask(keep=keep, causal=True)
    yield "left pads and documents", AttentionMask(keep=keep, documents=documents, causal=True)


def _positions() -> Iterator[Position]:
    yield NoPosition()
    yield Rotary()
    relative = shaken(Relative(N_HEADS, n_buckets=8, max_distance=9))
    assert isinstance(relative, Relative)
    yield relative


@torch.no_grad()
def _in_chunks(
    mixer: Callable[..., Any],
    x: Tensor,
    mask: AttentionMask,
    position: Position,
    chunks: list[int],
    cache: Cache | None,
    held: float = NAN,
) -> Tensor:
    """Run a sequence in chunks, with something held in a cache's unused slots."""
    outputs, start = [], 0
    for n in chunks:
        facts = {
            f: getattr(mask, f)[:, start : start + n] for f in ("keep", "documents") if getattr(mask, f) is not None
        }
        chunk = replace(mask, **facts)
        full = chunk if cache is None else cache.extend(chunk, x.shape[0], n, x.device)
        keys = positions_of(full, n if cache is None else cache.length, x.device)
        place = position.place(keys[:, -n:], keys)
        outputs.append(mixer(x[:, start : start + n], Context(full, place, cache=cache)))
        start += n
        if cache is not None:
            spoil_unused(cache, held)
    return torch.cat(outputs, 1)


def _padded() -> Iterator[tuple[str, list[int], int]]:
    """On which side pads are, where the tokens are, and how many there are of both."""
    yield "left", [1], 2
    yield "right", [0], 2
    yield "middle", [0, 2], 3
    yield "left", [2, 3, 4, 5, 6], 7
    yield "right", [0, 1, 2, 3, 4], 7
    yield "middle", [0, 1, 4, 5, 6], 7


def _modes(example: Example) -> Iterator[tuple[bool, nn.Module]]:
    """Causal, and bidirectional without causality."""
    yield True, example()
    yield False, example(bidirectional=True)


def _nudged(x: Tensor, token: int) -> Tensor:
    changed = x.clone()
    changed[:, token] += noise(x.shape[-1], seed=7)
    return changed


MIXER = (
    causality,
    both_sides,
    window,
    pads_change_nothing,
    documents_are_alone,
    a_blind_row_is_harmless,
    cached_is_uncached,
    cached_rows_can_be_reordered,
)
