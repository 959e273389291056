"""Callbacks for tests of runs: one that raises, one that ends early, one that takes its time, one that signs in."""

import json
import os
import time
from pathlib import Path

from lightning.pytorch import Callback
from lightning.pytorch.callbacks import Timer

from variants import config as configs
from variants.slots import callbacks


@callbacks.register("raising")
class Raising(Callback):
    """Raise after an update; after update 0, before there is any."""

    def __init__(self, *, at: int = 2) -> None:
        self.at = at

    def on_train_start(self, *_):
        if self.at == 0:
            raise RuntimeError("raised before the first update")

    def on_train_batch_end(self, trainer, *_):
        if trainer.global_step == self.at:
            raise RuntimeError(f"raised after update {self.at}")


@callbacks.register("ending")
class Ending(Callback):
    """End the training after an update."""

    def __init__(self, *, at: int = 2) -> None:
        self.at = at

    def on_train_batch_end(self, trainer, *_):
        if trainer.global_step == self.at:
            trainer.should_stop = True


@callbacks.register("clock")
class Clock(Timer):
    """Tell the time, without a limit."""

    def __init__(self) -> None:
        super().__init__(duration=None)


@callbacks.register("slow")
class Slow(Callback):
    """Wait before each update."""

    def __init__(self, *, seconds: float = 0.3) -> None:
        self.seconds = seconds

    def on_train_batch_start(self, *_):
        time.sleep(self.seconds)


@callbacks.register("signing")
class Signing(Callback):
    """Write down each process that trains: when it began and ended, its run's folder, and what it was told to train."""

    def __init__(self, *, path: str) -> None:
        self.path = path

    def on_train_start(self, trainer, task):
        self.began = time.time()

    def on_train_end(self, trainer, task):
        config = task.facts["config"]
        signed = {"began": self.began, "ended": time.time(), "rank": trainer.global_rank, "of": trainer.world_size}
        signed |= {"folder": config["folder"], "identity": configs.identity(config)}
        Path(self.path, f"{os.getpid()}.json").write_text(json.dumps(signed))
