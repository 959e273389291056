"""Transformer architecture variants out of one registry, trained and compared fairly."""

__version__ = "0.1.0"
