"""Runs of tokens that share a recurrent state, so that one packed call serves pads and documents."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

from variants.blocks.masks import AttentionMask, starts_of


class Segments(NamedTuple):
    """The real tokens of each row's documents as sequences of their own.

    Attributes:
        row: In which row a segment lies.
        continues: Whether it begins in the state that its row came with.
        length: Its real tokens; 0 where all are pads.
        of: Every token's segment.
        rank: Real tokens of its segment up to a token, itself included.
        keep: Which tokens are real.
    """

    row: Int[Tensor, " segments"]
    continues: Bool[Tensor, " segments"]
    length: Int[Tensor, " segments"]
    of: Int[Tensor, "batch time"]
    rank: Int[Tensor, "batch time"]
    keep: Bool[Tensor, "batch time"]

    def pack(self, x: Float[Tensor, "batch time d"]) -> PackedSequence:
        """The segments' real tokens; a segment without any is given one of zeros."""
        longest = max(1, int(self.length.max()))
        padded = x.new_zeros(len(self.length), longest, x.shape[-1])
        padded = padded.index_put((self.of[self.keep], self.rank[self.keep] - 1), x[self.keep])
        return pack_padded_sequence(padded, self.length.clamp(min=1).cpu(), batch_first=True, enforce_sorted=False)


def segments_of(mask: AttentionMask, batch: int, time: int, device: torch.device) -> Segments:
    """The segments of the last ``time`` tokens: a document begins one, and so does a row."""
    keep = torch.ones(batch, time, dtype=torch.bool, device=device) if mask.keep is None else mask.keep[:, -time:]
    fresh = torch.zeros_like(keep) if mask.documents is None else starts_of(mask.documents)[:, -time:]
    number = torch.arange(batch, device=device)[:, None] * (time + 1) + fresh.long().cumsum(1)
    numbers, of = torch.unique(number, return_inverse=True)
    real = keep.long()
    length = torch.zeros_like(numbers).scatter_add_(0, of.flatten(), real.flatten())
    count = real.cumsum(1)
    before = torch.where(fresh, count - real, 0).cummax(1).values
    return Segments(numbers // (time + 1), numbers % (time + 1) == 0, length, of, count - before, keep)
