"""The order of the examples, as a pure function of the seed and the batch's number."""

from __future__ import annotations

import functools
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray


def address(*parts: object) -> int:
    """Hash what a draw is for to 64 bits, so that draws for different things are independent.

    >>> address("order", 1, 2) == address("order", 12, "")
    False
    """
    return int.from_bytes(blake2b(repr(parts).encode(), digest_size=8).digest(), "little")


@functools.lru_cache(maxsize=2)  # a batch may straddle two epochs
def permutation(seed: int, epoch: int, n_examples: int) -> NDArray[np.int64]:
    """Shuffle the examples for one epoch.

    Sorts random words, since only a generator's raw words are the same in every version of NumPy. Needs 16 bytes an
    example while it works and 8 after: fine up to about 1e8 examples.
    """
    words = np.random.PCG64(address("order", seed, epoch)).random_raw(n_examples)
    places = np.argsort(words, kind="stable")
    places.setflags(write=False)
    return places


def indices(seed: int, k: int, n_examples: int, batch_size: int) -> NDArray[np.int64]:
    """The examples of batch ``k``: every example once an epoch, in an order of that epoch's own.

    The stream of examples is cut into batches wherever an epoch ends: none is dropped, no batch is short.

    Args:
        seed: Of the order.
        k: The batch's number, from 0, never reset.
        n_examples: Examples of an epoch.
        batch_size: Examples of a batch.

    >>> sorted([*indices(0, 0, 4, 2), *indices(0, 1, 4, 2)])
    [np.int64(0), np.int64(1), np.int64(2), np.int64(3)]
    """
    stream = np.arange(k * batch_size, (k + 1) * batch_size)
    epochs, places = np.divmod(stream, n_examples)
    parts = [permutation(seed, int(epoch), n_examples)[places[epochs == epoch]] for epoch in np.unique(epochs)]
    return np.concatenate(parts)


def stripe(rows: NDArray[np.int64], rank: int, world: int) -> NDArray[np.int64]:
    """A rank's share of a batch: every ``world``-th row from ``rank`` on.

    Raises:
        ValueError: The ranks' shares would differ in size.
    """
    check_world(len(rows), world)
    return rows[rank::world]


def check_world(batch_size: int, world: int) -> None:
    """Refuse a batch that the ranks cannot share evenly.

    Raises:
        ValueError: ``batch_size`` is no multiple of ``world``.
    """
    if batch_size % world:
        raise ValueError(f"batch_size={batch_size}: must be a multiple of the {world} data-parallel ranks")
