import pytest
import torch

from variants.data.base import BOS, EOS, IGNORED, PAD
from variants.data.synthetic import Symbols, draws
from variants.slots import data

ORDERS = {"copy": list, "reverse": lambda s: s[::-1], "sort": sorted}


def task(name="copy", **fields):
    return data.build({"name": name, "symbols": 5, "min_length": 2, "max_length": 6, **fields})


def real(row, blank):
    return [int(i) for i in row if i != blank]


@pytest.mark.parametrize("name", ORDERS)
def test_the_target_is_the_source_in_its_order(name):
    batch = task(name).train.batch(range(200))
    for source, target, targets in zip(batch["source"], batch["target"], batch["targets"], strict=True):
        *symbols, end = real(source, PAD)
        assert end == EOS
        assert real(targets, IGNORED) == [*ORDERS[name](symbols), EOS]
        assert real(target, PAD) == [BOS, *ORDERS[name](symbols)]


def test_keep_says_where_tokens_are_and_pads_are_on_the_right():
    batch = task().train.batch(range(50))
    for ids, keep in (("source", "source_keep"), ("target", "target_keep")):
        assert torch.equal(batch[keep], batch[ids] != PAD)
        assert torch.equal(batch[keep].sort(dim=1, descending=True, stable=True).values, batch[keep])
    assert torch.equal(batch["target_keep"], batch["targets"] != IGNORED)


def test_an_example_depends_on_its_index_alone():
    split = task().train
    together, alone = split.batch([4, 17, 3])["source"], split.batch([17])["source"][0]
    assert real(together[1], PAD) == real(alone, PAD)


def test_neighbours_share_no_draws():
    words = draws(7, range(100), 8)
    assert len(set(words.flatten().tolist())) == 800


def test_lengths_and_symbols_are_uniform():
    batch = task().train.batch(range(20_000))
    lengths = batch["source_keep"].sum(1) - 1
    for share in torch.bincount(lengths)[2:]:
        assert abs(share / 20_000 - 1 / 5) < 0.015
    symbols = torch.bincount(batch["source"][batch["source"] > EOS])[4:]
    assert len(symbols) == 5
    assert (symbols / symbols.sum() - 1 / 5).abs().max() < 0.01


def test_splits_and_seeds_draw_apart():
    drawn = [task(seed=0).train, task(seed=0).validation, task(seed=1).train]
    first = [[tuple(real(row, PAD)) for row in split.batch(range(20))["source"]] for split in drawn]
    assert first[0] != first[1] != first[2] != first[0]


def test_what_a_model_is_built_from_is_known_at_once():
    made = task()
    batch = made.train.batch(range(500))
    assert made.kind == "pairs"
    assert (made.vocab, made.length, made.source_length) == (9, 7, 7)
    assert batch["source"].max() < made.vocab
    assert batch["source"].shape[1] == batch["target"].shape[1] == 7


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"min_length": 7}, "min_length=7: must not exceed max_length=6"),
        ({"symbols": 0}, "symbols=0: must be at least 1"),
        ({"batch_size": -1}, "batch_size=-1: must be at least 1"),
    ],
)
def test_numbers_out_of_range_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        task(**fields)


def test_symbols_are_written_as_numbers():
    symbols = Symbols(5)
    assert symbols.encode("0 4") == [4, 8]
    assert symbols.decode([BOS, 4, 8, EOS, PAD]) == "0 4"
    with pytest.raises(ValueError, match="'5': not a symbol; they are the numbers 0 to 4"):
        symbols.encode("1 5")
