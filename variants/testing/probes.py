"""A probe: a component behind a forward of tensors alone, so that one promise serves every slot."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from variants.blocks.context import Context
from variants.blocks.embeddings import TiedEmbedding
from variants.blocks.masks import AttentionMask
from variants.blocks.positions.base import Placement
from variants.testing.base import noise
from variants.testing.examples import D_MODEL, N_HEADS, VOCAB, Example

D_HEAD = D_MODEL // N_HEADS


class Probe(nn.Module):
    """A component and what it needs around it.

    Args:
        component: What is tried.

    Attributes:
        each_row_alone: Whether dimension 0 of inputs and output is the batch.
    """

    each_row_alone: ClassVar[bool] = True

    def __init__(self, component: Any) -> None:
        super().__init__()
        self.component = component

    def inputs(self, dtype: torch.dtype = torch.float32, batch: int = 2, time: int = 6) -> tuple[Tensor, ...]:
        """Tensors to try it on."""
        return (noise(batch, time, D_MODEL, dtype=dtype),)

    def forward(self, x: Tensor) -> Tensor:
        """The component's output."""
        y: Tensor = self.component(x)
        return y


class MixerProbe(Probe):
    """A mixer in a decoder; in an encoder, if it refuses causality by a ValueError."""

    def __init__(self, component: Any) -> None:
        super().__init__(component)
        self.causal = True
        try:
            with torch.no_grad():
                self.component(noise(1, 2, D_MODEL), Context(AttentionMask(causal=True)))
        except ValueError:
            self.causal = False

    def forward(self, x: Tensor) -> Tensor:
        """Causally, if it serves a decoder."""
        y: Tensor = self.component(x, Context(AttentionMask(causal=self.causal)))
        return y


class CrossProbe(Probe):
    """A cross mixer and a memory."""

    def inputs(self, dtype: torch.dtype = torch.float32, batch: int = 2, time: int = 6) -> tuple[Tensor, ...]:
        """Targets and a memory of another length."""
        x, memory = noise(batch, time, D_MODEL, dtype=dtype), noise(batch, time + 2, D_MODEL, seed=1, dtype=dtype)
        return x, memory

    def forward(self, x: Tensor, memory: Tensor) -> Tensor:  # type: ignore[override]
        """All of the memory is seen."""
        y: Tensor = self.component(x, Context(AttentionMask(causal=True), memory=memory))
        return y


class KernelProbe(Probe):
    """A kernel under causality, two query heads to a key head."""

    def inputs(self, dtype: torch.dtype = torch.float32, batch: int = 2, time: int = 6) -> tuple[Tensor, ...]:
        """Queries, keys and values."""
        q = noise(batch, N_HEADS, time, D_HEAD, dtype=dtype)
        k, v = (noise(batch, N_HEADS // 2, time, D_HEAD, seed=s, dtype=dtype) for s in (1, 2))
        return q, k, v

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:  # type: ignore[override]
        """Causally."""
        y: Tensor = self.component(q, k, v, AttentionMask(causal=True))
        return y


class PositionProbe(Probe):
    """A position in the place where it acts."""

    def forward(self, x: Tensor) -> Tensor:
        """What it does to an input, to queries and to scores of 0, side by side."""
        batch, time, _ = x.shape
        positions = torch.arange(time, device=x.device).expand(batch, time)
        placed = self.component.input(x, positions)
        place: Placement = self.component.place(positions, positions)
        turned = place.turn(x.view(batch, time, N_HEADS, D_HEAD).transpose(1, 2), "q").transpose(1, 2).flatten(2)
        scores = x.new_zeros(batch, time, time) if place.bias is None else place.bias.sum(1).expand(batch, time, time)
        added = torch.zeros_like(x) if place.add is None else place.add.to(x.dtype).expand_as(x)
        return torch.cat((placed, turned, scores.to(x.dtype), added), -1)


class ResidualProbe(Probe):
    """A residual and two branches that learn."""

    def __init__(self, component: Any) -> None:
        super().__init__(component)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1)
            self.branches = nn.ModuleList(nn.Linear(D_MODEL, D_MODEL, bias=False) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        """From a stack's input to its output, by one layer."""
        y: Tensor = self.component.leave(self.component(self.component.enter(x), *self.branches))
        return y


class EmbeddingProbe(Probe):
    """An embedding, there and back."""

    def inputs(self, dtype: torch.dtype = torch.float32, batch: int = 2, time: int = 6) -> tuple[Tensor, ...]:
        """Ids."""
        return (ids_of(batch, time),)

    def forward(self, ids: Tensor) -> Tensor:
        """The logits of its own vectors."""
        logits: Tensor = self.component.unembed(self.component(ids))
        return logits


class HeadProbe(Probe):
    """A head and the embedding that it projects on."""

    def __init__(self, component: Any) -> None:
        super().__init__(component)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1)
            self.embedding = TiedEmbedding(VOCAB, D_MODEL).requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        logits: Tensor = self.component(x, self.embedding)
        return logits


class LayoutProbe(Probe):
    """A whole model."""

    @property
    def pairs(self) -> bool:
        """Whether it reads a source besides."""
        return hasattr(self.component, "encode")

    def inputs(self, dtype: torch.dtype = torch.float32, batch: int = 2, time: int = 6) -> tuple[Tensor, ...]:
        """Ids, and a source of another length before them."""
        ids = ids_of(batch, time)
        return (ids_of(batch, time + 2, seed=1), ids) if self.pairs else (ids,)

    def forward(self, *ids: Tensor) -> Tensor:
        """Logits, or the hidden states of a model without a head."""
        output = self.component(*ids)
        y: Tensor = output if isinstance(output, Tensor) else output.logits
        return y


def ids_of(batch: int, time: int, seed: int = 0) -> Tensor:
    """Ids, the same at every call."""
    return torch.randint(0, VOCAB, (batch, time), generator=torch.Generator().manual_seed(seed))


PROBES: dict[str, type[Probe]] = {
    "mixer": MixerProbe,
    "cross": CrossProbe,
    "kernel": KernelProbe,
    "position": PositionProbe,
    "norm": Probe,
    "residual": ResidualProbe,
    "feedforward": Probe,
    "embedding": EmbeddingProbe,
    "head": HeadProbe,
    "layout": LayoutProbe,
}


def probe(example: Example, **changes: Any) -> Probe:
    """An example behind its slot's probe, in the example's mode."""
    return PROBES[example.slot.name](example(**changes)).train(example.training)
