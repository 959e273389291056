"""What an embedding is: the owner of both directions, ids to vectors and vectors to logits."""

from __future__ import annotations

from typing import ClassVar

import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn


class Scale(nn.Module):
    """Multiply by a constant.

    Args:
        factor: The constant.
    """

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Multiply."""
        return x * self.factor


class Unembed(nn.Module):
    """Project on a matrix that somebody else owns: a place for hooks, without parameters of its own."""

    def forward(
        self, x: Float[Tensor, "*batch d_model"], weight: Float[Tensor, "vocab d_model"]
    ) -> Float[Tensor, "*batch vocab"]:
        """Project: ``x weight'``."""
        return F.linear(x, weight)


class Embedding(nn.Module):
    """Own a table of vectors, and what makes logits of hidden states.

    Both directions live in one module, so that a tied matrix is one parameter of one owner and nothing comes untied.

    Args:
        vocab: Number of ids.
        d_model: Model width, in features.
        scale: Whether vectors are multiplied by ``sqrt(d_model)``.
    """

    parallel: ClassVar[dict[str, str]] = {"table": "vocab", "output": "vocab"}

    def __init__(self, vocab: int, d_model: int, *, scale: bool) -> None:
        super().__init__()
        self.table = nn.Embedding(vocab, d_model)
        self.scale = Scale(d_model**0.5) if scale else nn.Identity()

    def forward(self, ids: Int[Tensor, "batch time"]) -> Float[Tensor, "batch time d_model"]:
        """Look vectors up."""
        vectors: Tensor = self.scale(self.table(ids))
        return vectors

    def unembed(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch vocab"]:
        """Make logits of hidden states."""
        raise NotImplementedError

    def flops(self, n_query: int, n_key: int) -> int:
        """A look-up multiplies nothing; the other direction is counted by the head."""
        return 0
