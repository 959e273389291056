"""Plain text for language modelling: tokenized once into a flat file, read from it in windows."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from variants.data.base import BOS, EOS, IGNORED, PAD, Batch, Data, Notify, Split, below_one, silent
from variants.data.cache import cached
from variants.data.files import blocks, fingerprint, lines, text_files
from variants.data.tokenizer import Tokenizer, check_vocab
from variants.errors import attempt, refuse
from variants.slots import data

FORMAT = 1  # of the cached files; raise it when what is written changes
SAMPLE = 10_000_000  # bytes of text, about, that a tokenizer is trained on
QUICK = 1_000_000  # bytes of text that are tokenized in seconds
TOLD = 100_000_000  # bytes between two notices

Line = tuple[int, str]  # with the number of its document


def lines_between(files: Sequence[Path], start: float, stop: float, field: str = "path") -> Iterator[Line]:
    """The lines that begin between two bytes, counted through all files, each file a document."""
    at = 0
    for number, file in enumerate(files):
        for line in lines(file, field):
            if start <= at < stop:
                yield number, line
            at += len(line.encode())


def sample(text: Iterator[Line], n_bytes: float) -> Iterator[str]:
    """About `SAMPLE` bytes of a text of ``n_bytes``, whole lines spread evenly over it; all of a shorter one."""
    seen = kept = 0
    for _, line in text:
        if kept * n_bytes <= seen * SAMPLE:
            kept += len(line.encode())
            yield line
        seen += len(line.encode())


def write_tokens(file: Path, text: Iterator[Line], tokenizer: Tokenizer, notify: Notify = silent) -> dict[str, int]:
    """Write every document's ids between begin and end, and count tokens, documents and bytes of text."""
    last, tokens, documents, n_bytes, told = -1, 0, 0, 0, 0
    dtype = dtype_of(tokenizer.vocab)
    with file.open("wb") as opened:
        while some := list(islice(text, 1024)):
            ids: list[int] = []
            for (number, line), encoded in zip(some, tokenizer.encode_lines([line for _, line in some]), strict=True):
                if number != last:
                    ids += [EOS, BOS] if documents else [BOS]
                    last, documents = number, documents + 1
                ids += encoded
                n_bytes += len(line.encode())
            np.array(ids, dtype).tofile(opened)
            tokens += len(ids)
            if n_bytes - told >= TOLD:
                told = n_bytes
                notify(f"tokenized {n_bytes / 1e6:.0f} MB of text")
        np.array([EOS], dtype).tofile(opened)
    return {"tokens": tokens + 1, "documents": documents, "bytes": n_bytes}


def dtype_of(vocab: int) -> str:
    """The smallest type that holds every id."""
    return "<u2" if vocab <= 1 << 16 else "<u4"


@functools.lru_cache(maxsize=8)  # one map a process, so that a split carries none to its workers
def tokens_of(file: Path, dtype: str) -> NDArray[np.unsignedinteger]:
    """The ids in a file, mapped into memory."""
    return np.memmap(file, dtype, "r")


