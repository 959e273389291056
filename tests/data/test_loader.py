import pytest
import torch

from variants.data.base import IGNORED
from variants.data.loader import Batches, Loader, Pass, Span
from variants.slots import data


@pytest.fixture
def task():
    return data.build({"name": "copy", "n_train": 50, "n_validation": 23, "batch_size": 8})


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(torch.as_tensor(a[k]), torch.as_tensor(b[k])) for k in a)


def test_a_batch_holds_its_number(task):
    numbers = [batch["index"] for batch in Loader(Batches(task.train, 0, 8), Span(3, 7))]
    assert numbers == [3, 4, 5, 6]
    assert all(type(number) is int for number in numbers)


def test_a_run_from_the_middle_gets_what_the_whole_run_got(task):
    batches = Batches(task.train, 1, 8)
    whole, rest = list(Loader(batches, Span(0, 20))), list(Loader(batches, Span(9, 20)))
    assert len(rest) == 11
    assert all(map(same, whole[9:], rest))


def test_workers_change_nothing(task):
    batches = Batches(task.train, 1, 8)
    alone, helped = (list(Loader(batches, Span(2, 9), num_workers=n)) for n in (0, 2))
    assert all(same(a, b) for a, b in zip(alone, helped, strict=True))


def test_a_loader_leaves_the_global_generator_alone(task):
    state = torch.get_rng_state()
    list(Loader(Pass(task.validation, 8)))
    assert torch.equal(state, torch.get_rng_state())


def test_ranks_share_a_training_batch(task):
    whole = Batches(task.train, 0, 8)[5]
    a, b = (Batches(task.train, 0, 8, rank, 2)[5] for rank in range(2))
    for half, start in ((a, 0), (b, 1)):
        width = half["targets"].shape[1]
        assert torch.equal(half["targets"], whole["targets"][start::2, :width])


def test_ranks_that_cannot_share_a_batch_are_refused(task):
    with pytest.raises(ValueError, match="batch_size=8"):
        Batches(task.train, 0, 8, 0, 3)


@pytest.mark.parametrize("world", [1, 2, 4, 8])
def test_a_pass_counts_every_target_once_over_all_ranks(task, world):
    passes = [Pass(task.validation, 8, rank, world) for rank in range(world)]
    assert {len(p) for p in passes} == {3}
    batches = [batch for p in passes for batch in Loader(p)]
    n_targets = sum(int((batch["targets"] != IGNORED).sum()) for batch in batches)
    expected = task.validation.batch(range(23))["targets"]
    assert n_targets == int((expected != IGNORED).sum())


def test_a_rank_without_a_row_takes_part_without_a_target(task):
    batch = Pass(task.validation, 8, 7, 8)[2]
    assert batch["source"].shape[0] == 1
    assert (batch["targets"] == IGNORED).all()
