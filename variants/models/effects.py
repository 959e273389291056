"""What a model's options came to: which kernel runs, and which option has no effect."""

from __future__ import annotations

from torch import nn

from variants.blocks.kernels.base import Kernel
from variants.models.stack import Stack


def kernels_of(model: nn.Module) -> dict[str, str]:
    """The kernel that runs, for each that the model holds, by module name."""
    return {name: module.effective for name, module in model.named_modules() if isinstance(module, Kernel)}


def without_effect(model: nn.Module) -> list[str]:
    """What was asked for and changes nothing, a line each."""
    lines = []
    for name, stack in model.named_modules():
        if not isinstance(stack, Stack):
            continue
        mixers = [layer.mixer for layer in stack.layers]
        read = {place for mixer in mixers for place in getattr(mixer, "reads", ())}
        for position in stack.positions:
            acts = position.acts
            if acts not in (None, "input") and acts not in read:
                kinds = ", ".join(sorted({type(mixer).__name__.lower() for mixer in mixers}))
                kind = type(position).__name__.lower()
                lines.append(f"position {kind} has no effect in {name}: {kinds} does not read what it gives ({acts})")
        if not any(isinstance(module, Kernel) for module in stack.modules()):
            lines.append(f"kernel has no effect in {name}: no mixer there has one")
    return lines
