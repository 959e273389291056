"""Feed-forward layers: each position alone."""

from variants.blocks.feedforwards.gated import GatedFeedForward
from variants.blocks.feedforwards.gelu import GeluFeedForward
from variants.blocks.feedforwards.plain import PlainFeedForward

__all__ = ["GatedFeedForward", "GeluFeedForward", "PlainFeedForward"]
