"""Text files of any size, read in pieces."""

from __future__ import annotations

import codecs
import gzip
import os
import zlib
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from io import BufferedIOBase
from pathlib import Path

from variants.errors import unknown

SETS = Path(__file__).parent / "sets"
SHIPPED = "set:"
BLOCK = 1 << 20  # bytes read at once
LONGEST = 1 << 14  # characters of a piece; a longer line is given in several


def text_files(path: str, field: str = "path") -> list[Path]:
    """The files that a path means: a file, or all ``.txt`` and ``.gz`` inside a folder, sorted.

    Args:
        path: A file, a folder, or ``set:`` and the name of a shipped set.
        field: What the path is called in a config.

    Raises:
        ValueError: There is no such file, folder or set; a folder holds no text; a file is empty or cannot be read.
    """
    place = _shipped(path.removeprefix(SHIPPED), field) if path.startswith(SHIPPED) else Path(path).expanduser()
    if not place.exists():
        raise ValueError(f"{field}={path}: no such file or folder")
    files = [place]
    if place.is_dir():
        files = sorted((f for f in place.rglob("*") if f.suffix in (".txt", ".gz") and f.is_file()), key=Path.as_posix)
    if not files:
        raise ValueError(f"{field}={path}: the folder holds no .txt or .gz file")
    for file in files:
        if not os.access(file, os.R_OK):
            raise ValueError(f"{field}={path}: {file} cannot be read")
    if not any(file.stat().st_size for file in files):
        raise ValueError(f"{field}={path}: empty")
    return files


def _shipped(name: str, field: str) -> Path:
    names = sorted(folder.name for folder in SETS.iterdir() if folder.is_dir())
    if name not in names:
        raise ValueError(f"{field}={SHIPPED}{name}: {unknown('data set', name, names)}")
    return SETS / name


def fingerprint(files: Sequence[Path], *options: object) -> str:
    """Hash what files hold, and options beside them."""
    digest = blake2b(repr(options).encode(), digest_size=16)
    for file in files:
        digest.update(f"{file.suffix} {file.stat().st_size} ".encode())
        with file.open("rb") as opened:
            while block := opened.read(BLOCK):
                digest.update(block)
    return digest.hexdigest()


def blocks(file: Path, field: str = "path") -> Iterator[str]:
    """The text of a file, about a megabyte at a time; a name in ``.gz`` is unpacked.

    Raises:
        ValueError: It is not UTF-8, or not gzip.
    """
    decoder = codecs.getincrementaldecoder("utf-8")()
    read = 0
    with _opened(file) as opened:
        while True:
            pending = len(decoder.getstate()[0])
            try:
                block = opened.read(BLOCK)
                text = decoder.decode(block, final=not block)
            except UnicodeDecodeError as error:
                raise ValueError(f"{field}: {file} is not UTF-8 at byte {read - pending + error.start}") from error
            except (gzip.BadGzipFile, zlib.error, EOFError) as error:
                raise ValueError(f"{field}: {file} is no gzip file, though its name ends in .gz: {error}") from error
            if not block:
                return
            read += len(block)
            yield text


def _opened(file: Path) -> BufferedIOBase:
    return gzip.open(file, "rb") if file.suffix == ".gz" else file.open("rb")


def lines(file: Path, field: str = "path") -> Iterator[str]:
    r"""The lines of a file with their ``\n``, long ones in several pieces; joined, they are the file."""
    rest = ""
    for block in blocks(file, field):
        *whole, rest = (rest + block).split("\n")
        for line in whole:
            yield from _cut(line + "\n")
        if len(rest) > LONGEST:
            *pieces, rest = _cut(rest)
            yield from pieces
    if rest:
        yield from _cut(rest)


def _cut(line: str) -> Iterator[str]:
    return (line[start : start + LONGEST] for start in range(0, len(line), LONGEST))
