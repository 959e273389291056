"""Callbacks for the tests of sweeps: a run that raises in the middle, and one that takes its time."""

import time

from lightning.pytorch import Callback

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


@callbacks.register("slow")
class Slow(Callback):
    """Wait before each update."""

    def __init__(self, *, seconds: float = 0.3) -> None:
        self.seconds = seconds

    def on_train_batch_start(self, *_):
        time.sleep(self.seconds)
