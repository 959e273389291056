"""A layer and a stack of layers, the body of every model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from variants.blocks.cache import Cache
from variants.blocks.context import Context
from variants.blocks.masks import AttentionMask, positions_of
from variants.blocks.positions.base import Placement, Position
from variants.blocks.residuals.base import Residual

Losses = dict[str, Float[Tensor, ""]]


class Layer(nn.Module):
    """Join a mixer, a cross mixer where there is one, and a feed-forward by a residual.

    Args:
        mixer: Moves information along time.
        cross: Moves information from the memory; None in an encoder and in a decoder-only model.
        feedforward: Works on each position alone.
        residual: Joins the branches to the stream.
        dropout: Rate on every branch's output.
    """

    def __init__(
        self,
        mixer: nn.Module,
        cross: nn.Module | None,
        feedforward: nn.Module,
        residual: Residual,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.mixer, self.cross, self.feedforward = mixer, cross, feedforward
        self.residual = residual
        self.dropout = nn.Dropout(dropout)

    @property
    def parts(self) -> list[nn.Module]:
        """The branches, in the order in which they run."""
        return [part for part in (self.mixer, self.cross, self.feedforward) if part is not None]

    def forward(
        self, x: Float[Tensor, "*streams batch time d_model"], context: Context
    ) -> Float[Tensor, "*streams batch time d_model"]:
        """Run the layer on the stream."""
        branches = [partial(self._branch, part, context) for part in self.parts]
        joined: Tensor = self.residual(x, *branches)
        return joined

    def _branch(
        self, part: nn.Module, context: Context, x: Float[Tensor, "batch time d_model"]
    ) -> Float[Tensor, "batch time d_model"]:
        dropped: Tensor = self.dropout(part(x, context))
        return dropped


class Stack(nn.Module):
    """Run layers one after another; own the positions, and the norm at the end where the residual needs one.

    Args:
        layers: Each layer once, however often it runs.
        norm: Makes the final norm; None: there is none.
        order: For every depth, the index of the layer that runs there; None: each once.
        positions: The distinct positions of the stack; each acts on the input once.
        position_of: For every depth, the index of its position; None: the first.
        dropout: Rate on the stack's input, after the positions.
        checkpoint_every: Recompute every n-th layer in the backward pass instead of keeping its activations; 0: none.
    """

    def __init__(
        self,
        layers: Sequence[Layer],
        norm: Callable[[], nn.Module] | None,
        *,
        order: Sequence[int] | None = None,
        positions: Sequence[Position] = (),
        position_of: Sequence[int] | None = None,
        dropout: float = 0.0,
        checkpoint_every: int = 0,
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.order = list(range(len(layers)) if order is None else order)
        self.positions = nn.ModuleList(positions)
        self.position_of = [0] * len(self.order) if position_of is None else list(position_of)
        self.dropout = nn.Dropout(dropout)
        self.norm = norm() if norm is not None and layers[0].residual.final_norm else nn.Identity()
        self.checkpoint_every = checkpoint_every

    def forward(
        self,
        x: Float[Tensor, "batch time d_model"],
        mask: AttentionMask | None = None,
        *,
        memory: Float[Tensor, "sources source d_model"] | None = None,
        memory_mask: AttentionMask | None = None,
        cache: Cache | None = None,
    ) -> tuple[Float[Tensor, "batch time d_model"], Losses]:
        """Give the hidden states, and what the layers add to the loss.

        Args:
            x: Embedded tokens: all of them, or those after what the cache holds.
            mask: Over x; the cache adds what it knows of earlier tokens.
            memory: The encoder's output, for stacks with a cross mixer.
            memory_mask: Over the memory.
            cache: This stack's memory of earlier chunks; used under ``torch.no_grad()``.

        Raises:
            ValueError: A mask is of another length than what it is for, or the cache is full.
        """
        mask, memory_mask = mask or AttentionMask(), memory_mask or AttentionMask()
        batch, time, _ = x.shape
        mask.fits(time)
        if cache is not None:
            mask = cache.extend(mask, batch, time, x.device)
        key_positions = positions_of(mask, time if cache is None else cache.length, x.device)
        positions = key_positions[:, -time:]
        placed = cast("list[Position]", list(self.positions))
        for position in placed:
            x = position.input(x, positions)
        x = mask.blank(self.dropout(x))
        if memory is not None:
            memory_mask.fits(memory.shape[1])
            memory = memory_mask.blank(memory)
        if memory_mask.documents is not None and mask.documents is not None:
            memory_mask = replace(memory_mask, query_documents=mask.documents[:, -time:])
        # Once a forward and outside every checkpoint: a learned bias has one owner, and its gradient sums over layers.
        places = [position.place(positions, key_positions) for position in placed] or [Placement()]
        losses: Losses = {}
        residual = cast("Layer", self.layers[0]).residual
        x = residual.enter(x)
        for depth, index in enumerate(self.order):
            context = Context(mask, places[self.position_of[depth]], memory, memory_mask, cache, depth)
            if self._recomputes(depth, cache):
                x, added = checkpoint(_run, self.layers[index], x, context, use_reentrant=False)
            else:
                x, added = _run(self.layers[index], x, context)
            add_up(losses, added)
        hidden: Tensor = self.norm(residual.leave(x))
        return hidden, losses

    def _recomputes(self, depth: int, cache: Cache | None) -> bool:
        if not self.checkpoint_every or cache is not None or not torch.is_grad_enabled():
            return False
        return self.training and depth % self.checkpoint_every == 0


def _run(layer: nn.Module, x: Tensor, context: Context) -> tuple[Tensor, Losses]:
    """Run a layer; the losses that it adds leave as outputs, so that those of a recomputation are dropped."""
    context = replace(context, losses={})
    return layer(x, context), context.losses


def add_up(losses: Losses, added: Losses) -> Losses:
    """Add losses to those of the same name, in place."""
    for name, value in added.items():
        losses[name] = losses[name] + value if name in losses else value
    return losses
