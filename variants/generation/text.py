"""Text out of a run's folder."""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from variants import config as configs
from variants import slots
from variants.data.base import BOS, EOS, Codec
from variants.data.kept import kept
from variants.errors import ConfigError
from variants.generation.beam import beam_search
from variants.generation.decode import decode
from variants.generation.sampling import Sampling
from variants.models import build


def generate_text(
    folder: Path,
    prompts: Sequence[str],
    *,
    max_new: int,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int = 0,
    beam: int | None = None,
) -> Iterator[str]:
    """Continue texts with a language model, or translate them with a model of pairs.

    Args:
        folder: A run's; its best checkpoint is used, or else its last.
        prompts: Texts; an empty one begins a document.
        max_new: New tokens at most, for each.
        temperature: Of the sampling; 0 is greedy.
        top_k: Sample among so many of the likeliest tokens.
        top_p: Sample among the likeliest tokens that have so much probability together.
        seed: Of the sampling.
        beam: Search with a beam of this width instead.

    Yields:
        For each prompt in turn, the prompt with its continuation, or its translation alone.

    Raises:
        ConfigError: The folder holds no run or no whole checkpoint, or the request cannot be met.
    """
    with _refusing(""):
        sampling = Sampling(temperature, top_k, top_p)
        if beam is not None and not sampling.greedy:
            raise ValueError(f"beam {beam} searches for the likeliest text, but temperature {temperature} samples")
    run = load_run(folder)
    model, tokenizer = run.model, run.tokenizer
    language = not hasattr(model, "encode")
    encode = (run.source_tokenizer or tokenizer).encode
    with _refusing(""):
        ids = [[BOS, *encode(prompt)] if language else [*encode(prompt), EOS] for prompt in prompts]
        if beam is None:
            found = decode(model, ids, max_new=max_new, sampling=sampling, seed=seed)
        else:
            found = [list(best.ids) for best, *_ in beam_search(model, ids, max_new=max_new, beam=beam)]
    for begun, new in zip(ids, found, strict=True):
        yield tokenizer.decode([*begun, *new] if language else new)


class Loaded(NamedTuple):
    """What a run's folder holds.

    Attributes:
        model: Trained, evaluating, on the best device here.
        tokenizer: Of what the model writes.
        source_tokenizer: Of a source; None: the same, or there is no source.
        known: What the data let the model know: ``vocab``, ``max_length``, ...
    """

    model: nn.Module
    tokenizer: Codec
    source_tokenizer: Codec | None
    known: dict[str, Any]


def load_run(folder: Path) -> Loaded:
    """Load a run. Its data need not be there any more, if it was text.

    Raises:
        ConfigError: The folder holds no run or no whole checkpoint.
    """
    if not (folder / "config.yaml").is_file():
        raise ConfigError([f"{folder} holds no run: there is no config.yaml in it"])
    config = configs.load(folder / "config.yaml")
    weights, known = _checkpoint(folder)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = build(config["model"], **{**known, "device": device})
    expected, found = _shapes(model.state_dict()), _shapes(weights)
    if wrong := [name for name in {**expected, **found} if expected.get(name) != found.get(name)]:
        differ = f"{len(wrong)} of its parameters have other names or shapes, such as {wrong[0]}"
        raise ConfigError([f"{folder}: the checkpoint does not fit the model of config.yaml: {differ}"])
    model.load_state_dict(weights)
    tokenizer, source_tokenizer = kept(folder)
    if tokenizer is None:
        with _refusing("data."):
            data: Any = slots.data.build(config["data"])
            data.prepare()
        tokenizer, source_tokenizer = data.tokenizer, data.source_tokenizer
    return Loaded(model.to(device).eval(), tokenizer, source_tokenizer, known)


def _checkpoint(folder: Path) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """The model's weights in a run's best checkpoint, or else in its last, and what its data let it know."""
    paths = [folder / "checkpoints" / name for name in ("best.ckpt", "last.ckpt")]
    path = next((path for path in paths if path.is_file()), None)
    if path is None:
        raise ConfigError([f"{folder} has no checkpoint yet: neither {' nor '.join(p.name for p in paths)}"])
    try:
        read = torch.load(path, map_location="cpu", weights_only=True)
        return read["state_dict"], read["facts"]["known"]
    except (RuntimeError, OSError, EOFError, KeyError, TypeError, pickle.UnpicklingError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ConfigError([f"{path} is damaged, or no checkpoint of a run: {reason}"]) from None


def _shapes(state: Mapping[str, torch.Tensor]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(value.shape) for name, value in state.items()}


@contextlib.contextmanager
def _refusing(place: str) -> Iterator[None]:
    """Make what a user got wrong an error of the request."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(place + line.removeprefix(": ") for line in error.problems) from None
    except ValueError as error:
        raise ConfigError([f"{place}{error}"]) from None
