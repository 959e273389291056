"""The conformance kit: what every slot's choices promise, as functions to call on one's own component.

>>> from variants.blocks.norms import RMSNorm
>>> from variants.testing import Example, blocks
>>> blocks.each_position_alone(Example("norm", RMSNorm))  # says nothing where the promise holds
>>> print(next(check_example(Example("norm", RMSNorm))))
norm RMSNorm  same shape: holds
"""

from variants.testing import (
    blocks,
    common,
    crosses,
    ends,
    initialisers,
    kernels,
    layouts,
    mixers,
    parts,
    positions,
    training,
)
from variants.testing.base import Broken, Promise
from variants.testing.examples import Example
from variants.testing.probes import PROBES, Probe
from variants.testing.promises import PROMISES, Verdict, check, check_example

__all__ = [
    "PROBES",
    "PROMISES",
    "Broken",
    "Example",
    "Probe",
    "Promise",
    "Verdict",
    "blocks",
    "check",
    "check_example",
    "common",
    "crosses",
    "ends",
    "initialisers",
    "kernels",
    "layouts",
    "mixers",
    "parts",
    "positions",
    "training",
]
