"""Tiny runs for the tests of training, in this process or in one that kills itself."""

import multiprocessing
import os
import signal
from pathlib import Path

from variants.config import compose

TINY = [
    "model=transformer_tiny",
    "model.d_model=16",
    "model.n_layers=1",
    "model.n_heads=2",
    "model.dropout=0.1",
    "data=copy",
    "data.symbols=6",
    "data.min_length=1",
    "data.max_length=5",
    "data.batch_size=4",
    "data.n_validation=10",
    "optimiser=adamw",
    "schedule=cosine",
    "trainer.accelerator=cpu",
    "trainer.accumulate_grad_batches=2",
    "trainer.max_steps=8",
    "trainer.val_check_interval=6",
    "trainer.log_every_n_steps=1",
    "trainer.checkpoint_interval=2",
    "tracker.mode=disabled",
]


def tiny(folder, *overrides):
    return {**compose([*TINY, *overrides]), "folder": str(folder)}


def killed(folder, *overrides, place, at, number=signal.SIGKILL, resume=False):
    """Train in a process of its own that gets a signal at the ``at``-th time that it comes by a place."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["variants.training.run"])  # Lightning's import takes seconds
    process = context.Process(target=_train, args=(str(folder), overrides, place, at, number, resume))
    process.start()
    process.join(120)
    return process.exitcode


def _train(folder, overrides, place, at, number, resume):
    import torch

    torch.set_num_threads(1)
    from variants.training import checkpoints, run, task

    owner, name = {
        "step": (task.Task, "training_step"),
        "clip": (task.Task, "configure_gradient_clipping"),
        "validation": (task.Task, "validation_step"),
        "validated": (checkpoints.Checkpoints, "on_validation_end"),
        "saved": (checkpoints.Checkpoints, "_save"),
        "write": (torch, "save"),
    }[place]
    original, count = getattr(owner, name), 0

    def counting(*args, **kwargs):
        nonlocal count
        count += 1
        if count == at and place == "write":
            args[1].write(b"half of it")
        elif count < at or place != "write":
            result = original(*args, **kwargs)
        if count == at:
            os.kill(os.getpid(), number)
        return result

    setattr(owner, name, counting)
    run.train(tiny(Path(folder), *overrides), resume=resume, notify=lambda line: None)


def fitted(folder, *overrides, prepare=lambda task: None, **trainer):
    """Train in float64, in this process, without a run's folder around it; ``prepare`` may change the task."""
    from variants.data.module import BatchModule
    from variants.relations import related
    from variants.training import run

    config = tiny(folder, "trainer.enable_progress_bar=false", *overrides)
    data, known, _ = related(config)
    task = run.task_of(config, data, known).double()
    prepare(task)
    config["trainer"] |= trainer
    with run.quiet():
        made = run.trainer_of(config, run.Folder(Path(folder)), [], lambda line: None)
        made.fit(task, datamodule=BatchModule(data, seed=config["seed"]))
    return task
