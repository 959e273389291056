"""The verdict in a study's README, between two marks that everything else stays outside of."""

from __future__ import annotations

from pathlib import Path

from variants.ablation import table
from variants.ablation.compare import Comparison
from variants.training.files import write

BEGIN, END = "<!-- verdict -->", "<!-- end of verdict -->"


def update(readme: Path, comparison: Comparison, figure: str | None) -> bool:
    """Put a comparison between the marks of a README.

    Args:
        readme: The file, which may not exist.
        comparison: To put there.
        figure: The file name of a figure beside it.

    Returns:
        Whether there is such a place.
    """
    if not readme.is_file():
        return False
    content = readme.read_text("utf-8")
    before, begin, rest = content.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        return False
    shown = f"\n![The metric along training, and the differences from the baseline]({figure})\n" if figure else ""
    write(readme, f"{before}{BEGIN}\n{table.markdown(comparison)}{shown}{END}{after}")
    return True
