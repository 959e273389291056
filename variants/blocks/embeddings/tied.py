"""One matrix for both directions."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from variants.blocks.embeddings.base import Embedding, Unembed
from variants.slots import embeddings


@embeddings.register("tied")
class TiedEmbedding(Embedding):
    """Use one matrix for both directions: ``table[id]`` and ``x table'``.

    Source: Press and Wolf 2017, "Using the Output Embedding to Improve Language Models", arXiv:1608.05859.

    Args:
        vocab: Number of ids.
        d_model: Model width, in features.
        scale: Whether vectors are multiplied by ``sqrt(d_model)``, as in Vaswani et al. 2017, section 3.4.
    """

    def __init__(self, vocab: int, d_model: int, *, scale: bool = False) -> None:
        super().__init__(vocab, d_model, scale=scale)
        self.output = Unembed()

    def unembed(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch vocab"]:
        """Make logits of hidden states."""
        logits: Tensor = self.output(x, self.table.weight)
        return logits
