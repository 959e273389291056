"""No look at the memory."""

from __future__ import annotations

from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from variants.blocks.context import Context
from variants.slots import crosses


@crosses.register("none")
class NoCross(nn.Module):
    """Read nothing of the memory: a layer leaves this branch out.

    Source: Liu et al. 2018, "Generating Wikipedia by Summarizing Long Sequences", arXiv:1801.10198, section 4.2.3: the
    decoder alone.
    """

    absent: ClassVar[bool] = True

    def forward(
        self, x: Float[Tensor, "batch time d_model"], context: Context | None = None
    ) -> Float[Tensor, "batch time d_model"]:
        """Give zeros."""
        return torch.zeros_like(x)
