"""Where a run's metrics go: a CSV file always, and wandb."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import Logger
from lightning.pytorch.utilities import rank_zero_only

from variants.training.metrics import MetricsFile
from variants.training.tracking import Tracking


class CsvLogger(Logger):
    """Write metrics to a CSV file, a row a logged step.

    Args:
        path: Of the file.
        after: The step at which the run goes on; what it logged after that is dropped.
    """

    name, version = "csv", None

    def __init__(self, path: Path, after: int = 0) -> None:
        super().__init__()
        self.path, self.after = path, after
        self._file: MetricsFile | None = None

    @rank_zero_only
    def open(self) -> None:
        """Drop the rows of later steps, also where none will follow."""
        self._file = MetricsFile(self.path, self.after)

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Add a row, or to the last one."""
        if self._file is None:
            self.open()
        assert self._file is not None
        assert step is not None
        self._file.add(step, metrics)

    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        """Do nothing: the folder holds the config."""


class WandbLogger(Logger):
    """Give metrics to wandb.

    Args:
        tracking: The run's.
    """

    name, version = "wandb", None

    def __init__(self, tracking: Tracking) -> None:
        super().__init__()
        self.tracking = tracking

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Add a row, with its step as one of its values."""
        self.tracking.log({"step": step, **metrics})

    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        """Do nothing: wandb has the config since its start."""
