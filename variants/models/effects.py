"""What a model's options came to: which kernel runs, and which option has no effect."""

from __future__ import annotations

from torch import nn

from variants.blocks.kernels.base import Kernel
from variants.blocks.positions.base import Position
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


def idle_positions(stack: Stack) -> list[Position]:
    """A stack's positions that act where none of its mixers reads."""
    read = {place for layer in stack.layers for place in getattr(layer.mixer, "reads", ())}
    return [p for p in stack.positions if p.acts not in (None, "input") and p.acts not in read]


def idle_encoders(model: nn.Module) -> list[nn.Module]:
    """Encoders that no layer of the decoder reads."""
    return [
        m.encoder
        for m in model.modules()
        if isinstance(getattr(m, "encoder", None), Stack)
        and isinstance(decoder := getattr(m, "decoder", None), Stack)
        and all(layer.cross is None for layer in decoder.layers)
    ]


def idle(model: nn.Module) -> list[nn.Module]:
    """The parts of a model that change nothing, so that their parameters learn nothing."""
    stacks = [m for m in model.modules() if isinstance(m, Stack)]
    return [*idle_encoders(model), *(position for stack in stacks for position in idle_positions(stack))]


def without_effect(model: nn.Module) -> list[str]:
    """What was asked for and changes nothing, a line each."""
    unread: tuple[str, ...] = getattr(model, "unread", ())  # as `variants.models.assemble` has noted
    lines = [f"model.{name} has no effect: no part of this model asks for it" for name in unread]
    lines += ["encoder has no effect: no layer of the decoder has a cross mixer to read it"] * len(idle_encoders(model))
    for name, stack in model.named_modules():
        if not isinstance(stack, Stack):
            continue
        for position in idle_positions(stack):
            kinds = ", ".join(sorted({type(layer.mixer).__name__.lower() for layer in stack.layers}))
            kind = type(position).__name__.lower()
            gives = f"{kinds} does not read what it gives ({position.acts})"
            lines.append(f"position {kind} has no effect in {name}: {gives}")
        if not any(isinstance(module, Kernel) for module in stack.modules()):
            lines.append(f"kernel has no effect in {name}: no mixer there has one")
    return lines
