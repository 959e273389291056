import gzip
import math
from itertools import pairwise

import pytest
import torch

from variants.data import text as module
from variants.data.base import BOS, EOS, IGNORED, PAD
from variants.data.baseline import unigram
from variants.data.files import SETS, lines
from variants.slots import data


def build(path, **fields):
    return data.build({"name": "text", "path": str(path), "vocab": 330, "length": 16, "batch_size": 4, **fields})


def prepared(path, **fields):
    made = build(path, **fields)
    made.prepare()
    return made


def stream(split):
    """All tokens of a split, put together again from its windows."""
    batch = split.batch(range(len(split)))
    targets = batch["targets"].flatten()
    return [int(batch["ids"][0, 0]), *targets[targets != IGNORED].tolist()]


def test_windows_lie_side_by_side_and_predict_the_next_token(story):
    made = prepared(story)
    batch = made.train.batch(range(len(made.train)))
    assert batch["ids"].shape == (len(made.train), 16)
    assert torch.equal(batch["ids"].flatten()[1:], batch["targets"].flatten()[:-1])
    assert batch["ids"][0, 0] == BOS
    assert "documents" not in batch


def test_training_and_validation_text_are_the_file_cut_at_a_line(story):
    made = prepared(story)
    text = story.read_text()
    tail = made.tokenizer.decode(stream(made.validation))
    assert text.endswith(tail)
    assert text[: -len(tail)].endswith("\n")
    assert text.startswith(made.tokenizer.decode(stream(made.train))[:-1])
    assert 0.03 < len(tail) / len(text) < 0.07


def test_every_validation_token_is_a_target_once_though_the_last_window_is_short(story):
    made = prepared(story)
    ids = stream(made.validation)
    assert (ids[0], ids[-1]) == (BOS, EOS)
    last = made.validation.batch([len(made.validation) - 1])
    short = int((last["targets"] == IGNORED).sum())
    assert short == -(len(ids) - 1) % 16 > 0
    assert (last["ids"][0, -short + 1 :] == PAD).all()


def test_bytes_per_target_is_the_validation_texts_size_over_its_targets(story):
    made = prepared(story)
    ids = stream(made.validation)
    n_bytes = len(made.tokenizer.decode(ids).encode())
    assert made.bytes_per_target == n_bytes / (len(ids) - 1)


def test_the_tokenizer_never_sees_the_validation_text(tmp_path):
    train, a, b = (tmp_path / name for name in ("train.txt", "a.txt", "b.txt"))
    train.write_text("".join(f"the cat {i} sat on the mat\n" for i in range(300)))
    a.write_text("unseen words are here\n")
    b.write_text("others, quite others\n" * 50)
    models = [prepared(train, vocab=300, validation_path=str(v)).tokenizer.model for v in (a, b)]
    assert models[0] == models[1]
    both = tmp_path / "both.txt"
    both.write_text(train.read_text() + "qqqq " * 80)
    cut = prepared(both, vocab=300, validation=0.05)
    assert "q" not in {cut.tokenizer._processor.id_to_piece(i) for i in range(300)}


@pytest.fixture
def folder(tmp_path, story):
    """Three documents and a file that is none."""
    made = tmp_path / "folder"
    (made / "deep").mkdir(parents=True)
    text = story.read_text()
    (made / "b.txt").write_text(text[:3000])
    (made / "a.txt.gz").write_bytes(gzip.compress(text[3000:6000].encode()))
    (made / "deep" / "c.txt").write_text(text[6000:])
    (made / "README.md").write_text("not me")
    return made


def test_a_folders_files_are_documents_in_order_of_name(folder, story):
    made = prepared(folder, validation_path=str(story), length=8)
    ids, text = stream(made.train), story.read_text()
    documents = made.tokenizer.decode([5 if i == BOS else i for i in ids])
    assert ids.count(BOS) == 3
    mark = made.tokenizer.decode([5])
    assert documents.startswith(mark + text[3000:6000] + mark + text[:3000] + mark + text[6000:9000])


def test_isolated_documents_are_told_apart_and_have_no_target_across_the_border(folder, story):
    shared = prepared(folder, validation_path=str(story))
    alone = prepared(folder, validation_path=str(story), isolate=True)
    every = range(len(alone.train))
    batch, plain = alone.train.batch(every), shared.train.batch(every)
    ids, targets, documents = batch["ids"], batch["targets"], batch["documents"]
    assert torch.equal(ids, plain["ids"])
    border = (ids[:, :-1] == EOS).nonzero()
    assert len(border) == 2
    for row, place in border:
        assert targets[row, place] == IGNORED
        assert documents[row, place + 1] == documents[row, place] + 1
    assert int((targets != plain["targets"]).sum()) == 2
    inside = ids[:, 1:] != BOS
    assert (documents.diff(dim=1)[inside] == 0).all()


def test_bytes_per_target_counts_isolated_targets(folder, story):
    made = prepared(story, validation_path=str(folder), isolate=True)
    targets = made.validation.batch(range(len(made.validation)))["targets"]
    n_bytes = len(story.read_bytes())
    assert made.bytes_per_target == n_bytes / int((targets != IGNORED).sum())


def test_a_second_prepare_comes_from_the_cache_and_is_equal(story, monkeypatch):
    first, notices = build(story), []
    first.prepare(notices.append)
    assert any("training a tokenizer" in notice for notice in notices)
    monkeypatch.setattr(module.Tokenizer, "train", None)
    second, notices = build(story), []
    second.prepare(notices.append)
    assert notices == []
    assert stream(first.train) == stream(second.train)


