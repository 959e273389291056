"""When a run is saved, and how: in one piece, as plain values that load safely."""

from __future__ import annotations

import math
import signal
import threading
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.plugins.io import TorchCheckpointIO

from variants.training.files import replacing
from variants.training.folder import Folder


class Stopped(Exception):  # noqa: N818  # it is no error: somebody asked for it
    """The run was to stop before its end, and has saved itself.

    Args:
        step: The last update.
        why: Who asked for it.
    """

    def __init__(self, step: int, why: str = "a signal asked") -> None:
        self.step = step
        super().__init__(f"stopped after step {step}, as {why}")


class SafeCheckpointIO(TorchCheckpointIO):
    """Write a checkpoint in one piece, and load it without running what is in it."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None) -> None:
        """Write the file beside its place first, so that a kill leaves the old one."""
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        with replacing(Path(path)) as file:
            torch.save(checkpoint, file)

    def load_checkpoint(
        self, path: str | Path, map_location: Any = "cpu", weights_only: bool | None = True
    ) -> dict[str, Any]:
        """Load tensors and plain values alone."""
        return read_checkpoint(Path(path))


def read_checkpoint(path: Path) -> dict[str, Any]:
    """A checkpoint on the CPU: ``state_dict``, ``global_step``, and ``facts``, which has the ``config``."""
    read: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    return read


class Checkpoints(Callback):
    """Save the run every so many updates, at its end and when a signal asks it to stop; keep the best weights too.

    A checkpoint is made at the door of the next update, when all of the last one is done, its validation included.

    Args:
        folder: The run's.
        every: Updates between two saves.
    """

    def __init__(self, folder: Folder, every: int) -> None:
        self.folder, self.every = folder, every
        self.best = math.inf

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Listen to SIGTERM and SIGINT; Lightning puts the old handlers back."""
        self.saved = trainer.global_step

        def ask(number: int, frame: Any) -> None:
            pl_module.stop_requested = True  # type: ignore[assignment]
            signal.signal(number, signal.SIG_DFL if number == signal.SIGTERM else signal.default_int_handler)

        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, ask)
            signal.signal(signal.SIGINT, ask)

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Save what is due.

        Raises:
            Stopped: All ranks agree to stop.
        """
        step = trainer.global_step
        if batch_idx % trainer.accumulate_grad_batches:
            return
        if step != self.saved and (pl_module.stopping or step % self.every == 0):
            self._save(trainer)
        if pl_module.stopping:
            raise Stopped(step)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Save the end."""
        if trainer.global_step != self.saved:
            self._save(trainer)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Keep the weights of the lowest loss; NaN is never the lowest."""
        loss = float(trainer.callback_metrics.get("val/loss", math.nan))
        if loss < self.best:
            self.best = loss
            trainer.save_checkpoint(self.folder.best, weights_only=True)

    def state_dict(self) -> dict[str, Any]:
        """The lowest loss so far."""
        return {"best": self.best}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from it."""
        self.best = state_dict["best"]

    def _save(self, trainer: Trainer) -> None:
        trainer.save_checkpoint(self.folder.last)
        self.saved = trainer.global_step
