"""All that a part is told besides its input, and the contract of a part."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from variants.blocks.cache import Branch, Cache, Slot
from variants.blocks.masks import AttentionMask
from variants.blocks.positions.base import Placement


@dataclass
class Context:
    """Made afresh by the stack for every layer call. A part reads it, and changes only its slot and the losses.

    Besides its call, a part may declare, as class variables:

    - ``parallel``: child to its role under tensor parallelism: ``column``, ``row``, ``per_head``, ``enter``, ``heads``;
    - ``writes``: the children whose output is added to the stream (``depth_scaled`` starts them smaller);
    - ``initial``: the values of its own parameters that are constants;
    - ``reads``: the places of a placement that it uses: ``add``, ``turn``, ``bias``;
    - ``flops(n_query, n_key)``: its multiply-adds times two, if not those of its matrices used once a token.

    Args:
        mask: Over all keys, the cached included.
        place: What the position does in this forward.
        memory: The encoder's output.
        memory_mask: Over the memory.
        cache: The stack's memory of earlier chunks.
        depth: At which depth the part runs; shared layers run at several.
        losses: What parts add to the loss, by name.
    """

    # torch.compile traces a function that makes a default, and no class that does.
    mask: AttentionMask = field(default_factory=lambda: AttentionMask())
    place: Placement = field(default_factory=lambda: Placement())
    memory: Float[Tensor, "sources source d_model"] | None = None
    memory_mask: AttentionMask = field(default_factory=lambda: AttentionMask())
    cache: Cache | None = None
    depth: int = 0
    losses: dict[str, Float[Tensor, ""]] = field(default_factory=dict)

    def slot(self, branch: Branch) -> Slot | None:
        """The cache of this branch at this depth, if there is a cache."""
        return None if self.cache is None else self.cache.slot(self.depth, branch)

    def add_loss(self, name: str, value: Float[Tensor, ""]) -> None:
        """Add to the loss, per target token, of which pads are none; parts at several depths add up under one name."""
        self.losses[name] = value + self.losses.get(name, torch.zeros_like(value))
