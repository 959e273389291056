"""What a launcher is given: runs that have work to do, each a file that a worker reads.

A launcher starts ``job.command`` for every job, wherever and whenever it likes, and returns when none is running any
more. It calls ``watch()`` a few times a second; once that says False, it starts no more and asks those that run to
stop (SIGTERM: they save themselves). What became of a run stands in its folder and is not told; a launcher only calls
``job.close(reason)`` when a process is gone, which may not have had the time to say so.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from variants.training.files import write
from variants.training.folder import Folder

Watch = Callable[[], bool]

FINISHED, FAILED, STOPPED = 0, 1, 3  # exit statuses of a worker; a run that diverged has finished
DONE = ("finished", "diverged")  # states that no launch changes


@dataclass(frozen=True)
class Job:
    """A run to be carried out in a process of its own.

    Attributes:
        name: What it is called in messages: the arm, the stage and the seed.
        folder: The run's.
        max_steps: The updates that it takes.
    """

    name: str
    folder: Path
    max_steps: int

    @property
    def file(self) -> Path:
        """What the worker reads. Beside the folder, which holds the run and nothing else."""
        return self.beside("job.yaml")

    @property
    def log(self) -> Path:
        """All that the run prints, over all its attempts."""
        return self.beside("log")

    @property
    def command(self) -> list[str]:
        """What carries out the run, or goes on with it."""
        return [sys.executable, "-m", "variants.ablation.worker", str(self.file)]

    def beside(self, ending: str) -> Path:
        """A file beside the run's folder, of its name and this ending."""
        return self.folder.with_name(f"{self.folder.name}.{ending}")

    def prepare(self, config: Mapping[str, Any], evaluate: Mapping[str, Any], imports: Sequence[str]) -> None:
        """Write down what the worker needs.

        Args:
            config: The run's, complete.
            evaluate: Name to the complete config on which the trained run is evaluated.
            imports: Modules that register components.
        """
        from variants import config as configs  # OmegaConf takes its time

        self.folder.parent.mkdir(parents=True, exist_ok=True)
        write(self.file, configs.to_text({"imports": list(imports), "config": config, "evaluate": dict(evaluate)}))

    def noted(self) -> dict[str, Any]:
        """What became of the run: ``state``, ``step`` and ``message``."""
        try:
            return Folder(self.folder).noted()
        except (ValueError, OSError):  # damaged: the run goes on from its checkpoint, and notes its state again
            return {"state": "prepared", "step": 0, "message": "status.json is damaged"}

    def fail(self, reason: str) -> None:
        """Note a failure that came before there was a run."""
        self.folder.mkdir(parents=True, exist_ok=True)
        Folder(self.folder).note("failed", 0, reason)

    def close(self, reason: str) -> None:
        """Note that the run's process is gone, where it did not say what became of the run."""
        noted = self.noted()
        if not Folder(self.folder).config.is_file():
            if noted["state"] != "failed":
                self.fail(reason)
        elif noted["state"] in ("prepared", "running"):
            Folder(self.folder).note("stopped", noted["step"], reason)

    def last_lines(self, count: int = 5) -> list[str]:
        """The end of the log."""
        if not self.log.is_file():
            return []
        with self.log.open("rb") as file:
            file.seek(max(0, self.log.stat().st_size - 8192))
            lines = file.read().decode("utf-8", "replace").splitlines()
        return [line for line in lines if line.strip()][-count:]
