"""What a mixer promises: it reads only where the mask allows; what it promises of a cache is in `mixer_caches`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import torch
from torch import Tensor, nn

from variants.blocks.context import Context
from variants.blocks.masks import AttentionMask
from variants.blocks.positions.base import Placement
from variants.testing.base import (
    INF,
    NAN,
    Broken,
    finite,
    gradients,
    in_both_modes,
    moved,
    noise,
    same,
    weighted,
    without_written_biases,
)
from variants.testing.examples import D_MODEL, N_HEADS, Example
from variants.testing.mixer_caches import cached_is_uncached, cached_rows_can_be_reordered, depths_are_apart

LONG = 40  # tokens, more than what a mixer takes in one block


@in_both_modes
def causality(example: Example) -> None:
    """Under a causal mask a token changes its own output and later ones, and no earlier one."""
    mixer, context = _serving(example, True), Context(AttentionMask(causal=True))
    if mixer is None:
        return
    for length in range(1, 9):
        x = noise(1, length, D_MODEL)
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
    x = noise(1, LONG, D_MODEL)
    before = mixer(x, context)
    for token in (LONG - 1, LONG // 2 + 1):
        later = torch.cat((x[:, :token], noise(1, LONG - token, D_MODEL, seed=7)), 1)
        if True in (changes := moved(mixer(later, context), before)[:token]):
            raise Broken(f"output {changes.index(True)} moved when tokens {token} and after changed (length {LONG})")


@in_both_modes
def both_sides(example: Example) -> None:
    """In a bidirectional stack, under a mask without causality, a token sees the one before it and the one after."""
    mixer = _serving(example, False)
    if mixer is None:
        return
    x = noise(1, 2, D_MODEL)
    before = mixer(x, Context())
    for token, output in ((0, 1), (1, 0)):
        if not moved(mixer(_nudged(x, token), Context()), before)[output]:
            raise Broken(f"output {output} did not move when token {token} changed, though no mask hides it (length 2)")


@in_both_modes
def window(example: Example) -> None:
    """A window of 3 hides what is 3 tokens away and further, and nothing else; or the mixer refuses windows."""
    for causal, mixer in _modes(example):
        try:
            plain, found = (_moved_by_the_fifth(mixer, AttentionMask(causal=causal, window=w)) for w in (None, 3))
        except ValueError:
            continue
        for output, moves in enumerate(found):
            away = abs(output - 4)
            if moves != (plain[output] and away < 3):
                said, side = "moved" if moves else "did not move", "causal" if causal else "both sides"
                raise Broken(f"output {output} {said} when token 4 changed, {away} away (window 3, {side})")


@in_both_modes
def prefix(example: Example) -> None:
    """Under causality earlier tokens see a prefix's tokens as well, and no others; or the mixer refuses prefixes."""
    mixer, x = _serving(example, True), noise(1, 3, D_MODEL)
    if mixer is None:
        return
    context = Context(AttentionMask(prefix=torch.tensor([[True, True, False]]), causal=True))
    try:
        before = mixer(x, context)
    except ValueError:
        return
    if not moved(mixer(_nudged(x, 1), context), before)[0]:
        raise Broken("output 0 did not move when token 1 changed (3 tokens, a prefix of 2)")
    if True in (changes := moved(mixer(_nudged(x, 2), context), before)[:2]):
        raise Broken(f"output {changes.index(True)} moved when token 2 changed (3 tokens, a prefix of 2)")


@in_both_modes
def reads_what_it_says(example: Example) -> None:
    """Of a placement, what ``reads`` names moves an output, turned queries and turned keys each, and no more does."""
    for causal, mixer in _modes(example):
        x, mask = noise(1, 3, D_MODEL), AttentionMask(causal=causal)
        before = mixer(x, Context(mask))
        for place in ("add", "turn q", "turn k", "bias"):
            said = place.split()[0] in getattr(mixer, "reads", ())
            if said != any(moved(mixer(x, Context(mask, Placed(place))), before)):
                does = "moves no output" if said else "moves an output"
                raise Broken(f"{place} of a placement {does}, and it reads {getattr(mixer, 'reads', ())} (length 3)")


class Placed(Placement):
    """Acts in one place, and turns one side alone, on three tokens."""

    def __init__(self, place: str) -> None:
        self.turned = place.removeprefix("turn ")
        self.add = noise(1, 3, D_MODEL, seed=6) if place == "add" else None
        self.bias = noise(1, N_HEADS, 3, 3, seed=6) if place == "bias" else None

    def turn(self, x: Tensor, side: Literal["q", "k"]) -> Tensor:
        """A factor for each token."""
        return x * noise(3, 1, seed=6).to(x.dtype) if side == self.turned else x


@in_both_modes
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


@in_both_modes
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


@in_both_modes
def a_blind_row_is_harmless(example: Example) -> None:
    """A row of pads alone gives finite outputs and gradients, does not depend on what it holds, and harms no other.

    It reads nothing, which gives 0; so its output is what the biases of what the mixer ``writes`` make of 0.
    """
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
        read = without_written_biases(mixer)(x, Context(AttentionMask(keep=keep, causal=causal)))[1]
        same(read, torch.zeros_like(read), "a row of pads, written without bias, and 0")


def _moved_by_the_fifth(mixer: nn.Module, mask: AttentionMask) -> list[bool]:
    x = noise(1, 9, D_MODEL)
    return moved(mixer(_nudged(x, 4), Context(mask)), mixer(x, Context(mask)))


def _padded() -> Iterator[tuple[str, list[int], int]]:
    """On which side pads are, where the tokens are, and how many there are of both."""
    yield "left", [1], 2
    yield "right", [0], 2
    yield "middle", [0, 2], 3
    yield "left", [2, 3, 4, 5, 6], 7
    yield "right", [0, 1, 2, 3, 4], 7
    yield "middle", [0, 1, 4, 5, 6], 7


def _modes(example: Example) -> Iterator[tuple[bool, nn.Module]]:
    """Causal, and bidirectional without causality, as far as the mixer serves them.

    Raises:
        Broken: It serves neither.
    """
    served = [(causal, mixer) for causal in (True, False) if (mixer := _serving(example, causal)) is not None]
    if not served:
        raise Broken("it refuses a causal mask and one that is not")
    yield from served


def _serving(example: Example, causal: bool) -> nn.Module | None:
    """The mixer of a causal or of a bidirectional stack; None: it refuses to be one, by a ValueError."""
    try:
        mixer: nn.Module = example(bidirectional=not causal)
        mixer(noise(1, 2, D_MODEL), Context(AttentionMask(causal=causal)))
    except ValueError:
        return None
    return mixer


def _nudged(x: Tensor, token: int) -> Tensor:
    changed = x.clone()
    changed[:, token] += noise(x.shape[-1], seed=7)
    return changed


MIXER = (
    causality,
    both_sides,
    window,
    prefix,
    reads_what_it_says,
    pads_change_nothing,
    documents_are_alone,
    a_blind_row_is_harmless,
    cached_is_uncached,
    cached_rows_can_be_reordered,
    depths_are_apart,
)
