"""What a model's forward gives."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from variants.models.stack import Losses


@dataclass
class Output:
    """Logits, and what parts of the model add to the loss.

    Attributes:
        logits: For every position, over the vocabulary.
        losses: Per target token, by name (an experts layer's balance loss, say).
    """

    logits: Float[Tensor, "batch time vocab"]
    losses: Losses


torch.export.register_dataclass(Output, serialized_type_name="variants.Output")
