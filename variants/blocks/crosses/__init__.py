"""How a decoder reads the encoder's memory."""

from variants.blocks.crosses.attention import CrossAttention
from variants.blocks.crosses.none import NoCross

__all__ = ["CrossAttention", "NoCross"]
