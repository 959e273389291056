"""What a run is told by its data: the kind of its examples, their vocabulary, and two splits of them by index."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal, Protocol

IGNORED = -100  # torch's ignore index, the default of `torch.nn.functional.cross_entropy`
PAD, UNK, BOS, EOS = range(4)
N_SPECIALS = 4

Batch = dict[str, Any]
Notify = Callable[[str], None]


def silent(message: str) -> None:
    """Drop a notice of progress."""


class Codec(Protocol):
    """Text to ids, and back."""

    vocab: int

    def encode(self, text: str) -> list[int]: ...  # noqa: D102
    def decode(self, ids: Sequence[int]) -> str: ...  # noqa: D102


class Split(ABC):
    """Examples by index.

    A batch of language modelling holds ``ids`` (batch, time) and ``targets`` (batch, time), and ``documents`` (batch,
    time) where packed documents must not see each other. A batch of pairs holds ``source`` and ``source_keep`` (batch,
    source), ``target`` (the decoder's input, which begins with BOS), ``target_keep`` and ``targets`` (batch, time).
    Ids and documents are int64; ``keep`` is True at real tokens; a target of `IGNORED` is none.
    """

    @abstractmethod
    def __len__(self) -> int:
        """How many examples there are."""

    @abstractmethod
    def batch(self, indices: Sequence[int]) -> Batch:
        """Collate these examples: a pure function of the indices."""


class Data(ABC):
    """A data set, ready to be prepared.

    The constructor is cheap; it checks what can be known without reading the data. What a model is built from
    (``vocab``, ``length``) is known before `prepare`; the splits and tokenizers are there after it.

    Attributes:
        kind: Which batches the splits give.
        vocab: Entries of the vocabulary, that of the target for pairs.
        source_vocab: Entries of the source's own vocabulary; None: it shares the target's, or there is no source.
        length: The longest row of ``ids`` or ``target``, in tokens.
        source_length: The longest row of ``source``, in tokens; None: there is no source.
        batch_size: Examples of one micro-batch, over all ranks.
        train: The examples to train on, without an order.
        validation: The examples to validate on, in their own order.
        tokenizer: Of ``ids`` or ``target``.
        source_tokenizer: Of ``source``; None: there is no source.
        quick: Whether `prepare` takes seconds at most, so that it may be tried for what it finds wrong alone.
        fingerprint: Of what the files hold that it read; None: it is a function of its fields alone.
        bytes_per_target: UTF-8 bytes of the validation text over the number of its targets, which turns a loss into
            bits per byte; None: the data is no text.
    """

    kind: ClassVar[Literal["language", "pairs"]]
    vocab: int
    source_vocab: int | None = None
    length: int
    source_length: int | None = None
    batch_size: int
    train: Split
    validation: Split
    tokenizer: Codec
    source_tokenizer: Codec | None = None
    quick: bool = False
    fingerprint: str | None = None
    bytes_per_target: float | None = None

    @abstractmethod
    def prepare(self, notify: Notify = silent) -> None:
        """Read, tokenize and cache whatever is not cached yet; several processes may do it at once.

        Args:
            notify: Hears about work that takes long.

        Raises:
            ValueError: The data cannot be used: missing, empty, not UTF-8, too short.
        """


def below_one(**values: int) -> list[str]:
    """What is wrong with fields that must be positive, a line each.

    >>> below_one(length=8, batch_size=0, n_train=-1)
    ['batch_size=0: must be at least 1', 'n_train=-1: must be at least 1']
    """
    return [f"{name}={value}: must be at least 1" for name, value in values.items() if value < 1]
