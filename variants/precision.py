"""Which numbers a device can train in."""

from __future__ import annotations

from variants.errors import Undecided, is_wrong

PRECISIONS = ("32-true", "bf16-mixed", "bf16-true", "16-mixed")


def check_precision(precision: str, device: str) -> None:
    """Refuse a precision that the device does not have, before something else is used in its place.

    Args:
        precision: Lightning's name.
        device: The kind of device: ``cpu``, ``cuda``, ``mps``, ...

    Raises:
        ValueError: The name is unknown, or the device cannot do it.

    >>> check_precision("16-mixed", "cpu")
    Traceback (most recent call last):
    ValueError: trainer.precision='16-mixed' needs a GPU: on a cpu use bf16-mixed, bf16-true or 32-true
    """
    if is_wrong(precision):
        raise Undecided
    if precision == "16-mixed" and device == "cpu":
        raise ValueError(f"trainer.precision={precision!r} needs a GPU: on a cpu use bf16-mixed, bf16-true or 32-true")
    if precision == "16-true":
        raise ValueError(f"trainer.precision={precision!r} overflows within a few updates: use bf16-true or 16-mixed")
    if precision not in PRECISIONS:
        raise ValueError(f"trainer.precision={precision!r} is none of {', '.join(PRECISIONS)}")
