"""The demonstration of `make demo`: the choices of 2017 against modern ones, same size, same data, same order.

Trains two small language models on the shipped English text, and leaves a table in the terminal and a plot, the runs
and their metrics in ``demo/``. Run again, it goes on where it was cut.
"""

from __future__ import annotations

import csv
import math
import shutil
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from variants import config as configs
from variants import slots
from variants.data.baseline import unigram
from variants.explain import explain
from variants.generation.text import generate_text
from variants.training.run import Result, train

OUT = Path("demo")
ARMS = {
    "2017: post-norm, ReLU, sinusoids, layer norm": "vanilla_tiny",
    "modern: pre-norm, SwiGLU, rotary, RMSNorm": "llama_tiny",
}
COMMON = [
    "model.d_model=96",
    "model.n_layers=3",
    "data=bible_en",
    "data.vocab=1024",
    "data.length=128",
    "trainer.max_steps=400",
    "trainer.val_check_interval=50",
    "trainer.limit_val_batches=10",
    "optimiser.lr=2e-3",
    "schedule.warmup=50",
    "tracker.group=demo",
]
PROMPT = "And it came to pass"


def main() -> None:
    """Train both, then show them beside each other."""
    console = Console()
    results = {}
    for label, model in ARMS.items():
        results[label] = run(model, console)
        if results[label].status != "finished":
            sys.exit("the demonstration is not done; `make demo` goes on where it is")
    data: Any = slots.data.build(configs.compose(COMMON)["data"])
    data.prepare()
    show_table(results, data, console)
    plot(results, OUT / "curves.png")
    console.print(f"\ncurves: {OUT / 'curves.png'}; metrics: {OUT}/*/metrics.csv; wandb: {OUT}/*/wandb")
    best = min(results.values(), key=lambda result: result.metrics["val/loss"])
    sample = next(generate_text(best.folder, [PROMPT], max_new=80, temperature=0.8, top_p=0.95, seed=1))
    console.print(
        f"\na sample of the better one, which was given {PROMPT!r}:\n\n{sample}", highlight=False, markup=False
    )


def run(model: str, console: Console) -> Result:
    """Train one model; what is there already is not done again."""
    folder = OUT / model
    config = configs.compose([f"model={model}", *COMMON, f"tracker.name={model}"])
    config["folder"] = str(folder)
    begun = (folder / "config.yaml").exists()
    if begun and configs.identity(configs.load(folder / "config.yaml")) != configs.identity(config):
        shutil.rmtree(folder)  # of another version of this demonstration
        begun = False
    console.rule(f"{model}, {config['trainer']['max_steps']} steps")
    return train(config, resume=begun, notify=console.print)


def show_table(results: dict[str, Result], data: Any, console: Console) -> None:
    """Parameters, loss and bits per byte of each, beside a model that knows how frequent each piece is, and no more."""
    table = Table(title="validation after training")
    for column in ("model", "parameters", "loss (nats per token)", "bits per byte"):
        table.add_column(column, justify="left" if column == "model" else "right")
    nats = unigram(data)
    table.add_row(
        "unigram baseline", f"{data.vocab:,}", f"{nats:.3f}", f"{nats / math.log(2) / data.bytes_per_target:.3f}"
    )
    for (label, result), model in zip(results.items(), ARMS.values(), strict=True):
        size = explain([f"model={model}", *COMMON]).parameters.total
        loss, bits = result.metrics["val/loss"], result.metrics["val/bits_per_byte"]
        table.add_row(label, f"{size:,}", f"{loss:.3f}", f"{bits:.3f}")
    console.print()
    console.print(table)


def plot(results: dict[str, Result], path: Path) -> None:
    """Both validation curves over steps."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4.5), layout="constrained")
    for label, result in results.items():
        with (result.folder / "metrics.csv").open() as file:
            rows = [row for row in csv.DictReader(file) if row.get("val/loss")]
        axes.plot([int(r["step"]) for r in rows], [float(r["val/loss"]) for r in rows], marker="o", label=label)
    axes.set(xlabel="step", ylabel="validation loss (nats per token)", title="Same size, same data, same order")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=150)
    plt.close(figure)


if __name__ == "__main__":
    main()
