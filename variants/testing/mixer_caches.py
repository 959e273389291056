"""What a mixer promises of a cache: it changes nothing. One that refuses caches, by a ValueError, promises none."""

from __future__ import annotations

import itertools
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
from variants.testing.base import CHUNKS, INF, NAN, noise, same, spoil_unused
from variants.testing.examples import D_MODEL, N_HEADS, Example, shaken

CAUSAL = AttentionMask(causal=True)
LONG = [20, 1, 19]  # more than what a mixer takes in one block


@torch.no_grad()
def cached_is_uncached(example: Example) -> None:
    """Prefill, chunks and single steps give what one pass gives, whatever unused slots hold."""
    mixer = _with_a_cache(example)
    if mixer is None:
        return
    tried = [(chunks, *pair) for chunks in CHUNKS for pair in itertools.product(_masks(chunks), _positions())]
    tried.append((LONG, ("no pads", CAUSAL), Rotary()))
    for (chunks, (what, mask), position), held in zip(tried, itertools.cycle((NAN, INF))):
        x = noise(2, sum(chunks), D_MODEL)
        try:
            expected = _in_chunks(mixer, x, mask, position, [sum(chunks)], None)
        except ValueError:
            continue  # it refuses such a mask
        real = torch.ones(x.shape[:2], dtype=torch.bool) if mask.keep is None else mask.keep
        y = _in_chunks(mixer, x, mask, position, chunks, Cache(sum(chunks) + 3), held)
        named = f"chunks {chunks}, {what}, position {type(position).__name__}, unused slots of {held:g}"
        same(y[real], expected[real], f"cached and uncached, {named}")


@torch.no_grad()
def cached_rows_can_be_reordered(example: Example) -> None:
    """After a prefill, rows of a cache that are repeated and taken in another order go on as those rows do."""
    mixer, x = _with_a_cache(example), noise(2, 12, D_MODEL)
    if mixer is None:
        return
    rows, later = torch.tensor([3, 0, 1, 2]), noise(4, 7, D_MODEL, seed=5)
    whole = torch.cat((x[:, :5].repeat_interleave(2, 0)[rows], later), 1)
    expected = mixer(whole, Context(CAUSAL))[:, 5:]
    cache = Cache(12)
    _in_chunks(mixer, x[:, :5], CAUSAL, NoPosition(), [5], cache)
    cache.repeat(2)
    cache.reorder(rows)
    y = _in_chunks(mixer, later, CAUSAL, NoPosition(), [1, 3, 3], cache)
    same(y, expected, "rows repeated and reordered after 5 tokens")


@torch.no_grad()
def depths_are_apart(example: Example) -> None:
    """One mixer that runs at two depths, as shared layers do, remembers each by itself."""
    mixer = _with_a_cache(example)
    if mixer is None:
        return
    inputs, cache = [noise(1, 2, D_MODEL, seed=seed) for seed in range(2)], Cache(8)
    outputs: list[list[Tensor]] = [[], []]
    for token in range(2):
        full = cache.extend(CAUSAL, 1, 1, inputs[0].device)
        for depth, x in enumerate(inputs):
            outputs[depth].append(mixer(x[:, token : token + 1], Context(full, cache=cache, depth=depth)))
    for depth, x in enumerate(inputs):
        y = torch.cat(outputs[depth], 1)
        same(y, mixer(x, Context(CAUSAL)), f"cached at two depths and uncached, depth {depth}, chunks [1, 1]")


def _with_a_cache(example: Example) -> nn.Module | None:
    """The mixer in evaluation; None: it refuses causality or a cache."""
    try:
        mixer: nn.Module = example().eval()
        _in_chunks(mixer, noise(1, 1, D_MODEL), CAUSAL, NoPosition(), [1], Cache(8))
    except ValueError:
        return None
    return mixer


def _masks(chunks: list[int]) -> Iterator[tuple[str, AttentionMask]]:
    time = sum(chunks)
    keep, prefix = torch.ones(2, time, dtype=torch.bool), torch.zeros(2, time, dtype=torch.bool)
    keep[0, : min(3, time - 1)] = False
    prefix[:, : chunks[0]] = True  # it must come in one chunk
    documents = torch.tensor([[0] * 12, [0] * 1 + [1] * 8 + [2] * 3])[:, :time]
    yield "no pads", CAUSAL
    yield "left pads", replace(CAUSAL, keep=keep)
    yield "left pads and documents", replace(CAUSAL, keep=keep, documents=documents)
    yield "a window of 3", replace(CAUSAL, window=3)
    yield "a prefix", replace(CAUSAL, prefix=prefix)


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
            fact: getattr(mask, fact)[:, start : start + n]
            for fact in ("keep", "documents", "prefix")
            if getattr(mask, fact) is not None
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
