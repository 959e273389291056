"""Embeddings: ids to vectors, and vectors to logits."""

from variants.blocks.embeddings.base import Embedding, Scale, Unembed
from variants.blocks.embeddings.tied import TiedEmbedding
from variants.blocks.embeddings.untied import UntiedEmbedding

__all__ = ["Embedding", "Scale", "TiedEmbedding", "Unembed", "UntiedEmbedding"]
