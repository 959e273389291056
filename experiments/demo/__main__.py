"""The demonstration of `make demo`: the study of this folder, its models beside a baseline, and what they write."""

from __future__ import annotations

import math
import os
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from variants import config as configs
from variants import slots
from variants.ablation import results
from variants.ablation import study as studies
from variants.ablation.results import Results
from variants.cli import main as variants
from variants.data.baseline import unigram
from variants.generation.text import generate_text

STUDY = Path("experiments/demo")
METRICS = ("val/loss", "val/bits_per_byte")
PROMPT = "And it came to pass"


def main() -> None:
    """Sweep, which ends with the verdicts and the report, then show what was trained."""
    if status := variants(["sweep", str(STUDY), "--slots", str(min(2, os.cpu_count() or 1))]):
        sys.exit(status)
    console = Console()
    found = results.load(STUDY)
    console.print(beside_unigram(found))
    runs = found.compared()
    best = runs.loc[runs[found.study.metric].idxmin()]
    folder = STUDY / best["folder"]
    console.print(
        f"report: {STUDY}/report/index.html; curves: {STUDY}/report/main.png; runs, CSV and wandb: {STUDY}/runs"
    )
    console.print(f"\nthe best run is {best['arm']} with seed {best['seed']}; what it makes of {PROMPT!r}:\n")
    for how, sampling in {"greedy": {}, "sampled": {"temperature": 0.8, "top_p": 0.95, "seed": 1}}.items():
        text = next(generate_text(folder, [PROMPT], max_new=60, **sampling))
        console.print(f"{how}: {text}\n", highlight=False, markup=False)


def beside_unigram(found: Results) -> Table:
    """Each arm's mean loss beside that of a model that knows how frequent each piece is, and no more."""
    data: Any = slots.data.build(configs.compose(list(studies.load(STUDY).base))["data"])
    data.prepare()
    table = Table(title="validation after training, mean over seeds")
    for column in ("model", "parameters", "nats per token", "bits per byte"):
        table.add_column(column, justify="left" if column == "model" else "right")
    nats = unigram(data)
    bits = nats / math.log(2) / data.bytes_per_target
    table.add_row("unigram baseline", f"{data.vocab:,}", f"{nats:.3f}", f"{bits:.3f}")
    for arm, runs in found.compared().groupby("arm", sort=False):
        means = (f"{runs[metric].mean():.3f}" for metric in METRICS)
        table.add_row(str(arm), f"{runs['parameters'].iloc[0]:,}", *means)
    return table


if __name__ == "__main__":
    main()
