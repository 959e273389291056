"""A run: from a config to a trained model in a folder.

One file: what happens, in the order in which it happens.
"""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.plugins.environments.slurm import SLURMEnvironment
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.fabric.utilities.rank_zero import _get_rank
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.callbacks import EarlyStopping, Timer
from torch import nn

from variants import config as configs
from variants import slots
from variants.data.kept import keep
from variants.data.module import BatchModule
from variants.errors import ConfigError
from variants.models import Layer, build, effects
from variants.relations import Related, related
from variants.training.checkpoints import Checkpoints, SafeCheckpointIO, Stopped, read_checkpoint
from variants.training.divergence import Diverged
from variants.training.folder import Folder, State
from variants.training.loggers import CsvLogger, WandbLogger
from variants.training.metrics import read_metrics
from variants.training.progress import ProgressBar
from variants.training.refusals import others
from variants.training.task import Task, stopped_early
from variants.training.tracking import Tracking

Notify = Callable[[str], None]

# What a run that is resumed may have otherwise than before, and what of it not: the batches of an update.
FREE = ("trainer.", "tracker.", "schedule", "optimiser.lr", "folder")
FIXED = ("trainer.accumulate_grad_batches",)
NO_IMPROVEMENT = "no improvement any more"
# Trainer fields that are ours, or that Lightning gets in another form.
OURS = (
    "callbacks",
    "loggers",
    "strategy",
    "enable_progress_bar",
    "gradient_checkpointing",
    "checkpoint_interval",
    "early_stopping",
    "num_workers",
    "compile",
)


@dataclass(frozen=True)
class Result:
    """What became of a run.

    Attributes:
        folder: Where it is.
        metrics: The last value of each metric.
        status: How it ended: ``finished``, ``stopped`` by a signal, or ``diverged``.
        message: What there is to say about it.
    """

    folder: Path
    metrics: dict[str, float]
    status: State
    message: str | None = None


def train(config: dict[str, Any], *, resume: bool = False, notify: Notify = print) -> Result:
    """Train what a config says, or go on where such a run was cut.

    Args:
        config: Resolved, as `variants.config.compose` gives it.
        resume: Whether to go on with the run in the config's folder. What it trains must be the same; the trainer, the
            tracker, the schedule and the learning rate may have changed, and take effect.
        notify: Hears what a user should know.

    Raises:
        ConfigError: All that is wrong with the config or the folder, a line each.
    """
    is_main = not _get_rank()  # other processes of one run join its folder, and are silent
    notify = notify if is_main else _silent
    config = {**config, "folder": str(config["folder"] or default_folder(config))}
    try:
        data, known, _ = _related(config, resume)
        if is_main and (problems := others(config, resume=resume, notify=notify)):
            raise ConfigError(problems)
        task = task_of(config, data, known)
        with _of_the_data():
            data.prepare(notify)
            task.bytes_per_target = data.bytes_per_target
        with quiet():  # before there is a folder, for it may refuse
            trainer = trainer_of(config, Folder(Path(config["folder"])), [], notify)
        folder = _entered(config, data, resume, notify) if is_main else Folder(Path(config["folder"]))
    except ConfigError:
        raise
    except ValueError as error:
        raise ConfigError([str(error)]) from None
    try:
        if resume and _is_done(config, folder.noted()):
            notify(f"{folder.path} is finished, at step {folder.noted()['step']}: there is nothing to resume")
            return _result(folder, "finished", None)
        return _run(config, folder, data, task, trainer, resume, notify)
    finally:
        folder.release()


def _related(config: dict[str, Any], resume: bool) -> Related:
    try:
        return related(config)
    except ConfigError as error:
        raise ConfigError([*error.problems, *others(config, resume=resume)], config) from None


def default_folder(config: dict[str, Any]) -> Path:
    """Where a run goes that names no folder: the same config finds the same one again."""
    return Path("runs") / "-".join(
        (config["model"]["layout"]["name"], config["data"]["name"], configs.identity(config))
    )


def _entered(config: dict[str, Any], data: Any, resume: bool, notify: Notify) -> Folder:
    if not resume:
        folder = Folder.create(config["folder"], configs.to_text(config))
    else:
        folder = Folder.open(config["folder"])
        folder.hold()
        changes = configs.departures(config, configs.load(folder.config))
        if folder.last.exists() and (problems := _refused(changes, folder, data)):  # else nothing was trained yet
            folder.release()
            raise ConfigError(problems)
        if _is_done(config, folder.noted()):
            return folder
        for line in configs.changed((n, c) for n, c in changes.items() if n != "folder"):
            notify(f"changed since the run was cut: {line}")
        folder.write_config(configs.to_text(config))
    keep(data, folder.path)
    return folder


