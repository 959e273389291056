"""Norms: each position alone; shape and dtype kept."""

from variants.blocks.norms.layernorm import LayerNorm
from variants.blocks.norms.layernorm_std import LayerNormStd
from variants.blocks.norms.rmsnorm import RMSNorm

__all__ = ["LayerNorm", "LayerNormStd", "RMSNorm"]
