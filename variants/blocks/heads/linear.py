"""The language-model head."""

from __future__ import annotations

from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from variants.blocks.embeddings.base import Embedding, Scale
from variants.blocks.heads.base import Head
from variants.slots import heads


@heads.register("linear")
class LinearHead(Head):
    """Project hidden states on the vocabulary: ``embedding.unembed(x) + bias``.

    Source: Vaswani et al. 2017, "Attention Is All You Need", arXiv:1706.03762, section 3.4; ``scaled`` is of Raffel
    et al. 2020, "Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer",
    arXiv:1910.10683, in its tied models.

    Args:
        vocab: Number of ids.
        d_model: Model width, in features.
        bias: Whether logits have a bias.
        scaled: Whether hidden states are divided by ``sqrt(d_model)``.
        chunk: How many targets' logits exist at once in training.

    Raises:
        ValueError: ``chunk`` is not positive.
    """

    initial: ClassVar[dict[str, float]] = {"bias": 0.0}

    def __init__(self, vocab: int, d_model: int, *, bias: bool = False, scaled: bool = False, chunk: int = 512) -> None:
        super().__init__(chunk=chunk)
        self.vocab, self.d_model = vocab, d_model
        self.bias = nn.Parameter(torch.zeros(vocab)) if bias else None
        self.scale = Scale(d_model**-0.5) if scaled else nn.Identity()

    def forward(self, x: Float[Tensor, "*batch d_model"], embedding: Embedding) -> Float[Tensor, "*batch vocab"]:
        """Make logits."""
        logits = embedding.unembed(self.scale(x))
        return logits if self.bias is None else logits + self.bias

    def flops(self, n_query: int, n_key: int) -> int:
        """Of the embedding's other direction, which only the head calls."""
        return 2 * n_query * self.d_model * self.vocab
