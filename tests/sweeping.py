"""Tiny studies, and a launcher that carries out their runs in this process."""

import io
from pathlib import Path

import misbehaving  # noqa: F401  # registers its callbacks
from rich.console import Console

from variants.ablation import study as studies
from variants.ablation import worker
from variants.ablation.plan import plan
from variants.ablation.sweep import Sweep, sweep
from variants.config import to_text

BASE = [
    "model=llama_tiny",
    "model.d_model=8",
    "model.n_layers=1",
    "model.n_heads=2",
    "data=copy",
    "model.layout=encoder_decoder",
    "data.symbols=6",
    "data.max_length=5",
    "data.batch_size=4",
    "data.n_validation=10",
    "trainer.max_steps=4",
    "trainer.accelerator=cpu",
    "trainer.val_check_interval=2",
    "trainer.log_every_n_steps=1",
    "trainer.checkpoint_interval=1",
    "trainer.enable_progress_bar=false",
    "tracker=csv",
]


def write_study(folder, *base, **fields):
    """Write a ``study.yaml``."""
    content = {
        "question": "Does the sweep work?",
        "prediction": "It does.",
        "base": [*BASE, *base],
        "baseline": "layernorm",
        "axes": {"model.norm": ["layernorm", "rmsnorm"]},
        "seeds": 2,
        **fields,
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "study.yaml").write_text(to_text({name: value for name, value in content.items() if value is not None}))
    return folder


def inline(jobs, watch):
    """Carry out all jobs in this process."""
    for job in jobs:
        if not watch():
            return
        worker.main(job.file)
        job.close("ended")
    watch()


def swept(folder, launch=inline, *, only=None, **options):
    """Sweep a study; gives how many runs are not done, and what was said."""
    said = []
    planned = plan(studies.load(folder), only=only)
    stages = Sweep(planned, launch, notify=said.append, console=Console(file=io.StringIO()), **options)
    return sweep(planned, stages), "\n".join(said)


def runs(folder):
    """The folders of the runs that are there, in order."""
    return sorted(path.parent for path in Path(folder).glob("runs/*/*/config.yaml"))
