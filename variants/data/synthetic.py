"""What synthetic data share: random words by address, symbols with numbers for names, and nothing to prepare."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from variants.data.base import N_SPECIALS, Data, Notify, Split, below_one, silent
from variants.data.order import address
from variants.errors import refuse

Words = NDArray[np.uint64]


def mix(words: Words) -> Words:
    """Scramble 64-bit words one to one: the finaliser of SplitMix64.

    Source: Steele, Lea and Flood 2014, "Fast Splittable Pseudorandom Number Generators".
    """
    words = words + np.uint64(0x9E3779B97F4A7C15)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def draws(key: int, indices: Sequence[int], n: int) -> Words:
    """``n`` random words for every index: a function of (key, index), whichever indices are asked together."""
    rows: Words = np.asarray(indices).astype(np.uint64) ^ np.uint64(key)
    return mix(np.add.outer(mix(rows), np.arange(n, dtype=np.uint64)))


class Symbols:
    """Number the symbols in text: ``"0 2"`` is the first symbol and the third."""

    def __init__(self, symbols: int) -> None:
        self.vocab = symbols + N_SPECIALS

    def encode(self, text: str) -> list[int]:
        """Words to ids.

        Raises:
            ValueError: A word is no symbol's number.
        """
        for word in text.split():
            if not (word.isdecimal() and int(word) < self.vocab - N_SPECIALS):
                raise ValueError(f"{word!r}: not a symbol; they are the numbers 0 to {self.vocab - N_SPECIALS - 1}")
        return [int(word) + N_SPECIALS for word in text.split()]

    def decode(self, ids: Sequence[int]) -> str:
        """Ids to words; special ones are left out."""
        return " ".join(str(i - N_SPECIALS) for i in ids if i >= N_SPECIALS)


class Synthetic(Data):
    """Data that are made when they are asked for.

    Args:
        split: Makes a split of a key and a number of examples.
        symbols: Distinct symbols, beside the special ones.
        n_train: Training examples of an epoch.
        n_validation: Validation examples.
        batch_size: Examples of one micro-batch, over all ranks.
        seed: Of the examples; the two splits are drawn independently.
        *problems: What is wrong with the other arguments, as `variants.errors.refuse` takes it.

    Raises:
        ValueError: A count is below 1, or there are problems.
    """

    def __init__(
        self,
        split: Callable[[int, int], Split],
        symbols: int,
        n_train: int,
        n_validation: int,
        batch_size: int,
        seed: int,
        *problems: str | bool,
    ) -> None:
        refuse(*problems, *below_one(n_train=n_train, n_validation=n_validation, batch_size=batch_size))
        self.batch_size = batch_size
        self.vocab = symbols + N_SPECIALS
        self.tokenizer = Symbols(symbols)
        self.train = split(address(seed, "train"), n_train)
        self.validation = split(address(seed, "validation"), n_validation)

    def prepare(self, notify: Notify = silent) -> None:
        """Do nothing."""
