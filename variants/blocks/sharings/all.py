"""One layer at every depth."""

from __future__ import annotations

from variants.slots import sharings


@sharings.register("all")
class AllShared:
    """Run one layer at every depth.

    Source: Lan et al. 2019, "ALBERT: A Lite BERT for Self-supervised Learning of Language Representations",
    arXiv:1909.11942, section 3.1.
    """

    def __call__(self, n_layers: int) -> list[int]:
        """For every depth, the index of the layer that runs there.

        >>> AllShared()(3)
        [0, 0, 0]
        """
        return [0] * n_layers
