"""Xavier."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from variants.blocks.initialisers.base import Address
from variants.slots import initialisers


@initialisers.register("xavier")
class Xavier:
    """Draw uniformly within ``+-sqrt(6 / (fan_in + fan_out))``.

    Source: Glorot and Bengio 2010, "Understanding the difficulty of training deep feedforward neural networks",
    AISTATS, equation 16.
    """

    def std(self, address: Address) -> float:
        """The standard deviation that it draws with."""
        return float((2 / sum(address.fans)) ** 0.5)

    def __call__(self, address: Address, generator: torch.Generator) -> Float[Tensor, "..."]:
        """Draw a matrix."""
        unit = torch.rand(address.shape, generator=generator)
        return (2 * unit - 1) * (3**0.5 * self.std(address))
