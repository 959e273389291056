"""A SentencePiece tokenizer that loses nothing: decoding what was encoded gives the same text, whatever the text."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from variants.data.base import BOS, EOS, N_SPECIALS, PAD, UNK

N_BYTES = 256
SMALLEST = N_SPECIALS + N_BYTES + 1  # and the newline
SPACE = "▁"  # SentencePiece's own sign for a space; one that stands in the text is spelt in bytes
LONGEST_LINE = 1 << 14  # characters that are trained on as one


class Tokenizer:
    """Text to ids of pieces, and back.

    Nothing is normalised, a character without a piece is spelt in bytes, and a newline is a piece of its own that no
    other piece reaches across: encoding line by line gives the same ids. Text never gives a special id, not even text
    that reads ``</s>``.

    Source: Kudo and Richardson 2018, "SentencePiece", arXiv:1808.06226; Kudo 2018, "Subword Regularization",
    arXiv:1804.10959 (unigram); Sennrich et al. 2016, "Neural Machine Translation of Rare Words with Subword Units",
    arXiv:1508.07909 (bpe).

    Args:
        model: A SentencePiece model, serialised, as `train` makes it.

    Raises:
        ValueError: The model's special ids are not pad 0, unknown 1, begin 2, end 3.
    """

    pad, unk, bos, eos = PAD, UNK, BOS, EOS

    def __init__(self, model: bytes) -> None:
        from sentencepiece import SentencePieceProcessor

        self.model = model
        self._processor: Any = SentencePieceProcessor(model_proto=model)
        found = [getattr(self._processor, f"{name}_id")() for name in ("pad", "unk", "bos", "eos")]
        if found != [PAD, UNK, BOS, EOS]:
            raise ValueError(f"tokenizer: pad, unknown, begin and end must be 0, 1, 2 and 3, not {found}")
        self.vocab: int = self._processor.vocab_size()
        self._space = [self._processor.piece_to_id(f"<0x{byte:02X}>") for byte in SPACE.encode()]

    def __getstate__(self) -> bytes:
        return self.model

    def __setstate__(self, model: bytes) -> None:
        self.__init__(model)

    @classmethod
    def train(
        cls,
        lines: Iterable[str],
        vocab: int,
        kind: Literal["unigram", "bpe"] = "unigram",
        coverage: float = 0.9995,
    ) -> Tokenizer:
        """Learn the pieces from text, on one thread, so that the same lines give the same bytes.

        Args:
            lines: The text; newlines in it are ignored.
            vocab: Entries of the vocabulary, the 4 special ones, 256 bytes and the newline included.
            kind: How pieces are chosen.
            coverage: Share of the text's characters whose kind gets a piece; the rest is spelt in bytes.

        Raises:
            ValueError: There is no text, or the vocabulary is too small or too large for it.
        """
        from sentencepiece import SentencePieceTrainer

        check_vocab(vocab)
        written = io.BytesIO()
        try:
            SentencePieceTrainer.train(
                sentence_iterator=_sentences(lines),
                model_writer=written,
                model_type=kind,
                vocab_size=vocab,
                character_coverage=coverage,
                pad_id=PAD,
                unk_id=UNK,
                bos_id=BOS,
                eos_id=EOS,
                byte_fallback=True,
                user_defined_symbols=["\n"],
                normalization_rule_name="identity",
                add_dummy_prefix=False,
                remove_extra_whitespaces=False,
                max_sentence_length=4 * LONGEST_LINE,
                num_threads=1,
                minloglevel=3,
            )
        except RuntimeError as error:
            raise ValueError(_reason(str(error), vocab, coverage)) from error
        return cls(written.getvalue())

    def encode(self, text: str) -> list[int]:
        """Ids of a text, without begin and end."""
        return self.encode_lines([text])[0]

    def encode_lines(self, lines: Sequence[str]) -> list[list[int]]:
        """Ids of many texts at once, on several threads."""
        encoded: list[list[int]] = self._processor.encode(list(lines))
        for i, line in enumerate(lines):
            if SPACE in line:
                encoded[i] = self._spelt(line)
        return encoded

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids; special ones are left out."""
        text: str = self._processor.decode([int(i) for i in ids if i >= N_SPECIALS])
        return text

    def save(self, path: Path) -> None:
        """Write the model to a file."""
        path.write_bytes(self.model)

    @classmethod
    def load(cls, path: Path) -> Tokenizer:
        """Read the model from a file."""
        return cls(path.read_bytes())

    def _spelt(self, line: str) -> list[int]:
        first, *rest = (self._processor.encode(part) for part in line.split(SPACE))
        ids: list[int] = first
        for part in rest:
            ids = [*ids, *self._space, *part]
        return ids


def check_vocab(vocab: int) -> None:
    """Refuse a vocabulary that cannot hold what every tokenizer holds.

    Raises:
        ValueError: It is too small.
    """
    if vocab <= SMALLEST:
        raise ValueError(
            f"vocab={vocab}: must exceed {SMALLEST}, of which {N_BYTES} are bytes, {N_SPECIALS} special and 1 a newline"
        )


def _sentences(lines: Iterable[str]) -> Iterator[str]:
    for text in lines:
        for line in text.split("\n"):
            for start in range(0, len(line), LONGEST_LINE):
                yield line[start : start + LONGEST_LINE]


def _reason(error: str, vocab: int, coverage: float) -> str:
    """Word SentencePiece's error for a user."""
    if found := re.search(r"too high .*<= (\d+)", error):
        return f"vocab={vocab}: too large for the text it is trained on, which gives at most {found[1]} pieces"
    if found := re.search(r"required_chars\. \d+ vs (\d+)", error):
        return (
            f"vocab={vocab}: smaller than the {found[1]} entries that coverage={coverage} of the text's characters "
            "needs; raise vocab or lower coverage"
        )
    if "sentences_.empty" in error:
        return "no text to train a tokenizer on"
    return f"vocab={vocab}: SentencePiece cannot learn it: {' '.join(error.split())}"
