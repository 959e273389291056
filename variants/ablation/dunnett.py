"""Dunnett's distribution: the largest of several t statistics that share a baseline and an error.

``T_i = (Z_i - Z_0) / (sqrt(2) S)`` for m arms, with standard normal Z and ``S^2`` a chi-square over its degrees of
freedom. scipy has the test for independent groups, whose degrees of freedom differ; this is its distribution alone.

Source: Dunnett 1955, "A Multiple Comparison Procedure for Comparing Several Treatments with a Control", JASA 50.
"""

from __future__ import annotations

import functools
import math

import numpy as np
from numpy.polynomial import hermite_e, legendre
from numpy.typing import NDArray
from scipy import optimize, special


def dunnett_p(t: float, m: int, df: int) -> float:
    """The chance that any of m statistics is beyond t, two-sided, if no arm differs.

    ``1 - E_S integral phi(z) (Phi(z + sqrt(2) t S) - Phi(z - sqrt(2) t S))^m dz``, by Gauss' quadrature in z and in
    the quantiles of S.
    """
    if math.isinf(t):
        return 0.0
    z, z_weight, scale, scale_weight = _nodes(df)
    inside = special.ndtr(z + math.sqrt(2) * t * scale) - special.ndtr(z - math.sqrt(2) * t * scale)
    return float(min(1.0, max(0.0, 1 - scale_weight @ inside**m @ z_weight)))


@functools.cache
def _nodes(df: int) -> tuple[NDArray[np.float64], ...]:
    """Where the integrals are evaluated, and with which weights: z in a row, S in a column."""
    z, z_weight = hermite_e.hermegauss(60)
    u, u_weight = legendre.leggauss(60)
    scale = np.sqrt(special.chdtri(df, (1 - u) / 2) / df)[:, None]
    return z, z_weight / math.sqrt(2 * math.pi), scale, u_weight / 2


@functools.cache
def dunnett_critical(level: float, m: int, df: int) -> float:
    """The t beyond which the chance is that level.

    >>> round(dunnett_critical(0.05, 3, 10), 2)
    2.76
    """
    return float(optimize.brentq(lambda t: dunnett_p(t, m, df) - level, 0.0, 1e4, xtol=1e-9))