def _refused(changes: dict[str, tuple[Any, Any]], folder: Folder, data: Any) -> list[str]:
    """What a run that is resumed may not have otherwise than before."""
    as_it_began = f"the run in {folder.path} began: a run goes on as it began"
    problems = [
        f"{name}: {new!r} is not {old!r}, with which {as_it_began}"
        for name, (old, new) in changes.items()
        if name in FIXED or not name.startswith(FREE)
    ]
    if folder.recorded().get("data", data.fingerprint) != data.fingerprint:
        problems.append(f"data: its files hold something else than what {as_it_began}")
    return problems


def _is_done(config: dict[str, Any], noted: dict[str, Any]) -> bool:
    stopped_early = noted["message"] == NO_IMPROVEMENT and config["trainer"]["early_stopping"] is not None
    return noted["state"] == "finished" and (noted["step"] >= config["trainer"]["max_steps"] or stopped_early)


# ---------------------------------------------------------------------------------------------------------------------
# Training


def _run(
    config: dict[str, Any], folder: Folder, data: Any, task: Task, trainer: Trainer, resume: bool, notify: Notify
) -> Result:
    is_main = notify is not _silent
    start = read_checkpoint(folder.last)["global_step"] if resume and folder.last.exists() else 0
    csv = CsvLogger(folder.metrics, after=start)
    tracking = Tracking(config["tracker"], configs.flatten(config), folder, notify)
    outcome: tuple[State, str | None] = ("failed", None)
    trainer.loggers = [csv, WandbLogger(tracking), *trainer.loggers]
    try:
        with quiet():
            if is_main:
                folder.note("running", start)
                folder.record(*_settings(config, task.model, trainer), data.fingerprint)
                csv.open()
                tracking.start(read_metrics(folder.metrics) if resume else ())
            module = BatchModule(data, seed=config["seed"], num_workers=config["trainer"]["num_workers"])
            trainer.fit(task, datamodule=module, ckpt_path=folder.last if start else None, weights_only=True)
        outcome = _ended(trainer)
    except Diverged as diverged:
        outcome = "diverged", str(diverged)
        notify(str(diverged))
    except Stopped as stopped:
        outcome = "stopped", str(stopped)
        notify(f"{stopped}; go on with --resume")
    except BaseException as error:
        outcome = "failed", f"{type(error).__name__}: {error}"
        raise
    finally:
        if is_main:
            folder.note(outcome[0], trainer.global_step or start, outcome[1])
            tracking.finish(int(outcome[0] in ("failed", "diverged")))
    result = _result(folder, *outcome)
    if outcome[0] == "finished":
        early = f" ({outcome[1]})" if outcome[1] else ""
        shown = next((n for n in ("val/loss", "train/loss") if n in result.metrics), None)
        loss = f"{shown} {result.metrics[shown]:.4f}; " if shown else ""
        notify(f"finished{early}: {loss}the run is in {folder.path}")
    return result


def _ended(trainer: Trainer) -> tuple[State, str | None]:
    """How a training that raised nothing came to its end.

    Raises:
        Stopped: Its time was up.
    """
    step, last = trainer.global_step, trainer.max_steps
    if step >= last:
        return "finished", None
    if stopped_early(trainer):
        return "finished", NO_IMPROVEMENT
    timers = [callback for callback in trainer.callbacks if isinstance(callback, Timer)]  # type: ignore[attr-defined]
    left = [timer.time_remaining() for timer in timers]  # None: without a limit
    if any(seconds is not None and seconds <= 0 for seconds in left):
        raise Stopped(step, "trainer.max_time says")
    return "finished", f"a callback ended it at step {step} of {last}"


def task_of(config: dict[str, Any], data: Any, known: dict[str, Any]) -> Task:
    """The model with its initial values, and how it is trained."""
    model = build(config["model"], seed=config["seed"], **known)
    if config["trainer"]["compile"]:
        for module in model.modules():
            if isinstance(module, Layer):  # layer by layer: fast to compile, and no name changes
                module.compile()
    optimiser: Any = slots.optimisers.build(config["optimiser"])
    offers = {"lr": optimiser.lr, "d_model": config["model"]["d_model"], "max_steps": config["trainer"]["max_steps"]}
    objective: Any = slots.objectives.build(config["objective"] or model.objective)  # type: ignore[arg-type]
    facts = {"config": config, "known": {k: v for k, v in known.items() if k not in ("device", "checkpoint_every")}}
    return Task(
        model,
        objective,
        optimiser,
        slots.schedules.build(config["schedule"], **offers),
        seed=config["seed"],
        nominal=float(data.batch_size * data.length),
        log_every=config["trainer"]["log_every_n_steps"],
        facts=facts,
    )