class Windows(Split):
    """Windows of ``length`` tokens side by side, each predicting the tokens one further.

    Args:
        file: Ids, flat.
        vocab: Which decides how the file is read.
        n_tokens: Ids in the file.
        length: Tokens of a window.
        isolate: Whether documents do not see each other: the batch says which token is of which document, and the
            last token of one has no target in the next.
        ragged: Whether the last window may be short, so that every token is a target once; else the tokens after the
            last full window are not used.
    """

    def __init__(self, file: Path, vocab: int, n_tokens: int, length: int, *, isolate: bool, ragged: bool) -> None:
        self.file, self.dtype, self.length, self.isolate = file, dtype_of(vocab), length, isolate
        self.n_windows = -(-(n_tokens - 1) // length) if ragged else (n_tokens - 1) // length

    def __len__(self) -> int:
        return self.n_windows

    def batch(self, indices: Sequence[int]) -> Batch:
        """Ids, targets and, where they are isolated, documents."""
        tokens = tokens_of(self.file, self.dtype)
        rows = np.full((len(indices), self.length + 1), -1, np.int64)
        for row, i in zip(rows, indices, strict=True):
            window = tokens[i * self.length : (i + 1) * self.length + 1]
            row[: len(window)] = window
        ids, targets = np.where(rows < 0, PAD, rows)[:, :-1], np.where(rows < 0, IGNORED, rows)[:, 1:]
        if not self.isolate:
            return {"ids": torch.from_numpy(ids), "targets": torch.from_numpy(targets)}
        return {
            "ids": torch.from_numpy(ids),
            "targets": torch.from_numpy(np.where(targets == BOS, IGNORED, targets)),
            "documents": torch.from_numpy((ids == BOS).cumsum(1)),
        }


@data.register("text")
class Text(Data):
    """Plain text of any size: your own file or folder, or a set that ships.

    Every file is a document between begin and end; their tokens lie behind one another, and a window takes ``length``
    of them wherever it falls. The tokenizer is trained on the training text alone, on about 10 MB spread evenly over
    it if there is more. Tokens are cached by what the files hold and by the options of the tokenizer and the split.

    Args:
        path: A file (``.gz`` is unpacked), a folder whose ``.txt`` and ``.gz`` files are read in order of name, or
            ``set:`` and the name of a shipped set.
        validation: Share of the text, its tail from a line's start on, that is held out.
        validation_path: Validate on this file or folder instead, and train on the whole text.
        vocab: Entries of the vocabulary.
        tokenizer_type: How pieces are chosen.
        coverage: Share of the text's characters whose kind gets a piece; the rest is spelt in bytes.
        length: Tokens of a window.
        batch_size: Windows of one micro-batch, over all ranks.
        isolate: Whether documents in one window do not see each other; else a document may read the one before it.

    Raises:
        ValueError: ``path`` or ``validation_path`` has no text, or a number is out of its range.
    """

    kind = "language"

    def __init__(
        self,
        *,
        path: str,
        validation: float = 0.05,
        validation_path: str | None = None,
        vocab: int = 2048,
        tokenizer_type: Literal["unigram", "bpe"] = "unigram",
        coverage: float = 0.9995,
        length: int = 256,
        batch_size: int = 16,
        isolate: bool = False,
    ) -> None:
        problems = below_one(length=length, batch_size=batch_size)
        attempt(problems, "", functools.partial(check_vocab, vocab))
        if not 0 < validation < 1:
            problems.append(f"validation={validation}: must lie between 0 and 1; it is a share of the text")
        if not 0 < coverage <= 1:
            problems.append(f"coverage={coverage}: must be above 0 and at most 1; it is a share of the characters")
        self.files = attempt(problems, "", functools.partial(text_files, path))
        self.held_out: list[Path] = []
        if validation_path is not None:
            self.held_out = attempt(problems, "", functools.partial(text_files, validation_path, "validation_path"))
        refuse(*problems)
        self.quick = sum(file.stat().st_size for file in (*self.files, *self.held_out)) <= QUICK
        self.path, self.validation_share = path, validation
        self.vocab, self.tokenizer_type, self.coverage = vocab, tokenizer_type, coverage
        self.length, self.batch_size, self.isolate = length, batch_size, isolate

    def prepare(self, notify: Notify = silent) -> None:
        """Train the tokenizer and tokenize the text, or find both in the cache.

        Raises:
            ValueError: The text is empty, not UTF-8, too short for one window, or too small for the vocabulary.
        """
        share = None if self.held_out else self.validation_share
        options = FORMAT, len(self.files), share, self.vocab, self.tokenizer_type, self.coverage
        self.fingerprint = fingerprint([*self.files, *self.held_out], *options)
        folder = cached(f"text/{self.fingerprint}", functools.partial(self._make, notify=notify), notify)
        counts = json.loads((folder / "counts.json").read_text())
        train, validation = counts["train"], counts["validation"]
        if train["tokens"] <= self.length:
            raise ValueError(
                f"length={self.length}: a window and its last target need {self.length + 1} tokens, "
                f"but the training text of {self.path} has {train['tokens']}"
            )
        self.tokenizer = Tokenizer.load(folder / "tokenizer.model")
        self.train = Windows(
            folder / "train.bin", self.vocab, train["tokens"], self.length, isolate=self.isolate, ragged=False
        )
        self.validation = Windows(
            folder / "validation.bin", self.vocab, validation["tokens"], self.length, isolate=self.isolate, ragged=True
        )
        n_targets = validation["tokens"] - (validation["documents"] if self.isolate else 1)
        self.bytes_per_target = validation["bytes"] / n_targets

    def _make(self, folder: Path, notify: Notify) -> None:
        n_bytes = sum(len(block.encode()) for file in self.files for block in blocks(file))
        if not n_bytes:
            raise ValueError(f"path={self.path}: empty")
        cut = n_bytes if self.held_out else n_bytes * (1 - self.validation_share)

        notify(f"training a tokenizer of {self.vocab} pieces on {min(cut, SAMPLE) / 1e6:.1f} MB of text")
        pieces = sample(lines_between(self.files, 0, cut), cut)
        tokenizer = Tokenizer.train(pieces, self.vocab, self.tokenizer_type, self.coverage)
        tokenizer.save(folder / "tokenizer.model")

        notify(f"tokenizing {n_bytes / 1e6:.1f} MB of text")
        held_out = self.held_out or self.files
        start, field = (0, "validation_path") if self.held_out else (cut, "path")
        tail = lines_between(held_out, start, float("inf"), field)
        counts = {
            "train": write_tokens(folder / "train.bin", lines_between(self.files, 0, cut), tokenizer, notify),
            "validation": write_tokens(folder / "validation.bin", tail, tokenizer, notify),
        }
        if not counts["validation"]["documents"]:
            raise ValueError(
                f"validation={self.validation_share}: no line begins in that tail of {self.path}; "
                "raise it or give validation_path"
            )
        (folder / "counts.json").write_text(json.dumps(counts))
