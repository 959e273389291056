"""How a model knows where a token is."""

from variants.blocks.positions.base import Placement, Position
from variants.blocks.positions.learned import Learned
from variants.blocks.positions.none import NoPosition
from variants.blocks.positions.relative import Relative
from variants.blocks.positions.rotary import Rotary
from variants.blocks.positions.sinusoidal import Sinusoidal

__all__ = ["Learned", "NoPosition", "Placement", "Position", "Relative", "Rotary", "Sinusoidal"]
