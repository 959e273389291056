"""A matrix for each direction."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from variants.blocks.embeddings.base import Embedding
from variants.slots import embeddings


@embeddings.register("untied")
class UntiedEmbedding(Embedding):
    """Use a matrix for each direction: ``table[id]`` and ``x output'``.

    Source: Bengio et al. 2003, "A Neural Probabilistic Language Model", JMLR 3, section 2.

    Args:
        vocab: Number of ids.
        d_model: Model width, in features.
        source: Whether it embeds a source, which needs no second matrix.
        scale: Whether vectors are multiplied by ``sqrt(d_model)``, as in Vaswani et al. 2017, section 3.4.
    """

    def __init__(self, vocab: int, d_model: int, source: bool = False, *, scale: bool = False) -> None:
        super().__init__(vocab, d_model, scale=scale)
        self.output = nn.Linear(d_model, vocab, bias=False) if not source else None

    def unembed(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch vocab"]:
        """Make logits of hidden states."""
        assert self.output is not None, "a source's embedding has no other direction"
        logits: Tensor = self.output(x)
        return logits