def trainer_of(config: dict[str, Any], folder: Folder, loggers: list[Any], notify: Notify) -> Trainer:
    """Lightning's trainer, with what a run needs of it; writes nothing yet.

    Raises:
        ConfigError: Lightning refuses a field, in its own words.
    """
    fields = config["trainer"]
    callbacks: list[Any] = [slots.callbacks.build(node) for node in fields["callbacks"]]
    if fields["early_stopping"] is not None:
        callbacks.append(EarlyStopping("val/loss", patience=fields["early_stopping"], mode="min"))
    if fields["enable_progress_bar"]:
        callbacks.append(ProgressBar(notify))
    callbacks.append(Checkpoints(folder, fields["checkpoint_interval"]))
    assert all(isinstance(callback, Callback) for callback in callbacks)
    defaults: dict[str, Any] = {
        "max_epochs": -1,
        "check_val_every_n_epoch": None,  # the validation interval counts through the whole run
        "num_sanity_val_steps": 0,
        "use_distributed_sampler": False,  # each rank takes its stripe of a batch
        "enable_checkpointing": False,
        "enable_model_summary": False,
        "enable_progress_bar": False,
        "default_root_dir": folder.path,
        "plugins": [SafeCheckpointIO()],
    }
    if SLURMEnvironment.detect():  # whoever submits a run resumes it; Lightning would requeue it by itself as well
        defaults["plugins"] = [SafeCheckpointIO(), SLURMEnvironment(auto_requeue=False)]
    passed_on = {name: value for name, value in fields.items() if name not in OURS}
    loggers = [*loggers, *(slots.loggers.build(node) for node in fields["loggers"])]
    made = {"strategy": _strategy(fields["strategy"]), "logger": loggers, "callbacks": callbacks}
    try:
        return Trainer(**{**defaults, **passed_on, **made})
    except (ValueError, TypeError, MisconfigurationException) as error:
        raise ConfigError([f"trainer: {' '.join(str(error).split())}"]) from error


def _strategy(value: Any) -> Any:
    name = value["name"] if isinstance(value, dict) else value
    return slots.strategies.build(value) if name in slots.strategies.choices else name


def _settings(config: dict[str, Any], model: nn.Module, trainer: Trainer) -> tuple[dict[str, Any], dict[str, Any]]:
    """What was asked for, and what is done."""
    fields = config["trainer"]
    names = ("accelerator", "devices", "strategy", "precision", "gradient_checkpointing", "compile")
    requested = {"kernel": config["model"]["kernel"], **{name: fields[name] for name in names}}
    effective = {
        "kernel": effects.kernels_of(model),
        "accelerator": trainer.strategy.root_device.type,
        "devices": trainer.num_devices,
        "strategy": type(trainer.strategy).__name__,
        "precision": trainer.precision,
        "gradient_checkpointing": fields["gradient_checkpointing"],
        "compile": fields["compile"],
        "without_effect": effects.without_effect(model),
        "torch": torch.__version__,
    }
    return requested, effective


def _result(folder: Folder, status: State, message: str | None) -> Result:
    metrics: dict[str, float] = {}
    for row in read_metrics(folder.metrics):
        metrics |= row
    return Result(folder.path, metrics, status, message)


@contextlib.contextmanager
def _of_the_data() -> Iterator[None]:
    """Say of an error that it is in the data."""
    try:
        yield
    except ValueError as error:
        raise ConfigError([f"data: {error}"]) from None


def _silent(message: str) -> None:
    """Say nothing: the main process speaks."""


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep Lightning's banners and its advice on what is meant so here from a user's terminal."""
    loggers = [logging.getLogger(name) for name in ("lightning.pytorch", "lightning.fabric")]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        for message in (
            ".*does not have many workers",
            ".*num_workers",
            ".*sync_dist=True",
            ".*in eval mode at the start of training",
            ".*is smaller than the logging interval",
            ".*GPU available but not used",
            ".*callbacks used to create the checkpoint",  # a run may go on without
            ".*`srun` command is available",
            ".*isinstance.treespec, LeafSpec.. is deprecated",
        ):
            warnings.filterwarnings("ignore", message)
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)
