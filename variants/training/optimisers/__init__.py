"""Optimisers: makers of torch's own, with the settings of a config."""

from variants.training.optimisers.adam import Adam
from variants.training.optimisers.adamw import AdamW

__all__ = ["Adam", "AdamW"]
