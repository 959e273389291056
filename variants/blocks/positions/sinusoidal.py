"""Sines and cosines of the position, added to the input."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from variants.blocks.positions.angles import angles_of
from variants.blocks.positions.base import Position
from variants.slots import positions as slot


@slot.register("sinusoidal")
class Sinusoidal(Position):
    """Add sines and cosines of the position to the input: ``sin(p / base^(2i/d))`` and ``cos`` of the same.

    Source: Vaswani et al. 2017, "Attention Is All You Need", arXiv:1706.03762, section 3.5.
    Departs from it: an odd width drops the last cosine.

    Args:
        d_model: Model width, in features.
        layout: ``interleaved`` puts a sine and its cosine side by side; ``halves`` all sines before all cosines
            (Marian, Whisper).
        spacing: ``paper`` ends short of the wavelength ``base * 2 pi``, at exponent (d - 2) / d; ``inclusive`` ends
            on it (Tensor2Tensor, Whisper).
        base: Of the wavelengths: the longest over the shortest.

    Raises:
        ValueError: ``base`` is not positive.
    """

    acts: ClassVar[Literal["input"]] = "input"

    def __init__(
        self,
        d_model: int,
        *,
        layout: Literal["interleaved", "halves"] = "interleaved",
        spacing: Literal["paper", "inclusive"] = "paper",
        base: float = 10000.0,
    ) -> None:
        super().__init__()
        if base <= 0:
            raise ValueError(f"base must be positive, not {base}")
        self.d_model, self.base = d_model, base
        self.n_rates = (d_model + 1) // 2
        self.step = 2 / d_model if spacing == "paper" else 1 / max(1, self.n_rates - 1)
        self.lay = interleaved if layout == "interleaved" else halves

    def input(
        self, x: Float[Tensor, "batch time d"], positions: Int[Tensor, "#batch time"]
    ) -> Float[Tensor, "batch time d"]:
        """Add the table's rows."""
        angles = angles_of(positions, self.n_rates, self.step, self.base)
        table = self.lay(angles.sin(), angles.cos())[..., : self.d_model]
        return x + table.to(x.dtype)


def interleaved(
    sines: Float[Tensor, "batch time rates"], cosines: Float[Tensor, "batch time rates"]
) -> Float[Tensor, "batch time d"]:
    """Sine, cosine, sine, cosine ..."""
    return torch.stack((sines, cosines), -1).flatten(-2)


def halves(
    sines: Float[Tensor, "batch time rates"], cosines: Float[Tensor, "batch time rates"]
) -> Float[Tensor, "batch time d"]:
    """All sines, then all cosines."""
    return torch.cat((sines, cosines), -1)
