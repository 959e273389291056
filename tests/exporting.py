"""Export with shapes that are symbols, which the type checker does not take for integers."""

from contextlib import contextmanager

from jaxtyping import config


@contextmanager
def unchecked():
    """Leave types and shapes unchecked for a while."""
    before = config.jaxtyping_disable
    config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        config.update("jaxtyping_disable", before)
