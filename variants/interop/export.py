"""A run's folder as a checkpoint of `transformers`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from variants import config as configs
from variants.data.base import BOS, EOS, PAD
from variants.data.tokenizer import Tokenizer
from variants.errors import ConfigError
from variants.generation.text import load_run
from variants.interop.convert import needed, to_transformers


def export_run(folder: Path, out: Path) -> None:
    """Write a run's trained language model as a checkpoint of `transformers`, and its tokenizer beside it.

    ``out`` then holds ``config.json`` and ``generation_config.json`` with the special ids, ``model.safetensors``, and
    ``tokenizer.model``, a SentencePiece model. Texts begin with the id of ``bos_token_id``.

    Args:
        folder: A run's; its best checkpoint is used, or else its last.
        out: A folder that holds nothing yet.

    Raises:
        ConfigError: There is no run or no whole checkpoint, a choice has no counterpart, or ``out`` is taken.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError([f"{out} is there already, and is no empty folder: name another"])
    needed()
    run = load_run(folder)
    of_run = configs.load(folder / "config.yaml")["model"]
    config: dict[str, Any] = {**of_run, "max_length": of_run["max_length"] or run.known["max_length"]}
    tokens = {"bos_token_id": BOS, "eos_token_id": EOS, "pad_token_id": PAD}
    to_transformers(run.model.cpu(), config, out, tokens=tokens)
    if isinstance(run.tokenizer, Tokenizer):
        run.tokenizer.save(out / "tokenizer.model")
