"""Step a model through time: the part of generation that knows how a layout reads a prompt."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from variants.blocks.cache import Cache
from variants.blocks.masks import AttentionMask

Prompts = Sequence[Sequence[int]]


class Stepper(ABC):
    """Give the logits of the next token, take the tokens that were chosen, and so on.

    Args:
        model: The model, evaluating.
        ids: What the rows begin with.
        keep: Which of them are real; None: all.
        max_new: How many tokens will be appended at most.
        use_cache: Whether to keep what earlier steps computed, or to compute everything anew at every step.
    """

    def __init__(
        self,
        model: nn.Module,
        ids: Int[Tensor, "rows time"],
        keep: Bool[Tensor, "rows time"] | None,
        max_new: int,
        use_cache: bool,
    ) -> None:
        self.model: Any = model
        self.ids, self.keep = ids, keep
        self.cache = Cache(ids.shape[1] + max_new) if use_cache else None

    @abstractmethod
    def hidden(self, ids: Int[Tensor, "rows time"], mask: AttentionMask) -> Float[Tensor, "rows time d_model"]:
        """Hidden states of these tokens, which come after what the cache holds."""

    def logits(self) -> Float[Tensor, "rows vocab"]:
        """Logits of the token after the last, in float32 at least; no other position is projected.

        Raises:
            ValueError: They are no distribution.
        """
        seen = 0 if self.cache is None else self.cache.length
        mask = AttentionMask(keep=None if self.keep is None else self.keep[:, seen:])
        x = self.hidden(self.ids[:, seen:], mask)
        logits: Tensor = self.model.head(x[:, -1:], self.model.embedding)[:, 0]
        if not bool(logits.amax(1).isfinite().all()):
            raise ValueError("the model's logits are no distribution: they hold NaN or infinity")
        return logits.to(torch.promote_types(logits.dtype, torch.float32))

    def append(self, ids: Int[Tensor, " rows"]) -> None:
        """Take one more token in every row."""
        self.ids = torch.cat((self.ids, ids[:, None]), 1)
        if self.keep is not None:
            self.keep = F.pad(self.keep, (0, 1), value=True)

    def repeat(self, n: int) -> None:
        """Make n rows of each, side by side: the beams of a prompt."""
        self.ids = self.ids.repeat_interleave(n, 0)
        self.keep = None if self.keep is None else self.keep.repeat_interleave(n, 0)
        if self.cache is not None:
            self.cache.repeat(n)

    def reorder(self, rows: Int[Tensor, " rows"]) -> None:
        """Go on from these rows, each among those of its own prompt."""
        self.ids = self.ids[rows]
        self.keep = None if self.keep is None else self.keep[rows]
        if self.cache is not None:
            self.cache.reorder(rows)


class Continuing(Stepper):
    """Continue prompts with a decoder-only model; pads stand on the left, so that all rows end where they go on."""

    def __init__(
        self, model: nn.Module, prompts: Prompts, *, max_new: int, bos: int, pad: int, use_cache: bool
    ) -> None:
        begun = [list(prompt) or [bos] for prompt in prompts]
        longest = max(map(len, begun))
        limit = limit_of(model)
        if limit is not None and longest + max_new > limit:
            raise ValueError(
                f"max_new {max_new} after a prompt of {longest} tokens makes {longest + max_new}, "
                f"but the model has {limit} positions"
            )
        super().__init__(model, *padded(begun, pad, device_of(model), left=True), max_new, use_cache)

    def hidden(self, ids: Int[Tensor, "rows time"], mask: AttentionMask) -> Float[Tensor, "rows time d_model"]:
        """Run the stack."""
        x: Tensor = self.model.hidden(ids, mask, self.cache)[0]
        return x


class Translating(Stepper):
    """Encode sources once, and decode their targets from BOS on. Beams share the memory of their source."""

    def __init__(
        self, model: nn.Module, sources: Prompts, *, max_new: int, bos: int, pad: int, use_cache: bool
    ) -> None:
        longest = max(map(len, sources))
        for side, length, what in (("encoder", longest, "a source's length"), ("decoder", max_new, "max_new")):
            limit = limit_of(getattr(model, side, None))
            if limit is not None and length > limit:
                raise ValueError(f"{what} {length} is above the {limit} positions of the {side}")
        device = device_of(model)
        super().__init__(model, torch.full((len(sources), 1), bos, device=device), None, max_new, use_cache)
        source, keep = padded(sources, pad, device)
        self.memory_mask = AttentionMask(keep=keep)
        self.memory: Tensor = self.model.encode(source, self.memory_mask)[0]

    def hidden(self, ids: Int[Tensor, "rows time"], mask: AttentionMask) -> Float[Tensor, "rows time d_model"]:
        """Run the decoder."""
        x: Tensor = self.model.decode_hidden(ids, self.memory, self.memory_mask, mask, self.cache)[0]
        return x


def stepper_of(
    model: nn.Module, prompts: Prompts, *, max_new: int, bos: int, pad: int, use_cache: bool = True
) -> Stepper:
    """The stepper of a model's layout.

    Args:
        model: A decoder-only model, or one with an encoder.
        prompts: What to continue (an empty one begins with ``bos``), or the sources.
        max_new: How many tokens will be appended at most.
        bos: What a target, or an empty prompt, begins with.
        pad: What fills rows up; which id it is does not matter.
        use_cache: Whether to keep what earlier steps computed.

    Raises:
        ValueError: The model cannot generate, or has fewer positions than it would need.
    """
    if not (hasattr(model, "hidden") and hasattr(model, "head")):
        raise ValueError(f"a model of layout {type(model).__name__} cannot generate: it has no head that gives logits")
    kind = Translating if hasattr(model, "encode") else Continuing
    return kind(model, prompts, max_new=max_new, bos=bos, pad=pad, use_cache=use_cache)


def padded(
    rows: Prompts, pad: int, device: torch.device, *, left: bool = False
) -> tuple[Int[Tensor, "rows time"], Bool[Tensor, "rows time"] | None]:
    """Rows filled up to the longest, and which of their ids are real (None: all)."""
    width = max(1, *map(len, rows)) if rows else 1
    ids = torch.full((len(rows), width), pad)
    keep = torch.zeros(len(rows), width, dtype=torch.bool)
    for i, row in enumerate(rows):
        where = slice(width - len(row), width) if left else slice(len(row))
        ids[i, where] = torch.tensor(list(row), dtype=torch.long)
        keep[i, where] = True
    return ids.to(device), None if bool(keep.all()) else keep.to(device)


def limit_of(module: nn.Module | None) -> int | None:
    """How many positions a model has; None: any number."""
    lengths = [getattr(p, "max_length", None) for m in (module.modules() if module else ()) for p in _positions(m)]
    return min((length for length in lengths if length is not None), default=None)


def _positions(module: nn.Module) -> Sequence[nn.Module]:
    positions = getattr(module, "positions", None)
    return list(positions) if isinstance(positions, nn.ModuleList) else []


def device_of(model: nn.Module) -> torch.device:
    """Where a model is."""
    return next((p.device for p in model.parameters()), torch.device("cpu"))


@contextlib.contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluate without gradients, and leave every module's mode and the random state as they were."""
    modes = [(module, module.training) for module in model.modules()]
    device = device_of(model)
    try:
        with torch.random.fork_rng([device] if device.type == "cuda" else []), torch.no_grad():
            model.eval()
            yield
    finally:
        for module, training in modes:
            module.training = training


def check_lengths(max_new: int, min_new: int) -> None:
    """Refuse limits that nothing fulfils.

    Raises:
        ValueError: ``max_new`` is below 1, or ``min_new`` not between 0 and ``max_new``.
    """
    if max_new < 1:
        raise ValueError(f"max_new must be at least 1, not {max_new}")
    if not 0 <= min_new <= max_new:
        raise ValueError(f"min_new must lie between 0 and max_new {max_new}, not at {min_new}")
