"""What moves information along time."""

from variants.blocks.mixers.attention import Attention
from variants.blocks.mixers.lstm import Lstm

__all__ = ["Attention", "Lstm"]
