"""How figures look: colours that colour-blind readers tell apart, shapes that survive a black-and-white print."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

STYLE: dict[str, Any] = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#666666",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e8e8e8",
    "grid.linewidth": 0.8,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "lines.markersize": 5,
    "svg.fonttype": "path",  # looks the same whatever fonts a reader has
    "svg.hashsalt": "variants",  # the same figure is the same file
    "pdf.fonttype": 42,
}
BASELINE = "#222222"
# Okabe and Ito's palette, but for its yellow, which is hard to see on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MARKERS = ("s", "^", "D", "v", "P", "X", "<", ">")
LINES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.5)), (0, (5, 1.5, 1, 1.5)))
JUDGEMENTS = {
    "better": ("#0072B2", "o"),
    "worse": ("#D55E00", "X"),
    "equivalent": ("#009E73", "s"),
    "interact": ("#CC79A7", "D"),
    "diverged": ("#CC79A7", "v"),
}
UNDECIDED = ("#777777", "d")


@dataclass(frozen=True)
class Look:
    """How an arm is drawn, the same in every figure.

    Attributes:
        colour: Of its lines and points.
        marker: Of its points.
        line: The style of its lines.
    """

    colour: str
    marker: str
    line: Any


def looks(arms: Sequence[str]) -> dict[str, Look]:
    """A look for each arm, the baseline's first; none is there twice up to 25 arms."""
    others = {
        arm: Look(
            COLOURS[i % len(COLOURS)], MARKERS[(i + i // len(COLOURS)) % len(MARKERS)], LINES[i // len(COLOURS) % 4]
        )
        for i, arm in enumerate(arms[1:])
    }
    return {arms[0]: Look(BASELINE, "o", "-"), **others}


def styled() -> AbstractContextManager[None]:
    """Draw in this style inside of it."""
    context: AbstractContextManager[None] = mpl.rc_context(STYLE)  # type: ignore[arg-type]  # its keys are literals
    return context


def canvas(width: float, height: float, columns: int = 1, **options: Any) -> tuple[Figure, list[Axes]]:
    """An empty figure of some columns, in inches."""
    with styled():
        figure = Figure(figsize=(width, height), layout="constrained")
        axes = figure.subplots(1, columns, squeeze=False, **options)
    return figure, list(axes[0])


def legend(figure: Figure, axes: Axes, names: Sequence[str]) -> None:
    """Name what is in the axes beneath the figure, in as many columns as there is room for."""
    handles, labels = axes.get_legend_handles_labels()
    fitting = max(1, int(figure.get_figwidth() / (0.6 + 0.08 * max(map(len, names), default=1))))
    rows = -(-len(labels) // fitting) or 1
    columns = max(1, -(-len(labels) // rows))
    across = sorted(range(len(labels)), key=lambda i: (i % columns, i))  # matplotlib fills the columns one by one
    with styled():
        figure.legend(
            [handles[i] for i in across], [labels[i] for i in across], loc="outside lower center", ncols=columns
        )


def render(figure: Figure, form: str) -> bytes:
    """A figure as ``svg``, ``pdf`` or ``png``, without the time at which it was made."""
    buffer = BytesIO()
    undated = {"svg": {"Date": None, "Creator": None}, "pdf": {"CreationDate": None}, "png": {}}
    with styled():
        figure.savefig(buffer, format=form, metadata=undated[form], dpi=150)
    return buffer.getvalue()
