"""What a stack remembers between two calls: keys and values, recurrent states, and the facts about keys.

Slots are keyed by depth and branch, not by module: shared layers run one module at every depth. Batch is dimension 0 of
every tensor, time is dimension -2 of what grows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import torch
from jaxtyping import Int
from torch import Tensor

from variants.blocks.masks import AttentionMask

Branch = Literal["mixer", "cross"]


class Slot:
    """What one branch at one depth remembers.

    Args:
        capacity: How many tokens the cache can hold.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.grown: list[Tensor] = []
        self.end = 0
        self.state: tuple[Tensor, ...] | None = None
        self._fixed: tuple[Tensor, ...] | None = None

    def append(self, *new: Tensor, window: int | None = None) -> tuple[Tensor, ...]:
        """Add the new tokens' tensors and give all that a query may need, contiguous and in order.

        Under a window the slot is a sliding buffer of twice the window, compacted once in a window's steps: order and
        contiguity are kept, so masks and biases need no map of slots.

        Raises:
            ValueError: Gradients are on, or the cache is full.
        """
        if torch.is_grad_enabled() and any(t.requires_grad for t in new):
            raise ValueError("a cache is used under torch.no_grad(): it would keep every step's graph")
        n = new[0].shape[-2]
        size = self.capacity if window is None else min(self.capacity, 2 * window)
        if not self.grown:
            self.grown = [t.new_zeros(*t.shape[:-2], size, t.shape[-1]) for t in new]
        if self.end + n > size:
            if window is None:
                raise ValueError(f"the cache holds {size} tokens: {self.end} are there and {n} more do not fit")
            return self._slide(new, window, size)
        return self._write(new, window)

    def _write(self, new: tuple[Tensor, ...], window: int | None) -> tuple[Tensor, ...]:
        n = new[0].shape[-2]
        for buffer, t in zip(self.grown, new, strict=True):
            buffer[..., self.end : self.end + n, :] = t
        self.end += n
        first = 0 if window is None else max(0, self.end - n - (window - 1))
        return tuple(buffer[..., first : self.end, :] for buffer in self.grown)

    def _slide(self, new: tuple[Tensor, ...], window: int, size: int) -> tuple[Tensor, ...]:
        n = new[0].shape[-2]
        held = min(self.end, window - 1)  # what a window still needs
        old = [buffer[..., self.end - held : self.end, :].clone() for buffer in self.grown]
        if held + n > size:  # a chunk longer than the buffer
            full = tuple(torch.cat(pair, -2) for pair in zip(old, new, strict=True))
            self.end = min(held + n, window)
            for buffer, whole in zip(self.grown, full, strict=True):
                buffer[..., : self.end, :] = whole[..., -self.end :, :]
            return full
        for buffer, kept in zip(self.grown, old, strict=True):
            buffer[..., :held, :] = kept
        self.end = held
        return self._write(new, window)

    def once(self, make: Callable[[], tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
        """The memory's tensors: made at the first call, and never reordered."""
        if self._fixed is None:
            self._fixed = make()
        return self._fixed

    def map(self, function: Callable[[Tensor], Tensor]) -> None:
        """Apply a function of rows to what grows and to the state."""
        self.grown = [function(t) for t in self.grown]
        if self.state is not None:
            self.state = tuple(function(t) for t in self.state)


class Cache:
    """One stack's memory.

    Args:
        capacity: How many tokens it can hold, pads included.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.length = 0
        self.slots: dict[tuple[int, Branch], Slot] = {}
        self._facts: dict[str, Tensor] = {}

    def slot(self, depth: int, branch: Branch) -> Slot:
        """The memory of one branch at one depth."""
        return self.slots.setdefault((depth, branch), Slot(self.capacity))

    def extend(self, mask: AttentionMask, batch: int, time: int, device: torch.device) -> AttentionMask:
        """Take a chunk's mask and give the mask over all keys; called once a forward, by the stack.

        Raises:
            ValueError: The chunk does not fit, or brings a second part of a prefix.
        """
        if self.length + time > self.capacity:
            raise ValueError(
                f"the cache holds {self.capacity} tokens: {self.length} are there and {time} more do not fit"
            )
        full: dict[str, Tensor] = {}
        for name, fill in (("keep", True), ("documents", 0), ("prefix", False)):
            old, new = self._facts.get(name), getattr(mask, name)
            if name == "prefix" and new is not None and self.length and bool(new.any()):
                raise ValueError("a prefix must come in one chunk")
            if old is None and new is None:
                continue
            dtype = (new if new is not None else old).dtype  # type: ignore[union-attr]
            if old is None:
                old = torch.full((batch, self.length), fill, dtype=dtype, device=device)
            if new is None:
                same_document = name == "documents" and old.shape[1] > 0
                new = (
                    old[:, -1:].expand(batch, time)
                    if same_document
                    else torch.full((batch, time), fill, dtype=dtype, device=device)
                )
            full[name] = self._facts[name] = torch.cat((old, new), 1)
        self.length += time
        return replace(mask, **full)  # type: ignore[arg-type]  # its tensors alone are replaced

    def repeat(self, n: int) -> None:
        """Repeat each row n times: after the prefill, before the beams."""
        self._map(lambda t: t.repeat_interleave(n, 0))

    def reorder(self, rows: Int[Tensor, " batch"]) -> None:
        """Take these rows; what was computed ``once`` is not touched."""
        self._map(lambda t: t.index_select(0, rows))

    def _map(self, function: Callable[[Tensor], Tensor]) -> None:
        for slot in self.slots.values():
            slot.map(function)
        self._facts = {name: function(fact) for name, fact in self._facts.items()}
