"""Residuals: how a layer's branches join the stream."""

from variants.blocks.residuals.base import Branch, Depths, Residual
from variants.blocks.residuals.deepnorm import DeepNorm
from variants.blocks.residuals.parallel import Parallel
from variants.blocks.residuals.post import PostNorm
from variants.blocks.residuals.pre import PreNorm

__all__ = ["Branch", "DeepNorm", "Depths", "Parallel", "PostNorm", "PreNorm", "Residual"]
