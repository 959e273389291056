"""A run's folder: all that a run is known by, and nobody else's while it runs."""

from __future__ import annotations

import fcntl
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from variants.training.files import write

State = Literal["prepared", "running", "finished", "stopped", "failed", "diverged"]


@dataclass
class Folder:
    """Names the files of a run, and writes each in one piece.

    ``config.yaml`` is the resolved config, ``status.json`` what became of the run, ``effective.json`` what was asked
    for and what was done, ``metrics.csv`` its history, ``checkpoints/`` its weights.
    """

    path: Path
    _lock: int | None = field(default=None, repr=False)

    @classmethod
    def create(cls, path: str | Path, config: str) -> Folder:
        """Make a run's folder, and hold it.

        Args:
            path: Where.
            config: The text of ``config.yaml``.

        Raises:
            ValueError: It cannot be written, holds something already, or is another process's.
        """
        folder = cls(_made(Path(path)))
        folder.hold()
        if folder.config.exists():
            folder.release()
            raise ValueError(
                f"folder={folder.path} holds a run already: resume it with --resume, or name another folder"
            )
        folder.write_config(config)
        folder.note("prepared")
        return folder

    @classmethod
    def open(cls, path: str | Path) -> Folder:
        """The folder of a run that is there, not held.

        Raises:
            ValueError: There is no run in it.
        """
        folder = cls(Path(path))
        if not folder.config.is_file():
            raise ValueError(f"folder={path} holds no run that could be resumed: it has no config.yaml")
        return folder

    def hold(self) -> None:
        """Keep other processes out until this one ends.

        Raises:
            ValueError: Another process is in it, or it cannot be written.
        """
        try:
            lock = os.open(self.path / ".lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise ValueError(f"folder={self.path} cannot be written: {error.strerror}") from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise ValueError(f"folder={self.path} is in use: another process is training there") from None
        self._lock = lock
        for leftover in (*self.path.glob(".*.*"), *self.last.parent.glob(".*.*")):
            leftover.unlink()  # of a write that a kill cut

    def release(self) -> None:
        """Let other processes in."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    config = property(lambda self: self.path / "config.yaml")
    status = property(lambda self: self.path / "status.json")
    effective = property(lambda self: self.path / "effective.json")
    metrics = property(lambda self: self.path / "metrics.csv")
    last = property(lambda self: self.path / "checkpoints" / "last.ckpt")
    best = property(lambda self: self.path / "checkpoints" / "best.ckpt")

    def write_config(self, config: str) -> None:
        """Write down the run's config."""
        write(self.config, config)

    def note(self, state: State, step: int = 0, message: str | None = None) -> None:
        """Say what became of the run, and at which step."""
        self._write_json(self.status, {"state": state, "step": step, "message": message})

    def noted(self) -> dict[str, Any]:
        """What became of the run: its ``state``, ``step`` and ``message``."""
        nothing = {"state": "prepared", "step": 0, "message": None}
        read: dict[str, Any] = json.loads(self.status.read_text()) if self.status.exists() else nothing
        return read

    def record(self, requested: dict[str, Any], effective: dict[str, Any]) -> None:
        """Write down what was asked for beside what is done."""
        self._write_json(self.effective, {"requested": requested, "effective": effective})

    def _write_json(self, path: Path, content: dict[str, Any]) -> None:
        write(path, json.dumps(content, indent=2) + "\n")


def _made(path: Path) -> Path:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"folder={path} cannot be made: {error.strerror}") from None
    strangers = [p.name for p in path.iterdir() if not p.name.startswith(".")]
    if strangers and not (path / "config.yaml").exists():
        raise ValueError(f"folder={path} is no run's, but holds {min(strangers)!r}: name another folder")
    return path