def test_a_changed_file_or_option_is_not_taken_from_the_cache(story):
    first = prepared(story)
    story.write_text(story.read_text().replace("cat", "cow"))
    changed = prepared(story)
    assert "cow" in changed.tokenizer.decode(stream(changed.train))
    assert prepared(story, vocab=340).tokenizer.vocab == 340
    assert prepared(story, tokenizer_type="bpe").tokenizer.model != changed.tokenizer.model
    assert first.train.file != changed.train.file


def test_a_window_of_another_length_needs_no_new_cache(story, cache):
    a, b = prepared(story), prepared(story, length=40, batch_size=2, isolate=True)
    assert a.train.file == b.train.file
    assert stream(a.train)[:100] == stream(b.train)[:100]


def test_a_large_text_is_sampled_evenly_in_whole_lines(story, monkeypatch):
    text = [(0, line) for line in story.read_text().splitlines(keepends=True)]
    size = len(story.read_bytes())
    monkeypatch.setattr(module, "SAMPLE", size // 4)
    taken = list(module.sample(iter(text), size))
    assert abs(len("".join(taken).encode()) - size / 4) < 100
    places = [[line for _, line in text].index(line) for line in taken]
    assert max(b - a for a, b in pairwise(places)) < 10
    assert places[-1] > 390
    monkeypatch.setattr(module, "SAMPLE", size)
    assert len(list(module.sample(iter(text), size))) == len(text)


def test_joined_lines_are_the_file_whatever_its_lines_are(tmp_path):
    file = tmp_path / "odd.txt"
    text = "é" * 1_500_000 + "\r\n\n\n" + "東京 " * 40_000 + "\nno end"
    file.write_bytes(text.encode())
    found = list(lines(file))
    assert "".join(found) == text
    assert max(map(len, found)) <= 1 << 14


def test_a_large_vocabulary_is_stored_in_wider_ids(tmp_path):
    assert (module.dtype_of(1 << 16), module.dtype_of((1 << 16) + 1)) == ("<u2", "<u4")


def bad(tmp_path, kind):
    file = tmp_path / "bad.txt"
    if kind == "empty":
        file.write_bytes(b"")
    elif kind == "folder":
        file.mkdir()
    elif kind == "bytes":
        file.write_bytes(b"a" * 1_048_575 + "é".encode() + b"fine\n\xff\n")
    elif kind == "gzip":
        file = tmp_path / "bad.gz"
        file.write_bytes(b"this is no gzip")
    elif kind == "hollow":
        file = tmp_path / "hollow.txt.gz"
        file.write_bytes(gzip.compress(b""))
    elif kind == "short":
        file.write_text("".join(f"{i} cats and {i % 7} dogs\n" for i in range(200)))
    elif kind == "line":
        file.write_text("one line " * 200)
    return file


@pytest.mark.parametrize(
    ("kind", "fields", "message"),
    [
        ("missing", {}, r"path=.*bad.txt: no such file or folder"),
        ("empty", {}, r"path=.*bad.txt: empty"),
        ("folder", {}, r"path=.*bad.txt: the folder holds no .txt or .gz file"),
        ("short", {"validation_path": "nowhere"}, r"validation_path=nowhere: no such file or folder"),
        ("short", {"vocab": 200}, r"vocab=200: must exceed 261"),
        ("short", {"validation": 1.0}, r"validation=1.0: must lie between 0 and 1"),
        ("short", {"coverage": 0.0}, r"coverage=0.0: must be above 0"),
        ("short", {"length": 0}, r"length=0: must be at least 1"),
    ],
)
def test_what_can_be_known_at_once_is_refused_at_once(tmp_path, kind, fields, message):
    with pytest.raises(ValueError, match=message):
        build(bad(tmp_path, kind), **fields)


@pytest.mark.parametrize(
    ("kind", "fields", "message"),
    [
        ("bytes", {}, r"path: .*bad.txt is not UTF-8 at byte 1048582$"),
        ("gzip", {}, r"path: .*bad.gz is no gzip file"),
        ("hollow", {}, r"path=.*hollow.txt.gz: empty"),
        ("short", {"vocab": 290, "length": 5000}, r"length=5000: a window and its last target need 5001 .* has \d{4}$"),
        ("short", {"vocab": 5000}, r"vocab=5000: too large for the text it is trained on, which gives at most \d+"),
        ("line", {"vocab": 267}, r"validation=0.05: no line begins in that tail of .*bad.txt"),
    ],
)
def test_what_only_reading_shows_is_refused_in_one_line(tmp_path, kind, fields, message):
    made = build(bad(tmp_path, kind), **fields)
    with pytest.raises(ValueError, match=message) as caught:
        made.prepare()
    assert "\n" not in str(caught.value)


def test_a_misspelt_set_is_answered_with_the_nearest():
    with pytest.raises(
        ValueError, match=r"path=set:bible: no data set 'bible' \(did you mean 'bible_en'\?\); there are: "
    ):
        build("set:bible")


@pytest.mark.parametrize("name", ["bible_en", "song_ci"])
def test_a_shipped_set_has_its_licence_and_source(name):
    assert (SETS / name / "LICENSE").stat().st_size
    assert (SETS / name / "SOURCE.md").stat().st_size
    assert len(build(f"set:{name}").files) == 1


def test_the_unigram_baseline_is_add_one_smoothed(story):
    made = prepared(story)
    trained, validated = stream(made.train)[1:], stream(made.validation)[1:]
    nll = [-math.log((trained.count(i) + 1) / (len(trained) + 330)) for i in validated]
    assert unigram(made) == pytest.approx(sum(nll) / len(nll), rel=1e-12)
