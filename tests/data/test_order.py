import numpy as np
import pytest

from variants.data.order import indices, permutation, stripe


@pytest.mark.parametrize(("n", "size"), [(12, 4), (10, 4), (3, 8), (1, 2), (7, 7)])
def test_every_example_comes_once_an_epoch_across_batch_borders(n, size):
    stream = np.concatenate([indices(0, k, n, size) for k in range(3 * n)])
    for epoch in range(3 * size):
        assert sorted(stream[epoch * n : (epoch + 1) * n]) == list(range(n))


def test_a_batch_depends_on_seed_and_number_alone():
    forwards = [indices(5, k, 50, 8) for k in range(40)]
    permutation.cache_clear()
    for k in reversed(range(40)):
        assert (indices(5, k, 50, 8) == forwards[k]).all()


def test_seeds_and_epochs_give_orders_of_their_own():
    orders = {tuple(permutation(seed, epoch, 30)) for seed in range(5) for epoch in range(5)}
    assert len(orders) == 25


def test_the_order_is_the_same_on_every_machine():
    assert indices(0, 0, 10, 10).tolist() == [4, 0, 5, 7, 3, 2, 9, 1, 8, 6]


def test_every_order_is_about_as_frequent():
    orders = [tuple(permutation(seed, 0, 3)) for seed in range(1200)]
    counts = [orders.count(order) for order in set(orders)]
    assert len(counts) == 6
    assert sum((c - 200) ** 2 / 200 for c in counts) < 20.5  # chi-square, 5 degrees of freedom, p = 0.001


def test_the_ranks_stripes_together_are_the_batch():
    batch = indices(0, 3, 100, 12)
    stripes = [stripe(batch, rank, 3) for rank in range(3)]
    assert {len(s) for s in stripes} == {4}
    assert (np.stack(stripes, 1).ravel() == batch).all()


def test_a_batch_that_ranks_cannot_share_is_refused():
    with pytest.raises(ValueError, match="batch_size=10: must be a multiple of the 4 data-parallel ranks"):
        stripe(indices(0, 0, 100, 10), 0, 4)
