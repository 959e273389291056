"""How a run is carried out and where it is logged: the fields of ``trainer`` and ``tracker``."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from variants import slots
from variants.errors import WRONG, ConfigError, Undecided, attempt, is_wrong, unknown
from variants.imports import uncollected
from variants.registry import check_fields, fields_of


@dataclass(frozen=True, kw_only=True)
class Trainer:
    """How a run is carried out: Lightning's own names, and below them what Lightning lacks.

    Any other argument of ``lightning.Trainer`` is passed on as it is, but for those that a run decides itself.

    Args:
        max_steps: Optimiser updates.
        accelerator: ``cpu``, ``gpu``, ``auto``, ...
        devices: How many, or which.
        num_nodes: Machines.
        strategy: ``auto``, ``ddp``, or a registered one.
        precision: ``32-true``, ``bf16-mixed``, ``bf16-true`` or ``16-mixed``.
        accumulate_grad_batches: Micro-batches of one update.
        gradient_clip_val: Largest norm of all gradients together; None: no limit.
        val_check_interval: Micro-batches between two validations.
        limit_val_batches: Batches of a validation, or a share of them; None: all; 0: there is none.
        log_every_n_steps: Updates between two logged rows.
        enable_progress_bar: Whether to show one.
        callbacks: Registered callbacks.
        loggers: Registered loggers, beside CSV and wandb.
        gradient_checkpointing: Which layers are recomputed in the backward pass: ``none``, ``full``, or ``every_N``.
        checkpoint_interval: Updates between two checkpoints.
        early_stopping: Validations without improvement after which the run ends; None: never.
        num_workers: Processes that load data.
        compile: Whether to compile the model with ``torch.compile``.
    """

    max_steps: int = 1000
    accelerator: str = "auto"
    devices: int | str | list[int] = 1
    num_nodes: int = 1
    strategy: str | dict[str, Any] = "auto"
    precision: str = "32-true"
    accumulate_grad_batches: int = 1
    gradient_clip_val: float | None = 1.0
    val_check_interval: int = 100
    limit_val_batches: int | float | None = None
    log_every_n_steps: int = 10
    enable_progress_bar: bool = True
    callbacks: list[Any] = ()  # type: ignore[assignment]
    loggers: list[Any] = ()  # type: ignore[assignment]
    gradient_checkpointing: str = "none"
    checkpoint_interval: int = 100
    early_stopping: int | None = None
    num_workers: int = 0
    compile: bool = False


@dataclass(frozen=True, kw_only=True)
class Tracker:
    """Where a run is logged besides its CSV file: wandb's own names.

    Args:
        mode: ``online`` falls back to offline where there is no account or no network.
        project: The project.
        entity: The user or team.
        name: The run's name; None: its folder's.
        group: What runs are grouped by.
        job_type: What a run is in its group.
        tags: Tags.
        notes: Notes.
    """

    mode: Literal["online", "offline", "disabled"] = "offline"
    project: str = "variants"
    entity: str | None = None
    name: str | None = None
    group: str | None = None
    job_type: str | None = None
    tags: list[str] = ()  # type: ignore[assignment]
    notes: str | None = None


def _defaults(schema: Any) -> dict[str, Any]:
    return {n: list(f.default) if isinstance(f.default, tuple) else f.default for n, f in fields_of(schema).items()}


# Those of Lightning that keep every parameter whole on each device: the gradient norm and the checkpoints count on it.
STRATEGIES = ("auto", "ddp", "ddp_find_unused_parameters_false", "ddp_find_unused_parameters_true")
_COUNTS = ("max_steps", "accumulate_grad_batches", "val_check_interval", "log_every_n_steps", "checkpoint_interval")
_LEAST = {**dict.fromkeys(_COUNTS, 1), "early_stopping": 1, "num_workers": 0}
_LENGTH = "a run is one epoch, as long as max_steps says"
# What Lightning knows and a run decides itself, and what to say instead.
_OWNED = {
    **dict.fromkeys(("max_epochs", "min_epochs", "min_steps", "fast_dev_run", "overfit_batches"), _LENGTH),
    **dict.fromkeys(("limit_train_batches", "reload_dataloaders_every_n_epochs"), _LENGTH),
    **dict.fromkeys(("limit_test_batches", "limit_predict_batches"), "a run trains and validates"),
    "check_val_every_n_epoch": "val_check_interval counts micro-batches through the whole run",
    "num_sanity_val_steps": "the first validation is after val_check_interval micro-batches",
    "logger": "further loggers are listed in loggers",
    "enable_checkpointing": "a run is always saved, every checkpoint_interval updates",
    "default_root_dir": "a run's folder is folder=...",
    "use_distributed_sampler": "each rank takes its stripe of a batch",
    "plugins": "they are objects, which no config can say",
    "barebones": "a run is logged and saved",
}


def check_tracker(values: Mapping[str, Any]) -> dict[str, Any]:
    """Give every field of a tracker its type and its default.

    Raises:
        ConfigError: A line for everything that is wrong.
    """
    problems: list[str] = []
    typed = attempt(problems, "", lambda: check_fields(values, fields_of(Tracker), "a tracker"))
    if problems:
        raise ConfigError(problems, {**_defaults(Tracker), **typed})
    return {**_defaults(Tracker), **typed}


def check_trainer(values: Mapping[str, Any]) -> dict[str, Any]:
    """Give every field of a trainer its type and its default, and pass on what Lightning knows.

    Raises:
        ConfigError: A line for everything that is wrong.
    """
    problems: list[str] = []
    fields = fields_of(Trainer)
    ours = {name: value for name, value in values.items() if name in fields}
    others = {name: value for name, value in values.items() if name not in fields}
    typed = {**_defaults(Trainer), **attempt(problems, "", lambda: check_fields(ours, fields, "a trainer"))}
    for name in [name for name in others if name in _OWNED]:
        problems.append(f"{name}: {_OWNED[name]}")
        del others[name]
    if others:
        with uncollected():
            from lightning import Trainer as LightningTrainer  # only where it is asked for

        lightnings = set(inspect.signature(LightningTrainer).parameters)
        known = (lightnings | set(fields)) - set(_OWNED)
        for name in set(others) - known:
            problems.append(f"{name}: {unknown('field of a trainer', name, known)}")
            del others[name]
    known_values = {name: value for name, value in typed.items() if value is not None and not is_wrong(value)}
    for name, least in _LEAST.items():
        if known_values.get(name, least) < least:
            problems.append(f"{name}: {typed[name]} must be at least {least}")
            typed[name] = WRONG
    if known_values.get("gradient_clip_val", 1) <= 0:
        problems.append(f"gradient_clip_val: {typed['gradient_clip_val']} must be above 0; null is no limit")
        typed["gradient_clip_val"] = WRONG
    every = partial(checkpoint_every, typed["gradient_checkpointing"])
    if is_wrong(attempt(problems, "gradient_checkpointing", every)):
        typed["gradient_checkpointing"] = WRONG
    typed["strategy"] = attempt(problems, "strategy", partial(_checked_strategy, typed["strategy"]))
    for name, slot in (("callbacks", slots.callbacks), ("loggers", slots.loggers)):
        if not is_wrong(typed[name]):
            typed[name] = [attempt(problems, f"{name}.{i}", partial(slot.check, n)) for i, n in enumerate(typed[name])]
    if problems:
        raise ConfigError(problems, typed | others)
    return typed | others


def _checked_strategy(value: str | Mapping[str, Any]) -> Any:
    if value in STRATEGIES or is_wrong(value):
        return value
    name = value if isinstance(value, str) else value.get("name")
    if not isinstance(name, str) or name not in slots.strategies.choices:
        hint = "; none of Lightning's that shard parameters" if str(name).startswith(("fsdp", "deepspeed")) else ""
        raise ValueError(unknown("strategy", name, [*STRATEGIES, *slots.strategies.choices], hint))
    slots.strategies.check(value)
    return value


def checkpoint_every(gradient_checkpointing: str) -> int:
    """How often a layer is recomputed: 0 never, 1 every one.

    >>> checkpoint_every("every_3")
    3
    """
    if is_wrong(gradient_checkpointing):
        raise Undecided
    word, _, number = gradient_checkpointing.partition("_")
    if gradient_checkpointing in ("none", "full"):
        return int(gradient_checkpointing == "full")
    if word == "every" and number.isdigit() and int(number) > 0:
        return int(number)
    raise ValueError(f"expected none, full or every_N, got {gradient_checkpointing!r}")
