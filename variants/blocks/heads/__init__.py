"""Heads: hidden states to logits, and the loss of targets."""

from variants.blocks.heads.base import IGNORED, Head, Loss
from variants.blocks.heads.linear import LinearHead

__all__ = ["IGNORED", "Head", "LinearHead", "Loss"]
