"""What a model must beat before it has learned anything from context."""

from __future__ import annotations

import torch
from jaxtyping import Int
from torch import Tensor

from variants.data.base import IGNORED, Data, Split

CHUNK = 1024  # examples counted at once
MOST = 200 * CHUNK  # training examples that are counted


def counts(split: Split, vocab: int, most: int | None = None) -> Int[Tensor, "vocab"]:
    """How often each id is a target.

    Args:
        split: The examples.
        vocab: Ids.
        most: Count about so many examples, in runs spread evenly over the split; None: all.
    """
    starts = range(0, len(split), CHUNK)
    stride = 1 if most is None else max(1, len(starts) * CHUNK // most)
    total = torch.zeros(vocab, dtype=torch.int64)
    for start in starts[::stride]:
        targets = split.batch(range(start, min(start + CHUNK, len(split))))["targets"]
        total += torch.bincount(targets[targets != IGNORED], minlength=vocab)
    return total


def unigram(data: Data) -> float:
    """Nats per validation target of a model that knows only how frequent each id is.

    ``-sum_v n_v log((m_v + 1) / (m + vocab)) / n`` with counts n on the validation targets and m on the training
    targets, of which it takes at most about 200,000 examples.

    Args:
        data: Prepared data.
    """
    trained = counts(data.train, data.vocab, MOST).double() + 1
    validated = counts(data.validation, data.vocab).double()
    nll = -(trained / trained.sum()).log()
    return float((validated * nll).sum() / validated.sum())
