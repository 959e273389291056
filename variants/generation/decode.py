"""Decode token by token, greedily or by sampling."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from variants.data.base import BOS, EOS, PAD
from variants.generation.sampling import GREEDY, Sampler, Sampling
from variants.generation.stepper import Prompts, check_lengths, device_of, evaluating, stepper_of


def decode(
    model: nn.Module,
    prompts: Prompts,
    *,
    max_new: int,
    min_new: int = 0,
    sampling: Sampling = GREEDY,
    seed: int = 0,
    eos: int | None = EOS,
    bos: int = BOS,
    pad: int = PAD,
    use_cache: bool = True,
) -> list[list[int]]:
    """Continue prompts, or translate sources, as the model's layout does; each row as if it were alone.

    The model's mode and the global random state are afterwards what they were before.

    Args:
        model: A decoder-only model, or one with an encoder.
        prompts: Ids to continue, as they are (an empty prompt begins with ``bos``); or the ids of sources, for targets
            that begin with ``bos``.
        max_new: New tokens of a row at most, EOS included, the prompt not.
        min_new: New tokens of a row before which there is no EOS.
        sampling: How a token is chosen; greedily by default.
        seed: Of the sampling; see `Sampler` for what a sample depends on.
        eos: What ends a row; None: nothing does.
        bos: What a target, or an empty prompt, begins with.
        pad: What fills rows up inside a batch.
        use_cache: Whether to keep what earlier steps computed; the result is the same.

    Returns:
        The new tokens of every row, up to its EOS, which is included if the row reached it.

    Raises:
        ValueError: A limit is out of its range, the model cannot generate, or it has too few positions.
    """
    check_lengths(max_new, min_new)
    if not prompts:
        return []
    choose = Sampler(sampling, seed, prompts)
    chosen = []
    with evaluating(model):
        stepper = stepper_of(model, prompts, max_new=max_new, bos=bos, pad=pad, use_cache=use_cache)
        done = torch.zeros(len(prompts), dtype=torch.bool, device=device_of(model))
        for n in range(max_new):
            logits = stepper.logits()
            if eos is not None and n < min_new:
                logits[:, eos] = float("-inf")
            ids = choose(logits)
            chosen.append(ids)
            done |= ids == eos
            if bool(done.all()):
                break
            if n + 1 < max_new:
                stepper.append(ids)
    return [until(row, eos) for row in torch.stack(chosen, 1).tolist()]


def until(ids: Sequence[int], eos: int | None) -> list[int]:
    """Ids up to the first EOS, which is included.

    >>> until([5, 3, 0, 0], 3)
    [5, 3]
    """
    ids = list(ids)
    return ids[: ids.index(eos) + 1] if eos in ids else ids
