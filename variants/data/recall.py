"""Synthetic recall in context: what a model must look up in what it has just read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from variants.data.base import IGNORED, N_SPECIALS, PAD, Batch, Split, below_one
from variants.data.synthetic import Synthetic, draws
from variants.slots import data

Ids = NDArray[np.int64]


class RecallSplit(Split):
    """One split of `Recall`."""

    def __init__(
        self,
        key: int,
        n_examples: int,
        pairs: int,
        keys: int,
        values: int,
        queries: int | None,
        gaps: tuple[int, int],
    ) -> None:
        self.key, self.n_examples = key, n_examples
        self.pairs, self.keys, self.values, self.queries, self.gaps = pairs, keys, values, queries, gaps

    def __len__(self) -> int:
        return self.n_examples

    def batch(self, indices: Sequence[int]) -> Batch:
        """Pairs of a key and a value, a gap of fillers, then keys again, each followed by its value."""
        pairs, (least, most) = self.pairs, self.gaps
        n_queries = self.queries or pairs
        words = draws(self.key, indices, self.keys + pairs + n_queries + 1)
        keys = words[:, : self.keys].argsort(1)[:, :pairs] + N_SPECIALS  # distinct in a row
        values = (words[:, self.keys : self.keys + pairs] % np.uint64(self.values)).astype(np.int64)
        values += N_SPECIALS + self.keys
        order = words[:, self.keys + pairs : -1]
        asked = order.argsort(1) if self.queries is None else (order % np.uint64(pairs)).astype(np.int64)
        gap = least + (words[:, -1:] % np.uint64(most - least + 1)).astype(np.int64)

        shown = interleaved(keys, values)
        queries = interleaved(np.take_along_axis(keys, asked, 1), np.take_along_axis(values, asked, 1))
        ids = np.full((len(keys), 2 * pairs + most + 2 * n_queries), PAD, np.int64)
        ids[:, : 2 * pairs] = shown
        place = np.arange(ids.shape[1])
        filler = (place >= 2 * pairs) & (place < 2 * pairs + gap)
        ids[filler] = N_SPECIALS + self.keys + self.values
        np.put_along_axis(ids, 2 * pairs + gap + np.arange(2 * n_queries), queries, 1)
        targets = np.full_like(ids, IGNORED)
        np.put_along_axis(targets, 2 * pairs + gap + 2 * np.arange(n_queries), queries[:, 1::2], 1)
        return {"ids": torch.from_numpy(ids), "targets": torch.from_numpy(targets)}


def interleaved(keys: Ids, values: Ids) -> Ids:
    """Lay each key before its value."""
    return np.stack((keys, values), 2).reshape(len(keys), -1)


@data.register("recall")
class Recall(Synthetic):
    """Key-value pairs, a gap, and the keys again: the model must recall the values.

    Only the value behind a repeated key is a target; a guess is right once in ``values``. The gap is uniform between
    its bounds, so recall can be trained over mixed distances and read at one.

    Where every key is asked for once, who knows which values there were, and not whose they are, is right ever more
    often as fewer are left: the mean of 1, 1/2, 1/3, ... over the pairs. Many queries, each drawn anew, leave such a
    model at one right answer in ``pairs``, and train faster: each is a target.

    Source: Arora et al. 2023, "Zoology: Measuring and Improving Recall in Efficient Language Models", arXiv:2312.04927,
    section 3, multi-query associative recall.
    Departs from it: queries stand together behind one gap, instead of at places drawn from a power law.

    Args:
        pairs: Pairs of a key and a value in a sequence.
        keys: Distinct keys, of which a sequence has ``pairs``.
        values: Distinct values.
        queries: Queries of a sequence, each of a pair drawn anew; None: every pair is asked for once.
        min_gap: Fillers between the last pair and the first query, at least.
        max_gap: The same, at most.
        n_train: Training examples of an epoch.
        n_validation: Validation examples.
        batch_size: Sequences of one micro-batch, over all ranks.
        seed: Of the examples, whatever the seed of a run.

    Raises:
        ValueError: A count is below 1, ``pairs`` exceeds ``keys``, or ``min_gap`` exceeds ``max_gap``.
    """

    kind: ClassVar[Literal["language", "pairs"]] = "language"

    def __init__(
        self,
        *,
        pairs: int = 8,
        keys: int = 32,
        values: int = 32,
        queries: int | None = None,
        min_gap: int = 0,
        max_gap: int = 32,
        n_train: int = 1_000_000,
        n_validation: int = 512,
        batch_size: int = 64,
        seed: int = 0,
    ) -> None:
        problems = (
            *below_one(pairs=pairs, keys=keys, values=values, queries=1 if queries is None else queries),
            pairs > keys > 0 and f"pairs={pairs}: must not exceed keys={keys}, which are distinct in a sequence",
            not 0 <= min_gap <= max_gap and f"min_gap={min_gap}: must be between 0 and max_gap={max_gap}",
        )

        def split(key: int, n_examples: int) -> RecallSplit:
            return RecallSplit(key, n_examples, pairs, keys, values, queries, (min_gap, max_gap))

        super().__init__(split, keys + values + 1, n_train, n_validation, batch_size, seed, *problems)
        self.length = 2 * pairs + max_gap + 2 * (queries or pairs)
