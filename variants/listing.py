"""The registry as a person reads it: every slot, what it promises, and its choices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from variants.registry import Choice, Field, Slot, describe


def show(slots: Sequence[Slot[Any]], *, fields: bool = False) -> None:
    """Print slots in the terminal.

    Args:
        slots: Which.
        fields: Whether to show what a config may set in each choice.
    """
    from rich.console import Console
    from rich.markup import escape
    from rich.padding import Padding

    console = Console(highlight=False, soft_wrap=False)
    for slot in slots:
        console.print(f"[bold]{slot.name}[/]: {escape(slot.promise)}")
        for choice in slot.choices.values():
            console.print(Padding(f"[cyan]{escape(choice.name)}[/]  {escape(_summary(choice))}", (0, 0, 0, 2)))
            if choice.source:
                console.print(Padding(f"[dim]{escape(choice.source)}[/]", (0, 0, 0, 6)))
            for field in choice.fields.values() if fields else ():
                console.print(Padding(escape(_field(field)), (0, 0, 0, 6)))
        if not slot.choices:
            console.print("  (none of its own; register yours)")


def markdown(slots: Sequence[Slot[Any]]) -> str:
    """Slots as a Markdown table: a row a slot, its choices by name."""
    rows = ["| slot | every choice promises | choices |", "|---|---|---|"]
    for slot in slots:
        choices = ", ".join(f"`{name}`" for name in slot.choices) or "your own"
        rows.append(f"| {slot.name} | {slot.promise} | {choices} |")
    return "\n".join(rows)


def _summary(choice: Choice[Any]) -> str:
    fixed = ", ".join(f"{name}={value}" for name, value in choice.fixed.items())
    return f"{choice.summary} ({fixed})" if fixed else choice.summary


def _field(field: Field) -> str:
    default = "required" if field.required else f"default {field.default!r}"
    return f"{field.name}: {describe(field.annotation)}; {default}"
