"""Every depth its own layer."""

from __future__ import annotations

from variants.slots import sharings


@sharings.register("none")
class NoSharing:
    """Give every depth a layer of its own.

    Source: Vaswani et al. 2017, "Attention Is All You Need", arXiv:1706.03762, section 3.1.
    """

    def __call__(self, n_layers: int) -> list[int]:
        """For every depth, the index of the layer that runs there.

        >>> NoSharing()(3)
        [0, 1, 2]
        """
        return list(range(n_layers))
