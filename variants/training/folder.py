"""A run's folder: all that a run is known by, and nobody else's while it runs."""

from __future__ import annotations

import errno
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
    for, what was done and a fingerprint of the data, ``metrics.csv`` its history, ``checkpoints/`` its weights.
    """

    path: Path
    _lock: int | None = field(default=None, repr=False)

    @classmethod
    def check(cls, path: str | Path, *, resume: bool = False) -> None:
        """Look whether a run could begin in a folder, or go on there, and change nothing.

        Raises:
            ValueError: It cannot be made or written, holds something already, or holds no run to go on with.
        """
        folder = cls(Path(path))
        if resume:
            if not folder.config.is_file():
                raise ValueError(f"folder={path} holds no run that could be resumed: it has no config.yaml")
            return
        place = next(p for p in (folder.path, *folder.path.absolute().parents) if p.exists())
        if not place.is_dir():
            reason = errno.EEXIST if place == folder.path else errno.ENOTDIR
            raise ValueError(f"folder={path} cannot be made: {os.strerror(reason)}")
        if not os.access(place, os.W_OK | os.X_OK):
            raise ValueError(f"folder={path} cannot be written: {os.strerror(errno.EACCES)}")
        if folder.config.exists():
            raise ValueError(f"folder={path} holds a run already: resume it with --resume, or name another folder")
        strangers = [p.name for p in place.iterdir() if not p.name.startswith(".")] if place == folder.path else []
        if strangers:
            raise ValueError(f"folder={path} is no run's, but holds {min(strangers)!r}: name another folder")

    @classmethod
    def create(cls, path: str | Path, config: str) -> Folder:
        """Make a run's folder, and hold it.

        Args:
            path: Where.
            config: The text of ``config.yaml``.

        Raises:
            ValueError: It cannot be written, holds something already, or is another process's.
        """
        cls.check(path)
        folder = cls(Path(path))
        try:
            folder.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ValueError(f"folder={path} cannot be made: {error.strerror}") from None
        folder.hold()
        try:
            cls.check(path)  # while it was not held, another process may have begun
        except ValueError:
            folder.release()
            raise
        folder.write_config(config)
        folder.note("prepared")
        return folder

    @classmethod
    def open(cls, path: str | Path) -> Folder:
        """The folder of a run that is there, not held.

        Raises:
            ValueError: There is no run in it.
        """
        cls.check(path, resume=True)
        return cls(Path(path))

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

    def record(self, requested: dict[str, Any], effective: dict[str, Any], data: str | None = None) -> None:
        """Write down what was asked for beside what is done, and which data it is done with."""
        self._write_json(self.effective, {"requested": requested, "effective": effective, "data": data})

    def recorded(self) -> dict[str, Any]:
        """What was written down so; nothing before the run began to train."""
        read: dict[str, Any] = json.loads(self.effective.read_text()) if self.effective.exists() else {}
        return read

    def _write_json(self, path: Path, content: dict[str, Any]) -> None:
        write(path, json.dumps(content, indent=2) + "\n")
