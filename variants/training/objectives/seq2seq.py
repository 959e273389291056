"""Sequence to sequence."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from torch import nn

from variants.blocks.heads.base import Loss
from variants.blocks.masks import AttentionMask
from variants.slots import objectives
from variants.training.objectives.base import Batch, Objective, with_losses


@objectives.register("seq2seq")
class Seq2Seq(Objective):
    """Predict each target token from the source and the target before it, under teacher forcing.

    The sum of ``-log p(target | source, earlier targets)``.

    Source: Sutskever et al. 2014, "Sequence to Sequence Learning with Neural Networks", arXiv:1409.3215, section 2.

    Args:
        label_smoothing: Share of the target distribution that is spread over the whole vocabulary.

    Raises:
        ValueError: ``label_smoothing`` is no share.
    """

    kind: ClassVar[Literal["pairs"]] = "pairs"
    layouts: ClassVar[tuple[str, ...]] = ("encoder_decoder",)

    def __call__(self, model: nn.Module, batch: Batch) -> Loss:
        """The loss of a batch of ``source``, ``target``, what is real of them, and ``targets``."""
        source_mask = AttentionMask(keep=batch["source_keep"])
        target_mask = AttentionMask(keep=batch["target_keep"])
        owner: Any = model
        x, losses = owner.hidden(batch["source"], batch["target"], source_mask, target_mask)
        loss = owner.head.loss(x, batch["targets"], owner.embedding, self.label_smoothing)
        return with_losses(loss, losses)
