"""The feed-forward layer of one hidden layer."""

from __future__ import annotations

from typing import ClassVar

from jaxtyping import Float
from torch import Tensor, nn

from variants.blocks.context import Context
from variants.blocks.feedforwards.activations import ACTIVATIONS
from variants.slots import feedforwards


@feedforwards.register("relu", activation="relu")
@feedforwards.register("silu", activation="silu")
class PlainFeedForward(nn.Module):
    """Project up, activate, project down: ``down(act(up(x)))``.

    Source: Vaswani et al. 2017, "Attention Is All You Need", arXiv:1706.03762, equation 2.

    Args:
        d_model: Model width, in features.
        activation: Name of the activation.
        ratio: Hidden width over ``d_model``.
        d_ff: Hidden width, in features; overrides ``ratio``.
        bias: Whether the projections have a bias.
        feedforward_dropout: Rate of dropout after the activation.

    Raises:
        ValueError: The hidden width is not positive.
    """

    parallel: ClassVar[dict[str, str]] = {"up": "column", "down": "row"}
    writes: ClassVar[tuple[str, ...]] = ("down",)

    def __init__(
        self,
        d_model: int,
        *,
        activation: str = "relu",
        ratio: float = 4.0,
        d_ff: int | None = None,
        bias: bool = True,
        feedforward_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        hidden = round(ratio * d_model) if d_ff is None else d_ff
        if hidden < 1:
            raise ValueError(f"ratio={ratio}, d_ff={d_ff}: the hidden width must be positive, at d_model={d_model}")
        self.up = nn.Linear(d_model, hidden, bias=bias)
        self.activation = ACTIVATIONS[activation]
        self.dropout = nn.Dropout(feedforward_dropout)
        self.down = nn.Linear(hidden, d_model, bias=bias)

    def forward(
        self, x: Float[Tensor, "batch time d_model"], context: Context | None = None
    ) -> Float[Tensor, "batch time d_model"]:
        """Work on each position alone; what pads hold is blanked."""
        real = x if context is None else context.mask.blank(x)
        hidden = self.activation(self.up(real))
        out: Tensor = self.down(self.dropout(hidden))
        return out
