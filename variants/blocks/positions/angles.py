"""The angles that sinusoidal and rotary positions share: ``position * base ** -exponent``."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor


def angles_of(
    positions: Int[Tensor, "batch time"], n_rates: int, step: float, base: float
) -> Float[Tensor, "batch time rates"]:
    """Multiply positions by ``base ** -(step * i)`` for the rates i, in the widest type that the device has.

    At position 10,000 an angle in float32 is off by up to 5e-4; in float64 a table is exact to its last bit once cast.

    Args:
        positions: Of tokens, from 0.
        n_rates: How many rates.
        step: Between two exponents.
        base: Of the rates.
    """
    dtype = torch.float32 if positions.device.type == "mps" else torch.float64
    exponents = torch.arange(n_rates, dtype=dtype, device=positions.device) * step
    return positions[..., None].to(dtype) * base**-exponents
