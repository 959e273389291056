"""What a cross mixer promises: it reads the memory, and only where the memory's mask allows."""

from __future__ import annotations

import torch
from torch import Tensor

from variants.blocks.cache import Cache
from variants.blocks.context import Context
from variants.blocks.masks import AttentionMask
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
from variants.testing.examples import D_MODEL, Example

CAUSAL = AttentionMask(causal=True)


def reads_the_memory(example: Example) -> None:
    """Every token of the memory reaches every output; the choice that reads nothing says that it is absent."""
    cross = example()
    if getattr(cross, "absent", False):
        return
    x, memory = noise(1, 3, D_MODEL), noise(1, 4, D_MODEL, seed=1)
    before = cross(x, Context(CAUSAL, memory=memory))
    changed = memory + noise(1, 4, D_MODEL, seed=2)
    for output, has_moved in enumerate(moved(cross(x, Context(CAUSAL, memory=changed)), before)):
        if not has_moved:
            raise Broken(f"output {output} did not move when the memory changed (3 tokens, memory of 4)")


def memory_pads_change_nothing(example: Example) -> None:
    """Pads of the memory on either side, whatever they hold, change no output and no gradient."""
    cross = example()
    x, memory = noise(2, 3, D_MODEL), noise(2, 4, D_MODEL, seed=1)
    leaf = memory.clone().requires_grad_()
    alone = cross(x, Context(CAUSAL, memory=leaf))
    slopes = gradients(cross, weighted(alone), leaf)
    for side, real in (("left", [2, 3, 4, 5]), ("right", [0, 1, 2, 3]), ("middle", [0, 1, 4, 5])):
        for held in (1.0, NAN, INF):
            what = f"{side} pads of {held:g} in the memory (4 tokens, 2 pads)"
            padded = torch.full((2, 6, D_MODEL), held)
            padded[:, real] = memory
            padded.requires_grad_()
            y = cross(x, Context(CAUSAL, memory=padded, memory_mask=_keep(real, 6)))
            same(y, alone, what)
            found = gradients(cross, weighted(y), padded)
            finite(found["input 0"], f"{what}: the gradient of the memory")
            found["input 0"] = found["input 0"][:, real]
            for name, slope in slopes.items():
                same(found[name], slope, f"{what}: the gradient of {name}")


def own_pads_change_nothing(example: Example) -> None:
    """Pads among the targets, whatever they hold, change no other output and no gradient."""
    cross = example()
    x, memory = noise(2, 3, D_MODEL), noise(2, 4, D_MODEL, seed=1)
    alone = cross(x, Context(CAUSAL, memory=memory))
    slopes = gradients(cross, weighted(alone))
    padded = torch.full((2, 5, D_MODEL), NAN)
    padded[:, 2:] = x
    mask = AttentionMask(keep=_keep([2, 3, 4], 5).keep, causal=True)
    y = cross(padded, Context(mask, memory=memory))[:, 2:]
    same(y, alone, "2 left pads of nan among the targets")
    found = gradients(cross, weighted(y))
    for name, slope in slopes.items():
        same(found[name], slope, f"2 left pads of nan among the targets: the gradient of {name}")


def packed_pairs_are_alone(example: Example) -> None:
    """Packed pairs are what each is by itself."""
    cross = example()
    x, memory = noise(1, 5, D_MODEL), noise(1, 7, D_MODEL, seed=1)
    documents = torch.tensor([[0, 0, 0, 1, 1, 1, 1]])
    mask = AttentionMask(documents=documents, query_documents=torch.tensor([[0, 0, 1, 1, 1]]))
    y = cross(x, Context(CAUSAL, memory=memory, memory_mask=mask))
    first = cross(x[:, :2], Context(CAUSAL, memory=memory[:, :3]))
    second = cross(x[:, 2:], Context(CAUSAL, memory=memory[:, 3:]))
    same(y, torch.cat((first, second), 1), "pairs of 2 and 3 tokens over memories of 3 and 4, packed and alone")


def beams_share_their_memory(example: Example) -> None:
    """Several rows over one row of the memory give what they give over copies of it."""
    cross = example()
    x, memory = noise(6, 3, D_MODEL), noise(2, 4, D_MODEL, seed=1)
    mask = AttentionMask(keep=torch.tensor([[True] * 4, [False, True, True, True]]))
    y = cross(x, Context(CAUSAL, memory=memory, memory_mask=mask))
    assert mask.keep is not None
    copies = AttentionMask(keep=mask.keep.repeat_interleave(3, 0))
    copied = cross(x, Context(CAUSAL, memory=memory.repeat_interleave(3, 0), memory_mask=copies))
    same(y, copied, "3 beams over one row of the memory, and over copies")


@torch.no_grad()
def cached_is_uncached(example: Example) -> None:
    """Prefill, chunks and single steps give what one pass gives, whatever unused slots hold."""
    cross = example()
    memory, mask = noise(2, 4, D_MODEL, seed=1), _keep([1, 2, 3], 4)
    for chunks in CHUNKS:
        x = noise(2, sum(chunks), D_MODEL)
        expected = cross(x, Context(CAUSAL, memory=memory, memory_mask=mask))
        for held in (NAN, INF):
            cache, outputs = Cache(15), []
            for chunk in torch.split(x, chunks, 1):
                full = cache.extend(CAUSAL, 2, chunk.shape[1], x.device)
                outputs.append(cross(chunk, Context(full, memory=memory, memory_mask=mask, cache=cache)))
                spoil_unused(cache, held)
            same(torch.cat(outputs, 1), expected, f"cached and uncached, chunks {chunks}, unused slots of {held:g}")


def a_blind_row_is_harmless(example: Example) -> None:
    """A source of pads alone gives finite outputs and gradients, and harms no other row."""
    cross = example()
    x = noise(2, 3, D_MODEL)
    memory = noise(2, 4, D_MODEL, seed=1)
    memory[1] = NAN
    memory.requires_grad_()
    mask = AttentionMask(keep=torch.tensor([[True] * 4, [False] * 4]))
    y: Tensor = cross(x, Context(CAUSAL, memory=memory, memory_mask=mask))
    finite(y, "a source of pads")
    for name, slope in gradients(cross, weighted(y), memory).items():
        finite(slope, f"a source of pads: the gradient of {name}")
    same(y[:1], cross(x[:1], Context(CAUSAL, memory=memory[:1])), "a row beside a source of pads, and alone")


def _keep(real: list[int], length: int) -> AttentionMask:
    keep = torch.zeros(2, length, dtype=torch.bool)
    keep[:, real] = True
    return AttentionMask(keep=keep)


CROSS = (
    reads_the_memory,
    memory_pads_change_nothing,
    own_pads_change_nothing,
    packed_pairs_are_alone,
    beams_share_their_memory,
    cached_is_uncached,
    a_blind_row_is_harmless,
)
