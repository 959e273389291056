"""Language modelling."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from torch import nn

from variants.blocks.heads.base import Loss
from variants.blocks.masks import AttentionMask
from variants.slots import objectives
from variants.training.objectives.base import Batch, Objective, with_losses


@objectives.register("causal_lm")
class CausalLM(Objective):
    """Predict each token from those before it: the sum of ``-log p(target | earlier tokens)``.

    Source: Radford et al. 2018, "Improving Language Understanding by Generative Pre-Training", equation 1.

    Args:
        label_smoothing: Share of the target distribution that is spread over the whole vocabulary.

    Raises:
        ValueError: ``label_smoothing`` is no share.
    """

    kind: ClassVar[Literal["language"]] = "language"
    layouts: ClassVar[tuple[str, ...]] = ("decoder_only",)

    def __call__(self, model: nn.Module, batch: Batch) -> Loss:
        """The loss of a batch of ``ids`` and ``targets``, and ``documents`` that do not see each other, if any."""
        mask = AttentionMask(documents=batch.get("documents"))
        owner: Any = model
        x, losses = owner.hidden(batch["ids"], mask)
        loss = owner.head.loss(x, batch["targets"], owner.embedding, self.label_smoothing)
        return with_losses(loss, losses)
