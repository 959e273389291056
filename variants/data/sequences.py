"""Synthetic pairs that an encoder-decoder must learn: a sequence of symbols, and the same in another order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from variants.data.base import BOS, EOS, IGNORED, N_SPECIALS, PAD, Batch, Split, below_one
from variants.data.synthetic import Synthetic, Words, draws
from variants.slots import data


class Sequences(Split):
    """One split; see `SequenceTask`."""

    def __init__(
        self, key: int, n_examples: int, symbols: int, lengths: tuple[int, int], order: Callable[[Words], Words]
    ) -> None:
        self.key, self.n_examples, self.symbols, self.lengths, self.order = key, n_examples, symbols, lengths, order

    def __len__(self) -> int:
        return self.n_examples

    def batch(self, indices: Sequence[int]) -> Batch:
        """Pairs, padded on the right to the longest of them."""
        shortest, longest = self.lengths
        words = draws(self.key, indices, 1 + longest)
        lengths = shortest + words[:, :1] % np.uint64(longest - shortest + 1)
        width = int(lengths.max())
        real = np.arange(width, dtype=np.uint64) < lengths
        symbols = N_SPECIALS + words[:, 1 : 1 + width] % np.uint64(self.symbols)

        source = self._ended(symbols, real)
        targets = self._ended(self.order(np.where(real, symbols, PAD)), real)
        shifted = targets.roll(1, 1).masked_fill(targets.roll(1, 1) == EOS, PAD)
        target = shifted.index_fill(1, torch.tensor([0]), BOS)
        return {
            "source": source,
            "source_keep": source != PAD,
            "target": target,
            "target_keep": target != PAD,
            "targets": targets.masked_fill(targets == PAD, IGNORED),
        }

    @staticmethod
    def _ended(symbols: Words, real: NDArray[np.bool_]) -> torch.Tensor:
        """Symbols, EOS after the last, pads."""
        rows = np.pad(np.where(real, symbols, PAD), ((0, 0), (0, 1))).astype(np.int64)
        rows[np.arange(len(rows)), real.sum(1)] = EOS
        return torch.from_numpy(rows)


def copied(symbols: Words) -> Words:
    """Leave the order as it is."""
    return symbols


def reversed_(symbols: Words) -> Words:
    """Reverse each row, its pads staying on the right."""
    n, width = (symbols != PAD).sum(1, keepdims=True), symbols.shape[1]
    return np.take_along_axis(symbols, (n - 1 - np.arange(width)) % width, 1)


def sorted_(symbols: Words) -> Words:
    """Sort each row upwards, its pads staying on the right."""
    return np.sort(symbols - np.uint64(1), axis=1) + np.uint64(1)  # a pad of 0 wraps around to the largest word


ORDERS = {"copy": copied, "reverse": reversed_, "sort": sorted_}


@data.register("copy", order="copy")
@data.register("reverse", order="reverse")
@data.register("sort", order="sort")
class SequenceTask(Synthetic):
    """Random symbols, to be copied, reversed or sorted.

    Lengths are uniform between the two bounds and symbols uniform. Example ``i`` of a split is a function of (seed,
    split, i). The two splits are drawn independently, so that short sequences may appear in both.

    Args:
        order: What the target is: the source itself, reversed or sorted.
        symbols: Distinct symbols; the vocabulary has four more entries, for pad, unknown, begin and end.
        min_length: Symbols of the shortest sequence.
        max_length: Symbols of the longest sequence.
        n_train: Training examples of an epoch.
        n_validation: Validation examples.
        batch_size: Pairs of one micro-batch, over all ranks.
        seed: Of the examples, whatever the seed of a run.

    Raises:
        ValueError: A count is below 1, or ``min_length`` exceeds ``max_length``.
    """

    kind = "pairs"

    def __init__(
        self,
        *,
        order: Literal["copy", "reverse", "sort"],
        symbols: int = 16,
        min_length: int = 4,
        max_length: int = 12,
        n_train: int = 1_000_000,
        n_validation: int = 512,
        batch_size: int = 64,
        seed: int = 0,
    ) -> None:
        problems = (
            *below_one(symbols=symbols, min_length=min_length),
            min_length > max_length and f"min_length={min_length}: must not exceed max_length={max_length}",
        )
        lengths, ordered = (min_length, max_length), ORDERS[order]

        def split(key: int, n_examples: int) -> Sequences:
            return Sequences(key, n_examples, symbols, lengths, ordered)

        super().__init__(split, symbols, n_train, n_validation, batch_size, seed, *problems)
        self.length = self.source_length = max_length + 1
        self.source_tokenizer = self.tokenizer
