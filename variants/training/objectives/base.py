"""What an objective is."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from jaxtyping import Float
from torch import Tensor, nn

from variants.blocks.heads.base import Loss

Batch = dict[str, Any]


class Objective:
    """From a model and a batch to a summed loss and the number of its targets.

    Args:
        label_smoothing: Share of the target distribution that is spread over the whole vocabulary.

    Raises:
        ValueError: ``label_smoothing`` is no share.

    Attributes:
        kind: Which data it takes.
        layouts: Which layouts it fits.
    """

    kind: ClassVar[Literal["language", "pairs"]]
    layouts: ClassVar[tuple[str, ...]]

    def __init__(self, *, label_smoothing: float = 0.0) -> None:
        if not 0 <= label_smoothing < 1:
            raise ValueError(f"label_smoothing={label_smoothing} must be at least 0 and below 1")
        self.label_smoothing = label_smoothing

    def __call__(self, model: nn.Module, batch: Batch) -> Loss:
        """The batch's loss, summed over its targets."""
        raise NotImplementedError


def with_losses(loss: Loss, losses: dict[str, Float[Tensor, ""]]) -> Loss:
    """Add what the model's parts add to the loss of each target."""
    for added in losses.values():
        loss = loss._replace(loss=loss.loss + added * loss.count)
    return loss
