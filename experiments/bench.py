"""What `make bench` prints: what a sweep adds to a run beyond `variants train` alone, and how long planning takes."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import yaml

from variants.ablation import study as studies
from variants.ablation.plan import plan

ROUNDS = 3
ARMS = 1000
BASE = [
    "model=llama_tiny",
    "model.d_model=32",
    "model.n_layers=2",
    "data=bible_en",
    "trainer.max_steps=5",
    "trainer.limit_val_batches=1",
    "tracker=csv",
]


def main() -> None:
    """Measure, print, and fail where a promise is broken."""
    os.environ |= {"WANDB_MODE": "disabled", "OMP_NUM_THREADS": "1"}  # threads wait for each other on a busy machine
    with tempfile.TemporaryDirectory() as folder:
        planning = time_of_planning(Path(folder) / "planning")
        print(f"planning {ARMS:,} arms: {planning:.1f} s (at most 30)", flush=True)
        alone, overhead = time_of_launching(Path(folder) / "launching")
    print(f"`variants train` alone: {alone:.1f} s a run; in a sweep {overhead:+.2f} s (at most 1)")
    sys.exit(planning > 30 or overhead > 1)


def time_of_planning(folder: Path) -> float:
    """Seconds to compose, match, build and compare with the baseline every arm of a large study."""
    axes = {
        "model.feedforward": ["relu", "gelu", "swiglu", "geglu"],
        "model.norm": ["layernorm", "rmsnorm"],
        "model.position": ["rotary", "none", "sinusoidal", "learned", "relative"],
        "optimiser.lr": [i / 10_000 for i in range(1, 1 + ARMS // 40)],
    }
    study = _write(folder, axes=axes, baseline=["relu", "layernorm", "rotary", 1e-4], match="parameters")
    began = time.perf_counter()
    planned = plan(study).check()
    took = time.perf_counter() - began
    assert len(planned.arms) == ARMS, len(planned.arms)
    return took


def time_of_launching(folder: Path) -> tuple[float, float]:
    """Seconds of a run by itself, and what it takes longer as one of several in a sweep.

    A sweep of three runs less one of a single run is two runs, without what a sweep takes once.
    """
    alone, within = [], []
    _time([*TRAIN, "--folder", str(folder / "warm-up")])  # the data are prepared, the files in memory
    for k in range(ROUNDS):
        alone.append(_time([*TRAIN, "--folder", str(folder / f"train-{k}")]))
        one, three = (_time_sweep(folder / f"sweep-{k}-{n}", n) for n in (1, 3))
        within.append((three - one) / 2)
    return median(alone), median(inside - by_itself for inside, by_itself in zip(within, alone, strict=True))


TRAIN = ["train", *BASE]


def _time_sweep(folder: Path, seeds: int) -> float:
    _write(folder, axes={"model.feedforward": ["relu", "swiglu"]}, baseline="relu", seeds=seeds)
    return _time(["sweep", str(folder), "--only", "relu", "--slots", "1"])


def _time(arguments: list[str]) -> float:
    began = time.perf_counter()
    done = subprocess.run([sys.executable, "-m", "variants", *arguments], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"variants {' '.join(arguments)} failed:\n{done.stdout}{done.stderr}")
    return time.perf_counter() - began


def _write(folder: Path, **fields: Any) -> studies.Study:
    folder.mkdir(parents=True)
    content = {"question": "How long does it take?", "prediction": "Not long.", "base": BASE, **fields}
    (folder / "study.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    return studies.load(folder)


if __name__ == "__main__":
    main()
