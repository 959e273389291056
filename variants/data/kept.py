"""The tokenizers of a run, kept in its folder, so that it speaks wherever it goes and whatever becomes of its data."""

from __future__ import annotations

from pathlib import Path

from variants.data.base import Data
from variants.data.tokenizer import Tokenizer

NAMES = ("tokenizer", "source_tokenizer")  # of the data's attributes, and of the files


def keep(data: Data, folder: Path) -> None:
    """Write the tokenizers that were trained; others are a function of the data's fields."""
    for name in NAMES:
        if isinstance(codec := getattr(data, name), Tokenizer):
            codec.save(folder / f"{name}.model")


def kept(folder: Path) -> tuple[Tokenizer | None, Tokenizer | None]:
    """The tokenizer of what the model writes, and that of a source; None: there is none, or it was not kept."""
    files = [folder / f"{name}.model" for name in NAMES]
    own, source = (Tokenizer.load(file) if file.is_file() else None for file in files)
    return own, source
