"""Recall and copying in context: what is shown, what is asked, and what is a target."""

import pytest
import torch

from variants.data import Copying, Recall
from variants.data.base import EOS, IGNORED, N_SPECIALS, PAD

FILLER = N_SPECIALS + 32 + 32


def test_every_key_is_asked_once_and_its_value_is_the_target():
    data = Recall(pairs=4, min_gap=3, max_gap=9)
    batch = data.train.batch(range(50))
    for ids, targets in zip(batch["ids"].tolist(), batch["targets"].tolist(), strict=True):
        shown = dict(zip(ids[0:8:2], ids[1:8:2], strict=True))
        asked = [i for i, target in enumerate(targets) if target != IGNORED]
        assert sorted(ids[i] for i in asked) == sorted(shown)
        assert [targets[i] for i in asked] == [shown[ids[i]] for i in asked] == [ids[i + 1] for i in asked]
        gap = asked[0] - 8
        assert 3 <= gap <= 9
        assert ids[8 : 8 + gap] == [FILLER] * gap
        assert all(i == PAD for i in ids[asked[-1] + 2 :])


def test_queries_may_be_drawn_anew_and_are_all_targets():
    data = Recall(pairs=3, queries=7, min_gap=2, max_gap=4)
    batch = data.train.batch(range(200))
    assert batch["ids"].shape == (200, data.length)
    asked_at_first = set()
    for ids, targets in zip(batch["ids"].tolist(), batch["targets"].tolist(), strict=True):
        shown = dict(zip(ids[0:6:2], ids[1:6:2], strict=True))
        asked = [i for i, target in enumerate(targets) if target != IGNORED]
        assert len(asked) == 7
        assert [targets[i] for i in asked] == [shown[ids[i]] for i in asked] == [ids[i + 1] for i in asked]
        asked_at_first.add(ids[0:6:2].index(ids[asked[0]]))
    assert asked_at_first == {0, 1, 2}


def test_gaps_are_mixed_and_can_be_fixed():
    def gaps(data):
        return set(((data.train.batch(range(200))["ids"]) == FILLER).sum(1).tolist())

    assert gaps(Recall(min_gap=0, max_gap=3)) == {0, 1, 2, 3}
    assert gaps(Recall(min_gap=5, max_gap=5)) == {5}


def test_keys_and_values_are_spread_and_splits_differ():
    data = Recall()
    ids = data.train.batch(range(500))["ids"]
    assert len(ids[:, 0:16:2].unique()) == 32
    assert len(ids[:, 1:16:2].unique()) == 32
    assert not torch.equal(ids, data.validation.batch(range(500))["ids"])


def test_a_copy_follows_its_mark_and_is_the_only_target():
    data = Copying(symbols=5, min_length=2, max_length=6)
    batch = data.train.batch(range(50))
    assert batch["ids"].shape == (50, data.length)
    lengths = set()
    for ids, targets in zip(batch["ids"].tolist(), batch["targets"].tolist(), strict=True):
        n = ids.index(EOS)
        lengths.add(n)
        assert ids[n + 1 : 2 * n + 1] == ids[:n]
        assert all(i == PAD for i in ids[2 * n + 1 :])
        assert targets == [IGNORED] * n + ids[:n] + [IGNORED] * (13 - 2 * n)
    assert lengths == {2, 3, 4, 5, 6}


@pytest.mark.parametrize("data", [Recall(), Recall(queries=20), Copying()])
def test_an_example_is_a_function_of_its_index(data):
    many, one = data.train.batch(range(20)), data.train.batch([7])
    assert all(torch.equal(many[name][7:8], one[name]) for name in one)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Recall(pairs=9, keys=8), "pairs=9: must not exceed keys=8"),
        (lambda: Recall(min_gap=3, max_gap=2), "min_gap=3: must be between 0 and max_gap=2"),
        (lambda: Recall(values=0), "values=0: must be at least 1"),
        (lambda: Recall(queries=0), "queries=0: must be at least 1"),
        (lambda: Copying(min_length=3, max_length=2), "min_length=3: must not exceed max_length=2"),
    ],
)
def test_sizes_that_contradict_are_refused(make, said):
    with pytest.raises(ValueError, match=said):
        make()
