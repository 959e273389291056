"""The gated feed-forward layer."""

from __future__ import annotations

from typing import ClassVar

from jaxtyping import Float
from torch import Tensor, nn

from variants.blocks.context import Context
from variants.blocks.feedforwards.activations import ACTIVATIONS
from variants.errors import refuse
from variants.slots import feedforwards


@feedforwards.register("geglu", gate="gelu")
@feedforwards.register("swiglu", gate="silu")
class GatedFeedForward(nn.Module):
    """Two projections, one gating the other: ``down(act(gate(x)) * up(x))``.

    Source: Shazeer 2020, "GLU Variants Improve Transformer", arXiv:2002.05202, equation 6.
    Departs from it: the hidden width is rounded, to suit the hardware.

    Args:
        d_model: Model width, in features.
        gate: Name of the gate's activation.
        ratio: Hidden width over ``d_model``; 8/3 gives the parameters of an ungated layer of ratio 4.
        d_ff: Hidden width, in features, taken as it is; overrides ``ratio``.
        multiple_of: The hidden width that ``ratio`` gives is rounded to the nearest multiple of this, in features.
        bias: Whether the projections have a bias.
        feedforward_dropout: Rate of dropout after the gate.

    Raises:
        ValueError: ``ratio``, ``d_ff`` or ``multiple_of`` is not positive.
    """

    parallel: ClassVar[dict[str, str]] = {"gate": "column", "up": "column", "down": "row"}
    writes: ClassVar[tuple[str, ...]] = ("down",)

    def __init__(
        self,
        d_model: int,
        *,
        gate: str = "silu",
        ratio: float = 8 / 3,
        d_ff: int | None = None,
        multiple_of: int = 8,
        bias: bool = False,
        feedforward_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        widths = {"ratio": ratio, "d_ff": 1 if d_ff is None else d_ff, "multiple_of": multiple_of}
        refuse(*(value <= 0 and f"{n}={value}: must be positive, at d_model={d_model}" for n, value in widths.items()))
        multiples = max(1, round(ratio * d_model / multiple_of))
        hidden = multiples * multiple_of if d_ff is None else d_ff
        self.gate = nn.Linear(d_model, hidden, bias=bias)
        self.up = nn.Linear(d_model, hidden, bias=bias)
        self.activation = ACTIVATIONS[gate]
        self.dropout = nn.Dropout(feedforward_dropout)
        self.down = nn.Linear(hidden, d_model, bias=bias)

    def forward(
        self, x: Float[Tensor, "batch time d_model"], context: Context | None = None
    ) -> Float[Tensor, "batch time d_model"]:
        """Work on each position alone; what pads hold is blanked."""
        real = x if context is None else context.mask.blank(x)
        hidden = self.activation(self.gate(real)) * self.up(real)
        out: Tensor = self.down(self.dropout(hidden))
        return out
