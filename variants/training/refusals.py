"""What would be refused of a run besides its config: asked before anything slow begins, so that all is said at once."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from variants import slots
from variants.data.base import Notify, silent
from variants.data.order import check_world
from variants.errors import attempt, is_wrong
from variants.imports import uncollected
from variants.options import STRATEGIES, Trainer
from variants.registry import fields_of
from variants.relations import trainable
from variants.training.folder import Folder

# What a config says of Lightning's trainer and only Lightning can judge.
LIGHTNINGS = ("devices", "num_nodes", "limit_val_batches")


def others(config: Mapping[str, Any], *, resume: bool = False, notify: Notify = silent) -> list[str]:
    """What is wrong with a run's folder, with data that are quickly read, and with what is passed on to Lightning.

    And whether there is an objective, which explaining a model does without.

    Writes nothing, but what the data cache.

    Args:
        config: With `variants.errors.WRONG` where something is wrong.
        resume: Whether the folder should hold a run.
        notify: Hears how the data come along.
    """
    problems: list[str] = []
    attempt(problems, "", partial(trainable, config))
    data: Any = attempt([], "", lambda: slots.data.build(config["data"]))
    if getattr(data, "quick", False):
        attempt(problems, "data", partial(data.prepare, notify))
    if config["folder"] is not None and not is_wrong(config["folder"]):
        attempt(problems, "", partial(Folder.check, config["folder"], resume=resume))
    fields = fields_of(Trainer)
    said = {name: value for name, value in config["trainer"].items() if not is_wrong(value)}
    if any(name not in fields or (name in LIGHTNINGS and said[name] != fields[name].default) for name in said):
        with uncollected():
            from variants.training.run import quiet, trainer_of

        trainer = {name: said.get(name, field.default) for name, field in fields.items()} | said
        with quiet():
            made = attempt(problems, "", lambda: trainer_of({"trainer": trainer}, Folder(Path()), [], print))
        if not is_wrong(made) and not is_wrong(data) and trainer["strategy"] in STRATEGIES:
            ranks = made.num_devices * made.num_nodes
            attempt(problems, "data", partial(check_world, data.batch_size, ranks))
    return problems
