"""What a model's options came to: which kernel runs, and which option has no effect."""

from __future__ import annotations

from torch import nn

from variants.blocks.kernels.base import Kernel
from variants.models.stack import Stack


def kernels_of(model: nn.Module) -> dict[str, str]:
    """The kernel that runs, for each part that has one, by module name; `auto` stands for the one it chose."""
    return {
        f"{name}.{child}": kernel.effective
        for name, part in model.named_modules()
        if not isinstance(part, Kernel)
        for child, kernel in part.named_children()
        if isinstance(kernel, Kernel)
    }


def reasons(model: nn.Module) -> list[str]:
    """Why these kernels run, each reason once."""
    return sorted({f"{m.effective}: {m.reason}" for m in model.modules() if isinstance(m, Kernel) and m.reason})


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
