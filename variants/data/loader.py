"""Whole batches by their number: what a worker fetches, and which numbers a run asks for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, Sampler

from variants.data.base import IGNORED, Batch, Split
from variants.data.order import check_world, indices, stripe


class Batches(Dataset[Batch]):
    """A rank's stripe of every training batch; item ``k`` is a function of (seed, k) alone and holds ``index`` k.

    Args:
        split: The examples.
        seed: Of the order.
        batch_size: Examples of a batch over all ranks.
        rank: Which stripe, among the data-parallel ranks.
        world: How many data-parallel ranks there are.

    Raises:
        ValueError: ``batch_size`` is no multiple of ``world``.
    """

    def __init__(self, split: Split, seed: int, batch_size: int, rank: int = 0, world: int = 1) -> None:
        check_world(batch_size, world)
        self.split, self.seed, self.batch_size, self.rank, self.world = split, seed, batch_size, rank, world

    def __getitem__(self, k: int) -> Batch:
        rows = stripe(indices(self.seed, k, len(self.split), self.batch_size), self.rank, self.world)
        return {**self.split.batch(rows.tolist()), "index": k}


class Pass(Dataset[Batch]):
    """A rank's stripe of one pass over a split in its own order: every example once, over all ranks.

    The last batch may be short. A rank that has no row of it takes part with a row whose targets are all ignored, so
    that every rank does the same number of steps.

    Args:
        split: The examples.
        batch_size: Examples of a batch over all ranks.
        rank: Which stripe, among the data-parallel ranks.
        world: How many data-parallel ranks there are.
    """

    def __init__(self, split: Split, batch_size: int, rank: int = 0, world: int = 1) -> None:
        self.split, self.batch_size, self.rank, self.world = split, batch_size, rank, world

    def __len__(self) -> int:
        return -(-len(self.split) // self.batch_size)

    def __getitem__(self, k: int) -> Batch:
        rows = np.arange(k * self.batch_size, min((k + 1) * self.batch_size, len(self.split)))
        own = rows[self.rank :: self.world].tolist()
        if own:
            return {**self.split.batch(own), "index": k}
        batch = self.split.batch(rows[:1].tolist())
        return {**batch, "targets": torch.full_like(batch["targets"], IGNORED), "index": k}


class Span(Sampler[int]):
    """The numbers from ``start`` up to ``stop``, of a run that counts from 0.

    Its length is that of the whole run, not of what is left: Lightning adds the batches that a checkpoint has seen to
    those that it fetches, and ends the epoch where the sum reaches the length.
    """

    def __init__(self, start: int, stop: int) -> None:
        self.start, self.stop = start, stop

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.start, self.stop))

    def __len__(self) -> int:
        return self.stop


class Loader(DataLoader[Batch]):
    """Whole batches through torch's loader. Its position is the sampler's start, so that it has no state to save.

    Args:
        batches: `Batches` or `Pass`.
        numbers: Which to fetch, in order; None: all.
        num_workers: Processes that fetch; they change nothing but the speed.
    """

    def __init__(self, batches: Dataset[Batch], numbers: Span | None = None, num_workers: int = 0) -> None:
        super().__init__(
            batches,
            batch_size=None,
            sampler=numbers,
            num_workers=num_workers,
            persistent_workers=num_workers > 0 and numbers is None,
            generator=torch.Generator(),  # else every pass would draw a number from the global generator
        )

    def state_dict(self) -> dict[str, Any]:
        """Nothing; that it is there tells Lightning that a run may resume in the middle of an epoch."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Do nothing: the loader was made for the step at which the run resumes."""
