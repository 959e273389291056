"""What a position promises: it acts where it says and nowhere else, on real tokens alone."""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import Tensor

from variants.blocks.cache import Cache
from variants.blocks.feedforwards import GatedFeedForward
from variants.blocks.kernels.math import Math
from variants.blocks.masks import AttentionMask
from variants.blocks.mixers.attention import Attention
from variants.blocks.norms import RMSNorm
from variants.blocks.positions.base import Placement
from variants.blocks.residuals import PreNorm
from variants.blocks.residuals.base import Depths
from variants.models.stack import Layer, Stack
from variants.testing.base import CHUNKS, NAN, Broken, finite, noise, same, spoil_unused
from variants.testing.examples import D_MODEL, MAX_LENGTH, N_HEADS, Example, shaken

D_HEAD = D_MODEL // N_HEADS


def acts_where_it_says(example: Example) -> None:
    """It acts in the place that ``acts`` names, and in no other."""
    position = example()
    x, heads, positions = noise(2, 6, D_MODEL), noise(2, N_HEADS, 6, D_HEAD), torch.arange(6).expand(2, 6)
    place: Placement = position.place(positions, positions)
    turns = any(not torch.equal(place.turn(heads, side), heads) for side in ("q", "k"))
    found = {
        "input": not torch.equal(position.input(x, positions), x),
        "add": place.add is not None,
        "turn": turns,
        "bias": place.bias is not None,
    }
    for where, acts in found.items():
        if acts and where != position.acts:
            raise Broken(f"acts in {where}, and says it acts in {position.acts}")
        if not acts and where == position.acts:
            raise Broken(f"does not act in {where}, where it says it acts")


def positions_differ(example: Example) -> None:
    """Tokens that are equal become different at different positions; unless it says that it acts nowhere."""
    position = example(bidirectional=True)
    if position.acts is None:
        return
    near = min(12, position.max_length or 12)
    effects = _effects(position, torch.arange(near)[None])
    # A bias is compared by its rows, then by its columns: a constant one says nothing.
    for first, second in itertools.combinations(range(near), 2):
        if all(torch.equal(e[:, first], e[:, second]) for e in effects):
            raise Broken(f"positions {first} and {second} are the same")


def rows_of_positions_are_alone(example: Example) -> None:
    """Each row follows its own positions, and one row of positions serves a whole batch."""
    position = example()
    own = torch.tensor([[0, 1, 2, 3], [0, 0, 0, 1]])
    together = _effects(position, own)
    for row in range(2):
        for both, alone in zip(together, _effects(position, own[row : row + 1]), strict=True):
            same(both[row], alone[0], f"row {row} of two with positions {own.tolist()}, and alone")
    shared = _effects(position, torch.arange(4)[None])
    for spread, one in zip(_effects(position, torch.arange(4).expand(2, 4)), shared, strict=True):
        same(spread, one.expand_as(spread), "one row of positions, and one each")


def the_last_queries_are_the_last_rows(example: Example) -> None:
    """The placement of a chunk is the end of the placement of all."""
    position = example()
    positions, heads = torch.tensor([[0, 0, 0, 1, 2, 3]]), noise(1, N_HEADS, 6, D_HEAD)
    whole, chunk = position.place(positions, positions), position.place(positions[:, -2:], positions)
    turned, whole_turned = chunk.turn(heads[:, :, -2:], "q"), whole.turn(heads, "q")
    same(turned, whole_turned[:, :, -2:], "the queries of a chunk and of all")
    if whole.bias is not None:
        same(chunk.bias, whole.bias[:, :, -2:], "the bias of a chunk and of all")
    if whole.add is not None:
        same(chunk.add, whole.add[:, -2:], "what is added to a chunk and to all")


def the_dtype_is_kept(example: Example) -> None:
    """The input's dtype is kept, also where it is bfloat16, and far positions are finite."""
    limit = example().max_length
    positions = torch.arange(MAX_LENGTH if limit is None else limit)[None] * (1 if limit is not None else 997)
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        position = example()
        placed = position.input(noise(1, positions.shape[1], D_MODEL, dtype=dtype), positions)
        turned = position.place(positions, positions).turn(noise(1, 1, positions.shape[1], D_HEAD, dtype=dtype), "q")
        for what, y in (("input", placed), ("turn", turned)):
            if y.dtype != dtype:
                raise Broken(f"{what}: {dtype} becomes {y.dtype}")
            finite(y, f"{what} at positions up to {int(positions.max())} ({dtype})")


