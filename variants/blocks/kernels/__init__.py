"""How attention is computed: every choice gives the same numbers."""

from variants.blocks.kernels.auto import Auto
from variants.blocks.kernels.base import Kernel, Needs, recorded, weights_of
from variants.blocks.kernels.flash import Flash
from variants.blocks.kernels.math import Math
from variants.blocks.kernels.sdpa import Sdpa

__all__ = ["Auto", "Flash", "Kernel", "Math", "Needs", "Sdpa", "recorded", "weights_of"]
