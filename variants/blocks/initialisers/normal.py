"""Normal draws of one width."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from variants.blocks.initialisers.base import Address
from variants.slots import initialisers


@initialisers.register("normal")
class Normal:
    """Draw from a normal distribution of one standard deviation.

    Source: Devlin et al. 2019, "BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding",
    arXiv:1810.04805, in its code (``initializer_range``).
    Departs from it: not truncated.

    Args:
        std: Standard deviation.

    Raises:
        ValueError: ``std`` is negative.
    """

    def __init__(self, *, std: float = 0.02) -> None:
        if std < 0:
            raise ValueError(f"std={std}: must not be negative")
        self.width = std

    def std(self, address: Address) -> float:
        """The standard deviation that it draws with."""
        return self.width

    def __call__(self, address: Address, generator: torch.Generator) -> Float[Tensor, "..."]:
        """Draw a matrix."""
        return torch.randn(address.shape, generator=generator) * self.std(address)
