"""What moves information along time."""

from variants.blocks.mixers.attention import Attention

__all__ = ["Attention"]
