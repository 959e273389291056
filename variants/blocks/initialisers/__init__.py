"""Initialisers: a parameter's value from its name, shape and depth."""

from variants.blocks.initialisers.base import Address, generator_of, initialise, stripped
from variants.blocks.initialisers.depth_scaled import DepthScaled
from variants.blocks.initialisers.normal import Normal
from variants.blocks.initialisers.xavier import Xavier

__all__ = ["Address", "DepthScaled", "Normal", "Xavier", "generator_of", "initialise", "stripped"]
