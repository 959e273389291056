"""What a terminal shows of a training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


class ProgressBar(Callback):
    """Show the step, the losses, the speed and the time that is left; in a file, a line a validation.

    Args:
        notify: Takes a line, where there is no terminal.
        console: Where the bar is drawn.
    """

    def __init__(self, notify: Callable[[str], None] = print, console: Console | None = None) -> None:
        self.notify, self.console = notify, console or Console(stderr=True)
        self._bar: Progress | None = None
        self._shown: dict[str, float] = {}

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Draw the bar, from where the run goes on."""
        if not trainer.is_global_zero or not self.console.is_terminal:
            return
        columns = ("step", MofNCompleteColumn(), BarColumn(), TimeRemainingColumn(), TextColumn("{task.fields[shown]}"))
        self._bar = Progress(*columns, console=self.console, transient=False)
        self._task = self._bar.add_task("", total=trainer.max_steps, completed=trainer.global_step, shown="")
        self._bar.start()

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        """Move on."""
        self._show(trainer, pl_module)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Show the validation loss."""
        self._show(trainer, pl_module)
        if trainer.is_global_zero and self._bar is None:
            values = {"step": f"{trainer.global_step}/{trainer.max_steps}", **_formatted(self._shown)}
            self.notify("  ".join(f"{name} {value}" for name, value in values.items()))

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Leave the bar as it is."""
        self._stop()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Leave the bar as it is."""
        self._stop()

    def _show(self, trainer: Trainer, task: LightningModule) -> None:
        latest: dict[str, float] = getattr(task, "latest", {})
        self._shown |= {name: latest[name] for name in NAMES if name in latest}
        if self._bar is not None:
            shown = "  ".join(f"{name} {value}" for name, value in _formatted(self._shown).items())
            self._bar.update(self._task, completed=trainer.global_step, shown=shown)

    def _stop(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


NAMES = {"train/loss": ("loss", ".4f"), "val/loss": ("val loss", ".4f"), "tokens_per_second": ("tokens/s", ",.0f")}


def _formatted(values: dict[str, float]) -> dict[str, str]:
    return {label: f"{values[name]:{form}}" for name, (label, form) in NAMES.items() if name in values}
