"""Studies for tests, and folders of runs that nobody trained."""

import json

import yaml

from variants.ablation.study import read
from variants.config import to_text
from variants.training.folder import Folder
from variants.training.metrics import MetricsFile

SMALL = ["model=llama_tiny", "model.d_model=16", "model.n_layers=2", "model.n_heads=2", "trainer.accelerator=cpu"]
SMALL += ["data=bible_en", "trainer.max_steps=4", "tracker.mode=disabled"]
FORM = {
    "question": "Which feed-forward is better?",
    "prediction": "swiglu, by a little.",
    "base": SMALL,
    "baseline": "relu",
    "axes": {"model.feedforward": ["relu", "gelu", "swiglu"]},
    "seeds": 4,
}


def form(**changes):
    """What a study.yaml says; a field given as None is left out."""
    return {name: value for name, value in {**FORM, **changes}.items() if value is not None}


def study(folder, **changes):
    folder.mkdir(exist_ok=True)
    (folder / "study.yaml").write_text(yaml.safe_dump(form(**changes), sort_keys=False))
    return read(form(**changes), folder)


def pretend(run, losses=(4.0, 3.0), state="finished", **columns):
    """Write a run's folder, with a validation loss after each tenth of 1000 tokens."""
    folder = Folder.create(run.folder, to_text(run.config))
    metrics = MetricsFile(folder.metrics)
    metrics.add(1, {"tokens": 100, "train/loss": 5.0})
    for step, loss in enumerate(losses, start=2):
        speed = {"tokens_per_second": 50.0}
        metrics.add(step, {"tokens": 100 * step, "train/loss": loss, **speed, "val/loss": loss, **columns})
    folder.note(state, len(losses) + 1)
    folder.record({}, {"kernel": {"stack.layers.0.mixer.kernel": "flash"}})
    folder.release()
    return folder


def damage(folder):
    folder.status.write_text("{half of")


def evaluated(folder, **metrics):
    (folder.path / "evaluations.json").write_text(json.dumps(metrics))
