"""An estimate of the memory that training holds at its peak, from a forward pass that computes nothing."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd.graph import saved_tensors_hooks
from torch.multiprocessing.reductions import StorageWeakRef

from variants.errors import ConfigError
from variants.models.assembly import assemble
from variants.models.stack import Stack

# What a parameter is held as: itself, its gradient, and the two moments of Adam.
COPIES = 4


def peak_bytes(
    model: Mapping[str, Any],
    known: Mapping[str, Any],
    batch: int,
    time: int,
    source: int | None = None,
    precision: str = "32-true",
) -> int:
    """Parameters, gradients, Adam's moments, what the layers keep for the backward pass, and a chunk of logits.

    The layers run on fake tensors, which have shapes and no values, while hooks count what autograd keeps; a component
    from outside is counted like the project's own. The process itself (torch, the data) is not counted.

    Args:
        model: A config of a model.
        known: What the surroundings know; see `Assembly`.
        batch: Sequences of a micro-batch.
        time: Target tokens of a sequence.
        source: Source tokens of a sequence, in an encoder-decoder.
        precision: Lightning's name.

    Returns:
        Bytes, on one device without sharding.

    Raises:
        ConfigError: There are more than 64 bits can count.
    """
    logger = logging.getLogger("torch._subclasses.fake_tensor")  # would print a traceback of its own
    was, logger.disabled = logger.disabled, True
    try:
        return _peak_bytes(model, known, batch, time, source, precision)
    except RuntimeError as error:
        if "overflow" not in str(error).lower():
            raise
        sequences = f"{batch} sequences of {time} tokens"
        raise ConfigError([f"data: a micro-batch of {sequences} is too large for a model of this size"]) from None
    finally:
        logger.disabled = was


def _peak_bytes(
    model: Mapping[str, Any],
    known: Mapping[str, Any],
    batch: int,
    time: int,
    source: int | None,
    precision: str,
) -> int:
    held = _held(model, known, batch, time, source, precision)
    if not held.recomputed:
        return held.weights + held.activations + held.logits
    # What enters a recomputed layer is kept. In the backward pass one layer at a time has all its activations, which
    # matters where it is the last: before another one, those of the layers behind it are free.
    whole = _held(model, {**known, "checkpoint_every": 0}, batch, time, source, precision).activations
    one = (whole - held.activations) // held.recomputed if held.last_recomputed else 0
    return held.weights + held.activations + held.recomputed * held.stream + max(one, held.logits)


class _Held(NamedTuple):
    """Bytes, the number of layers that are recomputed, whose activations are left out, and whether the last is."""

    weights: int
    activations: int
    logits: int
    stream: int
    recomputed: int
    last_recomputed: bool


def _held(
    model: Mapping[str, Any],
    known: Mapping[str, Any],
    batch: int,
    time: int,
    source: int | None,
    precision: str,
) -> _Held:
    kept: dict[Any, int] = {}

    def keep(t: Tensor) -> Tensor:
        storage = t.untyped_storage()
        kept[_key(storage)] = storage.nbytes()
        return t

    mixed = precision == "bf16-mixed"
    default = torch.get_default_dtype()
    with FakeTensorMode():
        torch.set_default_dtype(torch.bfloat16 if precision == "bf16-true" else default)
        try:
            built: nn.Module = assemble(model, on="cpu", **known).train()
        finally:
            torch.set_default_dtype(default)
        weights = {_key(p.untyped_storage()) for p in built.parameters()}
        ids = torch.zeros(batch, time, dtype=torch.long)
        sources = () if source is None else (torch.zeros(batch, source, dtype=torch.long),)
        with saved_tensors_hooks(keep, lambda t: t), torch.autocast("cpu", torch.bfloat16) if mixed else nullcontext():
            x, _ = built.hidden(*sources, ids)  # type: ignore[operator]
        every = [(m.checkpoint_every, len(m.order)) for m in built.modules() if isinstance(m, Stack)]
        return _Held(
            COPIES * sum(p.numel() * p.element_size() for p in built.parameters()),
            sum(size for storage, size in kept.items() if storage not in weights),
            _logits_bytes(built, x),
            x.numel() * x.element_size(),
            sum(len(range(0, depth, n)) for n, depth in every if n),
            any((depth - 1) % n == 0 for n, depth in every if n),
        )


def _key(storage: torch.UntypedStorage) -> Any:
    return StorageWeakRef(storage)  # type: ignore[no-untyped-call]


def _logits_bytes(model: nn.Module, x: Tensor) -> int:
    """A chunk's logits, their log-probabilities and the gradient, all in float32."""
    head = getattr(model, "head", None)
    if head is None:
        return 0
    vocab = int(head(x[:1, :1], model.embedding).shape[-1])
    chunk = min(getattr(head, "chunk", x.shape[0] * x.shape[1]), x.shape[0] * x.shape[1])
    return 3 * 4 * chunk * vocab
