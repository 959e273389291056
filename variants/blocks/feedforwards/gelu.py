"""The feed-forward layer of GPT and BERT."""

from __future__ import annotations

from typing import Literal

from variants.blocks.feedforwards.plain import PlainFeedForward
from variants.slots import feedforwards


@feedforwards.register("gelu")
class GeluFeedForward(PlainFeedForward):
    """Project up, gate by the normal distribution, project down: ``h = up(x); down(h * Phi(h))``.

    Source: Hendrycks and Gimpel 2016, "Gaussian Error Linear Units (GELUs)", arXiv:1606.08415, section 2.

    Args:
        d_model: Model width, in features.
        approximate: How Phi is computed: ``none`` is exact, ``tanh`` the paper's approximation, as in GPT-2.
        ratio: Hidden width over ``d_model``.
        d_ff: Hidden width, in features; overrides ``ratio``.
        bias: Whether the projections have a bias.
        feedforward_dropout: Rate of dropout after the activation.

    Raises:
        ValueError: The hidden width is not positive.
    """

    def __init__(
        self,
        d_model: int,
        *,
        approximate: Literal["none", "tanh"] = "none",
        ratio: float = 4.0,
        d_ff: int | None = None,
        bias: bool = True,
        feedforward_dropout: float = 0.0,
    ) -> None:
        super().__init__(
            d_model,
            activation={"none": "gelu", "tanh": "gelu_tanh"}[approximate],
            ratio=ratio,
            d_ff=d_ff,
            bias=bias,
            feedforward_dropout=feedforward_dropout,
        )
