"""Sharing: which layers own weights."""

from variants.blocks.sharings.all import AllShared
from variants.blocks.sharings.none import NoSharing

__all__ = ["AllShared", "NoSharing"]
