"""What every part of a layer promises besides, whatever its slot."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from variants.blocks.context import Context
from variants.blocks.masks import AttentionMask
from variants.testing.base import INF, NAN, Broken, distance, finite, gradients, in_both_modes, noise, same, weighted
from variants.testing.common import leaves
from variants.testing.examples import D_MODEL, RATES, Example
from variants.testing.probes import Probe, probe


def same_shape(example: Example) -> None:
    """The output has the input's shape."""
    tried = probe(example)
    for batch, time in ((1, 1), (2, 1), (1, 6), (3, 6)):
        x, *rest = tried.inputs(batch=batch, time=time)
        if tried(x, *rest).shape != x.shape:
            raise Broken(f"{tuple(x.shape)} gives {tuple(tried(x, *rest).shape)}")


@torch.no_grad()
def dropout_is_for_training_alone(example: Example) -> None:
    """In evaluation the rates change nothing, and nothing is drawn; in training each that it asks for drops."""
    quiet, tried = (probe(example, **dict.fromkeys(RATES, rate)) for rate in (0.0, 0.3))
    inputs = quiet.inputs()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        same(quiet(*inputs), quiet(*inputs), "in evaluation, called twice", 0.0)
        same(tried(*inputs), quiet(*inputs), "in evaluation, dropout of 0.3 and of 0", 0.0)
        for name in RATES:
            if example.takes(name):
                found = []
                for rate in (0.0, 0.3):
                    torch.manual_seed(0)
                    tried = probe(example, **{name: rate}).train()
                    found.append(torch.stack([tried(*inputs) for _ in range(8)]))
                if not distance(*found):
                    raise Broken(f"in training, {name} of 0.3 drops nothing")


def recomputing_changes_nothing(example: Example) -> None:
    """Under checkpointing, with dropout on, the output, every gradient and the random state are the same."""
    found = []
    for recompute in (False, True):
        tried = probe(example, **dict.fromkeys(RATES, 0.3)).train()
        inputs = leaves(tried.inputs())
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            y = checkpoint(tried, *inputs, use_reentrant=False) if recompute else tried(*inputs)
            slopes = gradients(tried, weighted(y), *(t for t in inputs if t.requires_grad))
            found.append({"the output": y, **slopes, "the random state": torch.get_rng_state()})
    for name, plain in found[0].items():
        same(found[1][name], plain, f"recomputed, with dropout: {name}", 0.0)


@in_both_modes
def added_losses_ignore_pads(example: Example) -> None:
    """What it adds to the loss is a finite number, on which pads have no influence, nor on that number's gradients."""
    tried, x, memory = probe(example), noise(1, 3, D_MODEL), noise(1, 3, D_MODEL, seed=1)
    alone = _added(tried, x, memory, torch.ones(1, 3, dtype=torch.bool), "")
    for what, shape, real in (
        ("2 left pads", (1, 5), [2, 3, 4]),
        ("2 right pads", (1, 5), [0, 1, 2]),
        ("a row of 3 pads", (2, 3), [0, 1, 2]),
    ):
        for held in (1.0, NAN, INF) if alone else ():
            beside = f" beside {what} of {held:g}"
            padded, padded_memory = (torch.full((*shape, D_MODEL), held) for _ in range(2))
            padded[0, real], padded_memory[0, real] = x[0], memory[0]
            keep = torch.zeros(shape, dtype=torch.bool)
            keep[0, real] = True
            found = _added(tried, padded, padded_memory, keep, beside)
            for name, value in alone.items():
                same(found[name], value, f"{name}{beside} and alone")


def _added(tried: Probe, x: Tensor, memory: Tensor, keep: Tensor, beside: str) -> dict[str, Tensor]:
    """The losses that a part adds, and their gradients, those of real inputs alone."""
    leaf, found = x.clone().requires_grad_(), {}
    mask = AttentionMask(keep, causal=getattr(tried, "causal", True))
    context = Context(mask, memory=memory, memory_mask=AttentionMask(keep))
    tried.component(leaf, context)
    for name, loss in context.losses.items():
        if loss.shape != ():
            raise Broken(f"the loss {name!r} has the shape {tuple(loss.shape)}, and is no single number")
        slopes = {f"the loss {name!r}": loss}
        slopes |= {
            f"the loss {name!r}, the gradient of {p}": g for p, g in gradients(tried.component, loss, leaf).items()
        }
        for what, slope in slopes.items():
            finite(slope, f"{what}{beside}")
            found[what] = slope[keep] if what.endswith("of input 0") else slope
    return found


PART = (same_shape, dropout_is_for_training_alone, recomputing_changes_nothing)
ADDS = (added_losses_ignore_pads,)  # of parts that are given a context
