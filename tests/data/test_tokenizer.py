import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from variants.data.tokenizer import Tokenizer

WORDS = [
    "the",
    "cat",
    "sat",
    "on",
    "mat",
    "number",
    "another",
    "brother",
    "remembered",
    "waiting",
    "under",
    "bridge",
    "painter",
    "yesterday",
]
TEXT = [f"the {WORDS[i % 14]} of number {i} {WORDS[i // 14 % 14]} on {WORDS[i * 7 % 14]}\n" for i in range(300)] + [
    "a\tb  c\n",
    "\n",
    "Zoë — “no”\n",
]
AWKWARD = [
    "",
    " ",
    "\n",
    "the  cat",
    " lead",
    "trail  ",
    "a\tb\nc",
    "\n\n\n x \n",
    "\r\n",
    "ﬁ Ａ …",  # noqa: RUF001
    "the 東京 cat",
    "the </s> cat <s> <pad> <unk>",
    "<0x41><0x0A>",
    "▁",
    "▁▁the▁cat▁",
    "a ▁ b",
    "\0a\0",
    "e\u0301 é",
    "😀👩\u200d👧",
    "\u2028x\x85\ufeff\ufffd",
]


@pytest.fixture(scope="module", params=["unigram", "bpe"])
def tokenizer(request):
    return Tokenizer.train(TEXT, 320, request.param)


@pytest.mark.parametrize("text", AWKWARD)
def test_decoding_gives_back_what_was_encoded(tokenizer, text):
    assert tokenizer.decode(tokenizer.encode(text)) == text


@settings(max_examples=200, deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_decoding_gives_back_any_text(text):
    tokenizer = any_tokenizer()
    assert tokenizer.decode(tokenizer.encode(text)) == text


def any_tokenizer(made=[]):  # noqa: B006  trained once
    made or made.append(Tokenizer.train(TEXT, 320))
    return made[0]


@pytest.mark.parametrize("text", AWKWARD)
def test_text_gives_no_special_id(tokenizer, text):
    ids = tokenizer.encode(text)
    assert all(4 <= i < tokenizer.vocab for i in ids)


def test_special_ids_are_the_convention_and_decode_to_nothing(tokenizer):
    assert (tokenizer.pad, tokenizer.unk, tokenizer.bos, tokenizer.eos) == (0, 1, 2, 3)
    assert tokenizer.decode([2, 1, *tokenizer.encode("the cat"), 3, 0, 0]) == "the cat"


def test_line_by_line_gives_the_ids_of_the_whole(tokenizer):
    lines = [*TEXT[:20], "\n", " x ▁\n", "end"]
    whole = tokenizer.encode("".join(lines))
    assert [i for ids in tokenizer.encode_lines(lines) for i in ids] == whole


def test_pieces_are_learned(tokenizer):
    assert tokenizer.vocab == 320
    assert len(tokenizer.encode("the cat of number 7 on the mat")) < 24


def test_the_same_text_gives_the_same_bytes(tokenizer):
    assert any_tokenizer().model == Tokenizer.train(TEXT, 320).model


def test_a_saved_and_a_pickled_tokenizer_encode_alike(tokenizer, tmp_path):
    tokenizer.save(tmp_path / "model")
    for again in (Tokenizer.load(tmp_path / "model"), pickle.loads(pickle.dumps(tokenizer))):
        assert again.encode("the 東京 cat") == tokenizer.encode("the 東京 cat")


def test_a_long_line_is_trained_on():
    tokenizer = Tokenizer.train(["seldom heard words " * 3000], 275)
    assert min(tokenizer.encode("seldom heard words")) > 260  # no byte among them


@pytest.mark.parametrize(
    ("lines", "vocab", "message"),
    [
        (TEXT, 261, "vocab=261: must exceed 261, of which 256 are bytes"),
        (TEXT, 270, "vocab=270: smaller than the .* entries that coverage=0.9995 .* raise vocab or lower coverage"),
        (TEXT, 9000, r"vocab=9000: too large for the text it is trained on, which gives at most \d{3} pieces"),
        (["\n", ""], 300, "no text to train a tokenizer on"),
    ],
)
def test_a_vocabulary_that_does_not_fit_the_text_is_refused(lines, vocab, message):
    with pytest.raises(ValueError, match=message) as caught:
        Tokenizer.train(lines, vocab)
    assert "\n" not in str(caught.value)


def test_a_model_with_other_special_ids_is_refused():
    import io

    from sentencepiece import SentencePieceTrainer

    made = io.BytesIO()
    SentencePieceTrainer.train(sentence_iterator=iter(TEXT), model_writer=made, vocab_size=40, minloglevel=3)
    with pytest.raises(ValueError, match=r"must be 0, 1, 2 and 3, not \[-1, 0, 1, 2\]"):
        Tokenizer(made.getvalue())
