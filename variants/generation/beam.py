"""Search for the likeliest sequences with a beam."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from variants.data.base import BOS, EOS, PAD
from variants.generation.search import Candidate, Hypothesis, Search
from variants.generation.stepper import Prompts, check_lengths, evaluating, stepper_of


def beam_search(
    model: nn.Module,
    prompts: Prompts,
    *,
    max_new: int,
    min_new: int = 0,
    beam: int = 4,
    n_best: int = 1,
    alpha: float = 0.6,
    eos: int | None = EOS,
    bos: int = BOS,
    pad: int = PAD,
    use_cache: bool = True,
) -> list[list[Hypothesis]]:
    """Find the sequences of the highest score ``log p / ((5 + length) / 6)^alpha``, each prompt as if it were alone.

    A step keeps the ``beam`` likeliest extensions of what is live; those that end take their place in it, so that a
    beam of 1 is greedy decoding. A sequence that the limit cuts competes as it is. The search ends when nothing live
    can still come among the ``n_best``; with a beam that holds every prefix, it is exhaustive.

    Source: Wu et al. 2016, "Google's Neural Machine Translation System", arXiv:1609.08144, section 7.
    Departs from it: no coverage penalty, and no pruning by a margin.

    Args:
        model: A decoder-only model, or one with an encoder.
        prompts: Ids to continue (an empty prompt begins with ``bos``); or the ids of sources.
        max_new: New tokens of a sequence at most, EOS included, BOS and the prompt not.
        min_new: New tokens of a sequence before which there is no EOS.
        beam: Hypotheses that are followed at once.
        n_best: How many sequences are returned for each prompt, if there are so many.
        alpha: 0 compares probabilities; higher ones favour length.
        eos: What ends a sequence; None: nothing does.
        bos: What a target, or an empty prompt, begins with.
        pad: What fills rows up inside a batch.
        use_cache: Whether to keep what earlier steps computed; the result is the same.

    Returns:
        For every prompt its sequences, the best first, all different.

    Raises:
        ValueError: A number is out of its range, the model cannot generate, or it has too few positions.
    """
    check_lengths(max_new, min_new)
    if beam < 1:
        raise ValueError(f"beam must be at least 1, not {beam}")
    if not 1 <= n_best <= beam:
        raise ValueError(f"n_best must lie between 1 and beam {beam}, not at {n_best}")
    if not prompts:
        return []
    searches = [Search(beam, n_best, alpha, max_new, eos) for _ in prompts]
    with evaluating(model):
        stepper = stepper_of(model, prompts, max_new=max_new, bos=bos, pad=pad, use_cache=use_cache)
        logits = stepper.logits().repeat_interleave(beam, 0)
        stepper.repeat(beam)
        first = torch.arange(len(prompts), device=logits.device)[:, None] * beam
        for n in range(max_new):
            following = logits.log_softmax(-1)
            if eos is not None and n < min_new:
                following[:, eos] = float("-inf")
            candidates = likeliest(following.reshape(len(prompts), beam, -1), [search.totals() for search in searches])
            taken = [search.take(some) for search, some in zip(searches, candidates, strict=True)]
            if all(search.over for search in searches):
                break
            rows, ids = torch.tensor(taken, device=logits.device).unbind(-1)
            stepper.reorder((first + rows).flatten())
            stepper.append(ids.flatten())
            logits = stepper.logits()
    return [search.best for search in searches]


def likeliest(following: Float[Tensor, "prompts beam vocab"], totals: list[list[float]]) -> list[list[Candidate]]:
    """For every prompt the extensions that are likeliest so far, as many as the beam holds."""
    beam, vocab = following.shape[1:]
    extended = following + following.new_tensor(totals)[:, :, None]
    values, places = (t.tolist() for t in extended.flatten(1).topk(beam))
    return [
        [Candidate(value, place // vocab, place % vocab) for value, place in zip(*row, strict=True)]
        for row in zip(values, places, strict=True)
    ]