def pads_do_not_count(example: Example) -> None:
    """In a stack, a row with pads on either side is what it is without them."""
    for causal in (True, False):
        stack, x = _stack(example(bidirectional=not causal)), noise(1, 4, D_MODEL)
        alone, _ = stack(x, AttentionMask(causal=causal))
        for side, real in (("left", [3, 4, 5, 6]), ("right", [0, 1, 2, 3]), ("middle", [0, 1, 5, 6])):
            padded = torch.full((1, 7, D_MODEL), NAN)
            padded[:, real] = x
            keep = torch.zeros(1, 7, dtype=torch.bool)
            keep[:, real] = True
            y, _ = stack(padded, AttentionMask(keep=keep, causal=causal))
            same(y[:, real], alone, f"3 {side} pads and none, in a stack (causal {causal})")


def documents_restart(example: Example) -> None:
    """In a stack, packed documents are what each is by itself."""
    stack, x = _stack(example()), noise(1, 7, D_MODEL)
    packed, _ = stack(x, AttentionMask(documents=torch.tensor([[0, 0, 0, 1, 1, 1, 1]]), causal=True))
    alone = torch.cat([stack(part, AttentionMask(causal=True))[0] for part in (x[:, :3], x[:, 3:])], 1)
    same(packed, alone, "documents of 3 and 4 tokens, packed and alone, in a stack")


@torch.no_grad()
def cached_is_uncached(example: Example) -> None:
    """In a stack, prefill, chunks and single steps give what one pass gives, with pads on the left."""
    stack = _stack(example())
    for chunks in CHUNKS:
        x, keep = noise(2, sum(chunks), D_MODEL), torch.ones(2, sum(chunks), dtype=torch.bool)
        keep[0, : min(3, sum(chunks) - 1)] = False
        expected, _ = stack(x, AttentionMask(keep=keep, causal=True))
        cache, outputs = Cache(15), []
        for part, kept in zip(torch.split(x, chunks, 1), torch.split(keep, chunks, 1), strict=True):
            outputs.append(stack(part, AttentionMask(keep=kept, causal=True), cache=cache)[0])
            spoil_unused(cache, NAN)
        same(torch.cat(outputs, 1)[keep], expected[keep], f"cached and uncached, chunks {chunks}, in a stack")


def _effects(position: Any, positions: Tensor) -> list[Tensor]:
    """All that it does to equal tokens; time is dimension 1."""
    rows, time = positions.shape
    x, heads = torch.ones(rows, time, D_MODEL), torch.ones(rows, N_HEADS, time, D_HEAD)
    place = position.place(positions, positions)
    effects = [position.input(x, positions), *(place.turn(heads, side).transpose(1, 2) for side in ("q", "k"))]
    if place.bias is not None:
        effects += [place.bias.transpose(1, 2), place.bias.transpose(1, 3)]
    return effects if place.add is None else [*effects, place.add]


def _stack(position: Any) -> Stack:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        norm = lambda: RMSNorm(D_MODEL)  # noqa: E731
        layers = [
            Layer(
                Attention(D_MODEL, N_HEADS, Math()),
                None,
                GatedFeedForward(D_MODEL),
                PreNorm(norm, 2, Depths(2, decoder=2)),
            )
            for _ in range(2)
        ]
        stack = Stack(layers, norm, positions=[position])
    return _as_stack(shaken(stack).eval())


def _as_stack(module: Any) -> Stack:
    assert isinstance(module, Stack)
    return module


POSITION = (
    acts_where_it_says,
    positions_differ,
    rows_of_positions_are_alone,
    the_last_queries_are_the_last_rows,
    the_dtype_is_kept,
    pads_do_not_count,
    documents_restart,
    cached_is_uncached,
)
