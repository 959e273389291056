"""Synthetic copying in one stream: a sequence, a mark, and the same sequence again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np
import torch

from variants.data.base import EOS, IGNORED, N_SPECIALS, PAD, Batch, Split, below_one
from variants.data.synthetic import Synthetic, draws
from variants.slots import data


class CopyingSplit(Split):
    """One split of `Copying`."""

    def __init__(self, key: int, n_examples: int, symbols: int, lengths: tuple[int, int]) -> None:
        self.key, self.n_examples, self.symbols, self.lengths = key, n_examples, symbols, lengths

    def __len__(self) -> int:
        return self.n_examples

    def batch(self, indices: Sequence[int]) -> Batch:
        """Sequences and their copies; what is behind a copy is a pad, and no target."""
        shortest, longest = self.lengths
        words = draws(self.key, indices, 1 + longest)
        length = shortest + (words[:, :1] % np.uint64(longest - shortest + 1)).astype(np.int64)
        symbols = N_SPECIALS + (words[:, 1:] % np.uint64(self.symbols)).astype(np.int64)
        place = np.arange(2 * longest + 1)
        source = np.take_along_axis(symbols, np.where(place < length, place, (place - length - 1) % longest), 1)
        ids = np.where(place == length, EOS, np.where(place <= 2 * length, source, PAD))
        following = np.roll(ids, -1, 1)
        targets = np.where((place >= length) & (place < 2 * length), following, IGNORED)
        return {"ids": torch.from_numpy(ids), "targets": torch.from_numpy(targets)}


@data.register("copying")
class Copying(Synthetic):
    """Random symbols, a mark, and the same symbols again, which the model must predict.

    Only the copy is a target; a guess is right once in ``symbols``. Every symbol is copied from ``length + 1`` tokens
    back, so copying can be trained over mixed distances and read at one.

    Source: Graves et al. 2014, "Neural Turing Machines", arXiv:1410.5401, section 4.1.
    Departs from it: symbols instead of vectors of bits.

    Args:
        symbols: Distinct symbols.
        min_length: Symbols of the shortest sequence.
        max_length: Symbols of the longest sequence.
        n_train: Training examples of an epoch.
        n_validation: Validation examples.
        batch_size: Sequences of one micro-batch, over all ranks.
        seed: Of the examples, whatever the seed of a run.

    Raises:
        ValueError: A count is below 1, or ``min_length`` exceeds ``max_length``.
    """

    kind: ClassVar[Literal["language", "pairs"]] = "language"

    def __init__(
        self,
        *,
        symbols: int = 16,
        min_length: int = 4,
        max_length: int = 32,
        n_train: int = 1_000_000,
        n_validation: int = 512,
        batch_size: int = 64,
        seed: int = 0,
    ) -> None:
        problems = (
            *below_one(symbols=symbols, min_length=min_length),
            min_length > max_length and f"min_length={min_length}: must not exceed max_length={max_length}",
        )

        def split(key: int, n_examples: int) -> CopyingSplit:
            return CopyingSplit(key, n_examples, symbols, (min_length, max_length))

        super().__init__(split, symbols, n_train, n_validation, batch_size, seed, *problems)
        self.length = 2 * max_length + 1
