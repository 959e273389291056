"""Every pair of choices from different slots, in every layout: what is refused, and rows that cover the rest.

``python -m variants.testing.pairs`` writes the matrix of what goes with what.
"""

from __future__ import annotations

import functools
import itertools
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

from variants import slots
from variants.models import effects
from variants.testing.base import Broken, Promise, finite, gradients, weighted
from variants.testing.combinations import Cause, Choices, Combination, cause_of, factors, refusal
from variants.testing.common import COMMON, every_parameter_learns
from variants.testing.examples import Example
from variants.testing.layouts import LAYOUT
from variants.testing.probes import probe

Refused = dict[Cause, str]  # what is refused together, and why


@functools.cache
def covering(layout: str) -> tuple[list[Choices], Refused]:
    """Rows that can be built and together hold every pair that is not refused, and what is refused.

    What goes with what is known to the rules alone, so a refused row tells the smallest part of it that is refused, and
    the rows are made again without it.
    """
    refused: Refused = {}
    while True:
        rows = _rows(layout, refused)
        found = {cause_of(layout, row): reason for row in rows if (reason := refusal(layout, row)) is not None}
        if not found:
            break
        assert not found.keys() & refused.keys(), "rows hold what they must not"
        refused |= found
    # The reason of a cause alone, without what else the row got wrong.
    return rows, {cause: refusal(layout, Combination(layout, dict(cause)).choices) or r for cause, r in refused.items()}


def uncovered(layout: str) -> set[Cause]:
    """The pairs that are neither in a row nor refused."""
    rows, refused = covering(layout)
    every: set[Cause] = {
        ((a, value), (b, other))
        for (a, values), (b, others) in itertools.combinations(factors(layout).items(), 2)
        for value in values
        for other in others
    }
    return every - {pair for row in rows for pair in itertools.combinations(row.items(), 2)} - refused.keys()


def _rows(layout: str, refused: Iterable[Cause]) -> list[Choices]:
    from covertable import make

    values = {name: list(of) for name, of in factors(layout).items()}
    return [{name: row[name] for name in values} for row in make(values, constraints=[_never(c) for c in refused])]


def _never(cause: Cause) -> dict[str, Any]:
    parts = [{"operator": "eq", "left": name, "value": value} for name, value in cause]
    return {"operator": "not", "condition": {"operator": "and", "conditions": parts}}


# ---------------------------------------------------------------------------------------------------------------------
# Checking a row


def what_has_an_effect_learns(example: Example) -> None:
    """Every parameter gets a finite gradient, but those of parts that `explain` says have no effect."""
    tried = probe(example)
    slopes = gradients(tried, weighted(tried(*tried.inputs())))
    idle = {p for part in effects.idle(tried.component) for p in part.parameters()}
    for name, parameter in tried.named_parameters():
        finite(slopes[name], f"the gradient of {name}")
        if not slopes[name].any() and parameter not in idle:
            raise Broken(f"{name.removeprefix('component.')} gets no gradient, and nothing says so")


PROMISES: tuple[Promise, ...] = (
    *(promise for promise in COMMON if promise is not every_parameter_learns),
    *LAYOUT,
    what_has_an_effect_learns,
)


def broken_by(layout: str, choices: Mapping[str, str]) -> list[str]:
    """What a combination does not keep of all that a whole model promises, export aside; a line each."""
    example, lines = Combination(layout, choices), []
    for promise in PROMISES:
        try:
            promise(example)
        except Exception as error:  # a broken promise, or whatever a model raises where it should have worked
            said = str(error).strip().partition("\n")[0]
            lines.append(f"{example!r}: {promise.__name__}: {type(error).__name__}: {said}")
    return lines


# ---------------------------------------------------------------------------------------------------------------------
# The document

DOCUMENT = Path(__file__).parents[2] / "docs" / "pairs.md"
HEADER = """\
# What goes with what

Made by `python -m variants.testing.pairs`; a test holds it up to date. Every two choices of different slots, and of the
options that act across them, are together in at least one small model that keeps all promises of its layout, or are
refused before anything is allocated, with a reason. Kernels are those of a CPU. Rows that cover all pairs: {rows}.
"""


def document() -> str:
    """The matrix, the pairs that are refused with their reasons, and what is refused only in threes and more."""
    layouts = list(slots.layouts.choices)
    found = {layout: covering(layout) for layout in layouts}
    refused: dict[Cause, dict[str, str]] = {}
    for layout in layouts:
        for cause, reason in found[layout][1].items():
            refused.setdefault(cause, {})[layout] = reason
    rows = ", ".join(f"{len(found[layout][0])} ({layout})" for layout in layouts)
    pairs = {cause: where for cause, where in refused.items() if len(cause) == 2}
    others = {cause: where for cause, where in refused.items() if len(cause) != 2}
    every = {name: values for layout in layouts for name, values in factors(layout).items()}
    parts = [
        HEADER.format(rows=rows),
        "## The matrix\n\nA row a choice, a column a slot or option; `x` is the choice's own slot, an empty cell "
        "goes with all, a name is refused.\n",
        _matrix(every, pairs),
        "\n## Refused pairs\n",
        _reasons(pairs, layouts),
    ]
    if others:
        parts += ["\n## Refused in other numbers\n", _reasons(others, layouts)]
    return "\n".join(parts) + "\n"


def _matrix(every: Mapping[str, Iterable[str]], pairs: Iterable[Cause]) -> str:
    lines = ["| | " + " | ".join(every) + " |", "|---" * (len(every) + 1) + "|"]
    for name, values in every.items():
        for value in values:
            cells = ["x" if other == name else _against((name, value), other, pairs) for other in every]
            lines.append(f"| {name} {value} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _against(choice: tuple[str, str], other: str, pairs: Iterable[Cause]) -> str:
    mates = {mate for pair in pairs if choice in pair for mate in pair if mate != choice}
    return ", ".join(sorted(value for name, value in mates if name == other))


def _reasons(refused: Mapping[Any, Mapping[str, str]], layouts: list[str]) -> str:
    lines = ["| together | in | because |", "|---|---|---|"]
    for cause in sorted(refused):
        where = refused[cause]
        said = "all layouts" if len(where) == len(layouts) else ", ".join(where)
        reason = next(iter(where.values())).replace("|", "\\|")
        lines.append(f"| {', '.join(f'{name} {value}' for name, value in cause)} | {said} | {reason} |")
    return "\n".join(lines)


if __name__ == "__main__":
    torch.set_num_threads(1)
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else DOCUMENT
    target.write_text(document(), "utf-8")
    print(target)
