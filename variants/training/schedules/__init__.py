"""Learning rates as pure functions of the update, counted from 1."""

from variants.training.schedules.constant import Constant
from variants.training.schedules.cosine import Cosine
from variants.training.schedules.noam import Noam

__all__ = ["Constant", "Cosine", "Noam"]
