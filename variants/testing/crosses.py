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
    in_both_modes,
    moved,
    noise,
    same,
    spoil_unused,
    weighted,
    without_written_biases,
)
from variants.testing.examples import D_MODEL, Example

CAUSAL = AttentionMask(causal=True)


@in_both_modes
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


@in_both_modes
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


@in_both_modes
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


@in_both_modes
def packed_pairs_are_alone(example: Example) -> None:
    """Packed pairs, also with pads between their sources or without one, are what each is by itself."""
    cross = example()
    for targets, sources in (
        ([0, 1], [0, 1]),
        ([0, 0, 1, 1, 1], [0, 0, 0, 1, 1, 1, 1]),
        ([0, 1], [-1, 0, -1, 1]),
        ([0, 0, 1, 1, 1], [-1, 0, 0, 0, -1, 1, 1, -1]),
        ([0, 0, 1, 2], [0, 0, 2]),
    ):
        x, memory = noise(1, len(targets), D_MODEL), noise(1, len(sources), D_MODEL, seed=1)
        keep = torch.tensor([sources]) >= 0
        memory[~keep] = NAN
        documents = torch.tensor([sources]).cummax(1).values.clamp(min=0)
        mask = AttentionMask(None if keep.all() else keep, documents, torch.tensor([targets]))
        y = cross(x, Context(CAUSAL, memory=memory, memory_mask=mask))
        for pair in sorted(set(targets)):
            own, read = ([at for at, of in enumerate(row) if of == pair] for row in (targets, sources))
            context = Context(CAUSAL, memory=memory[:, read])
            if not read:
                context = Context(CAUSAL, memory=memory[:, :1], memory_mask=AttentionMask(torch.tensor([[False]])))
            what = "alone" if read else "over a source of pads"
            said = f"pair {pair} of targets {targets} and sources {sources} (-1: pads)"
            same(y[:, own], cross(x[:, own], context), f"{said}, packed and {what}")


@in_both_modes
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
    cross = example().eval()
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


@torch.no_grad()
def depths_are_apart(example: Example) -> None:
    """Two cross mixers at two depths remember each its own keys and values of the memory."""
    both, cache = [example(seed=seed).eval() for seed in range(2)], Cache(8)
    x, memory = noise(1, 2, D_MODEL), noise(1, 3, D_MODEL, seed=1)
    outputs: list[list[Tensor]] = [[], []]
    for token in range(2):
        full = cache.extend(CAUSAL, 1, 1, x.device)
        for depth, cross in enumerate(both):
            context = Context(full, memory=memory, cache=cache, depth=depth)
            outputs[depth].append(cross(x[:, token : token + 1], context))
    for depth, cross in enumerate(both):
        expected = cross(x, Context(CAUSAL, memory=memory))
        same(torch.cat(outputs[depth], 1), expected, f"cached at two depths and uncached, depth {depth}, chunks [1, 1]")


@in_both_modes
def a_blind_row_is_harmless(example: Example) -> None:
    """A source of pads alone gives finite outputs and gradients, and harms no other row.

    Nothing is read, which gives 0; so its output is what the biases of what the cross mixer ``writes`` make of 0.
    """
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
    read = without_written_biases(cross)(x, Context(CAUSAL, memory=memory, memory_mask=mask))[1]
    same(read, torch.zeros_like(read), "a source of pads, written without bias, and 0")


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
    depths_are_apart,
    a_blind_row_is_harmless,
)
