"""When a training diverges: at which step, and which tensor went bad first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from variants.training.optimisers.groups import plain_name


class Diverged(FloatingPointError):  # noqa: N818  # a finding, to a study
    """The training met a number that is not finite.

    Args:
        step: The update that would have used it.
        tensor: The first tensor that held it.
    """

    def __init__(self, step: int, tensor: str) -> None:
        self.step, self.tensor = step, tensor
        super().__init__(f"diverged at step {step}: {tensor} is not finite")


def first_bad(model: nn.Module, run: Callable[[], Any]) -> str | None:
    """Name the first tensor that is not finite in a run of the model: a parameter, or a module's output.

    Args:
        model: Whose modules are watched.
        run: Runs it.
    """
    for name, parameter in model.named_parameters():
        if not _finite(parameter):
            return f"the parameter {plain_name(name)}"
    found: list[str] = []

    def watch(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: Any, output: Any) -> None:
            if not found and not all(_finite(leaf) for leaf in pytree.tree_leaves(output)):
                found.append(f"the output of {plain_name(name) or 'the model'}")

        return hook

    handles = [module.register_forward_hook(watch(name)) for name, module in model.named_modules()]
    try:
        outcome = run()
    finally:
        for handle in handles:
            handle.remove()
    if not found and not all(_finite(leaf) for leaf in pytree.tree_leaves(outcome)):
        found.append("the loss")
    return found[0] if found else None


def _finite(leaf: Any) -> bool:
    return not isinstance(leaf, Tensor) or not leaf.is_floating_point() or bool(torch.isfinite(leaf).all())
