"""What a residual is: how a layer's branches join the stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Literal, NamedTuple

from jaxtyping import Float
from torch import Tensor, nn

Branch = Callable[[Float[Tensor, "batch time d_model"]], Float[Tensor, "batch time d_model"]]


class Depths(NamedTuple):
    """How deep the model is.

    Attributes:
        own: Layers of this stack.
        encoder: Layers of the encoder; 0 where there is none.
        decoder: Layers of the decoder; 0 where there is none.
        role: Which of the two this stack is.
    """

    own: int
    encoder: int = 0
    decoder: int = 0
    role: Literal["encoder", "decoder"] = "decoder"


class Residual(nn.Module):
    """Joins branches to the stream. Owns its norms alone, so that other parameters' names do not change with it.

    Args:
        norm: Makes a norm of the model's width.
        n_branches: Branches of a layer: mixer, cross mixer if any, feed-forward.
        depths: How deep the model is.

    Attributes:
        final_norm: Whether a stack of these still needs a norm at its end.
    """

    final_norm: ClassVar[bool] = True

    def __init__(self, norm: Callable[[], nn.Module], n_branches: int, depths: Depths) -> None:
        super().__init__()

    def enter(self, x: Float[Tensor, "batch time d"]) -> Float[Tensor, "*streams batch time d"]:
        """Make the stream of a stack's input; uses no parameters, and all layers of a stack agree on it."""
        return x

    def leave(self, x: Float[Tensor, "*streams batch time d"]) -> Float[Tensor, "batch time d"]:
        """Make the stack's output of the stream."""
        return x

    def forward(
        self, x: Float[Tensor, "*streams batch time d_model"], *branches: Branch
    ) -> Float[Tensor, "*streams batch time d_model"]:
        """One layer: the stream after all its branches."""
        raise NotImplementedError
