"""Every slot, what each of its choices promises, and the shape of a choice as a protocol.

``B`` is the batch, ``L`` the new tokens, ``S`` all keys; ``blocks/context.py`` says what a part is told besides x.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from variants.registry import Slot

if TYPE_CHECKING:
    from variants.blocks.context import Context
    from variants.blocks.masks import AttentionMask

Batch = dict[str, Any]


@runtime_checkable
class Part(Protocol):
    """``part(x, context)``: (B, L, d_model) to the same."""

    def __call__(self, x: Tensor, context: Context | None = None) -> Tensor: ...


@runtime_checkable
class Mixer(Part, Protocol):
    """Moves information along time."""


@runtime_checkable
class Cross(Part, Protocol):
    """Moves information from the encoder's memory."""


@runtime_checkable
class Feedforward(Part, Protocol):
    """Works on each position alone."""


@runtime_checkable
class Kernel(Protocol):
    """``kernel(q, k, v, mask)``: (B, heads, L, d_head) and (B, kv_heads, S, d_head) to (B, heads, L, d_value)."""

    def __call__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: AttentionMask,
        *,
        bias: Tensor | None = None,
        scale: float | None = None,
        dropout: float = 0.0,
    ) -> Tensor: ...


@runtime_checkable
class Position(Protocol):
    """``place(positions, key_positions)`` gives a placement; ``input(x, positions)`` acts on the input."""

    def input(self, x: Tensor, positions: Tensor) -> Tensor: ...
    def place(self, positions: Tensor, key_positions: Tensor) -> Any: ...


@runtime_checkable
class Norm(Protocol):
    """``norm(x)``: (..., width) to the same."""

    def __call__(self, x: Tensor) -> Tensor: ...


@runtime_checkable
class Residual(Protocol):
    """``residual(x, *branches)``: joins branches to the stream."""

    def __call__(self, x: Tensor, *branches: Callable[[Tensor], Tensor]) -> Tensor: ...


@runtime_checkable
class Embedding(Protocol):
    """``embedding(ids)`` and its other direction, ``embedding.unembed(x)``."""

    def __call__(self, ids: Tensor) -> Tensor: ...
    def unembed(self, x: Tensor) -> Tensor: ...


@runtime_checkable
class Head(Protocol):
    """``head(x, embedding)`` gives logits, ``head.loss(x, targets, embedding)`` the summed loss and its count."""

    def __call__(self, x: Tensor, embedding: Any) -> Tensor: ...
    def loss(self, x: Tensor, targets: Tensor, embedding: Any, label_smoothing: float = 0.0) -> Any: ...


@runtime_checkable
class Sharing(Protocol):
    """``sharing(n_layers)``: for every depth, the index of the layer that runs there."""

    def __call__(self, n_layers: int) -> Sequence[int]: ...


@runtime_checkable
class Initialiser(Protocol):
    """``initialiser(address, generator)``: the initial value of a matrix."""

    def __call__(self, address: Any, generator: torch.Generator) -> Tensor: ...


@runtime_checkable
class Layout(Protocol):
    """A whole model; its ``assemble`` says which embeddings, stacks and heads it is made of."""

    @classmethod
    def assemble(cls, assembly: Any) -> Any: ...


@runtime_checkable
class Data(Protocol):
    """Examples by index; ``variants/data/base.py`` has the whole interface."""

    def prepare(self) -> None: ...


@runtime_checkable
class Objective(Protocol):
    """``objective(model, batch)``: the summed loss and the number of targets."""

    def __call__(self, model: nn.Module, batch: Batch) -> Any: ...


@runtime_checkable
class Optimiser(Protocol):
    """``optimiser(parameter groups)`` gives a torch optimiser."""

    def __call__(self, groups: Iterable[dict[str, Any]]) -> torch.optim.Optimizer: ...


@runtime_checkable
class Schedule(Protocol):
    """``schedule(step)``: the learning rate of an update, counted from 1."""

    def __call__(self, step: int) -> float: ...


@runtime_checkable
class Callback(Protocol):
    """A Lightning callback."""


@runtime_checkable
class Logger(Protocol):
    """A Lightning logger."""


@runtime_checkable
class Strategy(Protocol):
    """A Lightning strategy."""


@runtime_checkable
class Launcher(Protocol):
    """``launcher(jobs, watch)``: carries out runs; ``variants/ablation/launch/base.py`` has the whole interface."""

    def __call__(self, jobs: Sequence[Any], watch: Callable[[], bool]) -> None: ...


_B, _T = "variants.blocks", "variants.training"
layouts = Slot("layout", "a whole model, out of the other slots' choices", Layout, "variants.models", by="assemble")
mixers = Slot(
    "mixer",
    "(batch, time, d_model) to the same; reads only where the mask allows; works with a cache",
    Mixer,
    f"{_B}.mixers",
)
crosses = Slot("cross", "the decoder reads the encoder's memory", Cross, f"{_B}.crosses")
kernels = Slot("kernel", "the same numbers as `math`, within tolerance, forward and backward", Kernel, f"{_B}.kernels")
positions = Slot("position", "acts in one of four places, and nowhere else", Position, f"{_B}.positions")
norms = Slot("norm", "each position alone; shape and dtype kept", Norm, f"{_B}.norms")
residuals = Slot("residual", "joins branches to the stream", Residual, f"{_B}.residuals")
feedforwards = Slot("feedforward", "each position alone", Feedforward, f"{_B}.feedforwards")
embeddings = Slot("embedding", "ids to vectors", Embedding, f"{_B}.embeddings")
heads = Slot("head", "hidden states to logits", Head, f"{_B}.heads")
sharings = Slot("sharing", "which layers own weights", Sharing, f"{_B}.sharings")
initialisers = Slot(
    "initialiser", "a parameter's value from its name, shape and depth", Initialiser, f"{_B}.initialisers"
)
data = Slot("data", "batch k is a function of (seed, k)", Data, "variants.data")
objectives = Slot("objective", "a batch to a summed loss and the number of targets", Objective, f"{_T}.objectives")
optimisers = Slot("optimiser", "one update from the gradients", Optimiser, f"{_T}.optimisers")
schedules = Slot("schedule", "the learning rate of an update, never 0 at the first", Schedule, f"{_T}.schedules")
callbacks = Slot("callback", "a Lightning callback, for trainer.callbacks", Callback)
loggers = Slot("logger", "a Lightning logger, for trainer.loggers", Logger)
strategies = Slot("strategy", "a Lightning strategy, for trainer.strategy", Strategy)
launchers = Slot(
    "launcher", "a process for each run, whose death harms no other run", Launcher, "variants.ablation.launch"
)
