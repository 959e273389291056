"""Normal draws, smaller where they are added to the stream."""

from __future__ import annotations

from variants.blocks.initialisers.base import Address
from variants.blocks.initialisers.normal import Normal
from variants.slots import initialisers


@initialisers.register("depth_scaled")
class DepthScaled(Normal):
    """Draw from a normal distribution, divided by ``sqrt(2 n_layers)`` where a matrix writes to the stream.

    Source: Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", section 2.3.
    Departs from it: two branches a layer are counted in a decoder with cross-attention, too.

    Args:
        std: Standard deviation of matrices that do not write to the stream.

    Raises:
        ValueError: ``std`` is negative.
    """

    def std(self, address: Address) -> float:
        """The standard deviation that it draws with."""
        branches = 2 * address.n_layers if address.writes else 1
        return float(super().std(address) / branches**0.5)
