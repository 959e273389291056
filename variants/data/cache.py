"""Results that took long to make, kept in a folder whose name says what they were made from."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock, Timeout
from platformdirs import user_cache_path

from variants.data.base import Notify, silent


def cache_folder() -> Path:
    """Where the cache lies: ``$VARIANTS_CACHE``, or the user's cache folder."""
    return Path(os.environ.get("VARIANTS_CACHE") or user_cache_path("variants"))


def cached(key: str, make: Callable[[Path], None], notify: Notify = silent) -> Path:
    """Give the folder of that key, made first if it is not there.

    It appears whole or not at all. Of several processes that ask at once, one makes it and the others wait.

    Args:
        key: Says everything that the result depends on: ``kind/hash``.
        make: Fills an empty folder.
        notify: Hears that another process is making it.

    Raises:
        ValueError: The cache folder cannot be written.
    """
    folder = cache_folder() / key
    if folder.is_dir():
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder.parent):
            pass
    except OSError as error:
        raise ValueError(f"VARIANTS_CACHE={cache_folder()}: must be writable, but: {error.strerror}") from error

    lock = FileLock(f"{folder}.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        notify("waiting for another process, which is preparing the same data")
        lock.acquire()
    try:
        if not folder.is_dir():
            _fill(folder, make)
    finally:
        lock.release()
    return folder


def _fill(folder: Path, make: Callable[[Path], None]) -> None:
    unfinished = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", dir=folder.parent))
    try:
        make(unfinished)
        unfinished.rename(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
