"""What a cache gives back, against everything that was put in."""

import pytest
import torch

from variants.blocks.cache import Cache, Slot
from variants.blocks.masks import AttentionMask

CPU = torch.device("cpu")


def chunks(*lengths):
    """Keys and values of chunks, each number another one."""
    keys = torch.arange(2.0 * sum(lengths) * 3).view(2, sum(lengths), 3)
    return list(zip(keys.split(list(lengths), 1), (keys + 1000).split(list(lengths), 1), strict=True))


def test_a_slot_gives_all_that_was_appended_in_order():
    slot, seen = Slot(7), []
    for pair in chunks(3, 1, 1, 2):
        seen.append(pair)
        for got, all_of_it in zip(slot.append(*pair), zip(*seen, strict=True), strict=True):
            assert got.equal(torch.cat(all_of_it, 1))


@pytest.mark.parametrize("window", [1, 2, 3, 5])
@pytest.mark.parametrize("lengths", [(1,) * 15, (4, 1, 1, 1, 5, 2, 1), (9, 1, 1, 6), (2, 3, 2, 3, 5), (5, 6, 1, 3)])
def test_a_slot_under_a_window_gives_what_the_window_needs_in_order_and_stays_small(window, lengths):
    slot, seen = Slot(100), torch.zeros(2, 0, 3)
    for keys, values in chunks(*lengths):
        seen = torch.cat((seen, keys), 1)
        got, others = slot.append(keys, values, window=window)
        needed = min(seen.shape[1], keys.shape[1] + window - 1)
        assert got.shape[1] >= needed
        assert got.equal(seen[:, -got.shape[1] :])
        assert others.equal(got + 1000)
        assert slot.grown[0].shape[1] == 2 * window
        if got.shape[1] <= 2 * window:
            assert got.shape[1] == needed


def test_a_window_larger_than_the_cache_takes_no_more_than_that():
    slot = Slot(4)
    (pair,) = chunks(4)
    assert slot.append(*pair, window=3)[0].equal(pair[0])
    assert slot.grown[0].shape == (2, 4, 3)


def test_a_full_slot_refuses_one_token_more():
    slot = Slot(3)
    first, second = chunks(3, 1)
    slot.append(*first)
    with pytest.raises(ValueError, match="the cache holds 3 tokens: 3 are there and 1 more do not fit"):
        slot.append(*second)


def test_a_slot_refuses_what_would_keep_a_graph():
    (pair,) = chunks(2)
    with pytest.raises(ValueError, match="no_grad"):
        Slot(3).append(pair[0], pair[1].requires_grad_())
    with torch.no_grad():
        Slot(3).append(*pair)


def test_what_is_made_once_is_neither_made_nor_reordered_again():
    cache, calls = Cache(4), []
    slot = cache.slot(0, "cross")
    slot.append(torch.arange(2.0).view(2, 1, 1))
    slot.state = (torch.arange(2.0).view(2, 1),)

    def make():
        calls.append(1)
        return (torch.arange(2.0).view(2, 1, 1),)

    fixed = slot.once(make)
    cache.repeat(2)
    assert slot.grown[0][:, 0, 0].tolist() == [0, 0, 1, 1]
    assert slot.state[0][:, 0].tolist() == [0, 0, 1, 1]
    cache.reorder(torch.tensor([3, 0]))
    assert slot.grown[0][:, 0, 0].tolist() == [1, 0]
    assert slot.state[0][:, 0].tolist() == [1, 0]
    assert slot.once(make) is fixed
    assert len(calls) == 1


def test_a_slot_is_of_its_depth_and_branch_and_as_large_as_the_cache():
    cache = Cache(4)
    assert cache.slot(0, "mixer") is cache.slot(0, "mixer")
    assert len({id(cache.slot(depth, branch)) for depth in (0, 1) for branch in ("mixer", "cross")}) == 4
    assert cache.slot(1, "cross").capacity == 4


def test_a_mask_grows_by_chunks_and_what_one_leaves_out_is_filled():
    cache = Cache(6)
    assert cache.extend(AttentionMask(causal=True), 2, 2, CPU) == AttentionMask(causal=True)
    keep = torch.tensor([[True], [False]])
    full = cache.extend(AttentionMask(keep=keep, causal=True, window=3), 2, 1, CPU)
    assert full.keep.tolist() == [[True, True, True], [True, True, False]]
    assert (full.causal, full.window, full.documents, full.prefix) == (True, 3, None, None)
    full = cache.extend(AttentionMask(), 2, 3, CPU)
    assert full.keep.tolist() == [[True] * 6, [True, True, False, True, True, True]]
    assert cache.length == 6


def test_documents_go_on_where_nothing_is_said():
    cache = Cache(9)
    cache.extend(AttentionMask(), 2, 1, CPU)
    full = cache.extend(AttentionMask(documents=torch.tensor([[0, 1], [2, 5]])), 2, 2, CPU)
    assert full.documents.tolist() == [[0, 0, 1], [0, 2, 5]]
    full = cache.extend(AttentionMask(), 2, 2, CPU)
    assert full.documents.tolist() == [[0, 0, 1, 1, 1], [0, 2, 5, 5, 5]]


def test_a_prefix_comes_in_one_chunk():
    cache, prefix = Cache(9), torch.tensor([[True, False]])
    cache.extend(AttentionMask(prefix=prefix), 1, 2, CPU)
    full = cache.extend(AttentionMask(), 1, 1, CPU)
    assert full.prefix.tolist() == [[True, False, False]]
    full = cache.extend(AttentionMask(prefix=torch.tensor([[False]])), 1, 1, CPU)
    assert full.prefix.tolist() == [[True, False, False, False]]
    with pytest.raises(ValueError, match="a prefix must come in one chunk"):
        cache.extend(AttentionMask(prefix=prefix), 1, 2, CPU)


def test_a_full_cache_refuses_one_token_more():
    cache = Cache(3)
    cache.extend(AttentionMask(), 1, 2, CPU)
    with pytest.raises(ValueError, match="the cache holds 3 tokens: 2 are there and 2 more do not fit"):
        cache.extend(AttentionMask(), 1, 2, CPU)
    cache.extend(AttentionMask(), 1, 1, CPU)


def test_the_facts_of_rows_follow_the_rows():
    cache = Cache(3)
    cache.extend(AttentionMask(keep=torch.tensor([[True], [False]])), 2, 1, CPU)
    cache.repeat(2)
    cache.reorder(torch.tensor([2, 0, 0]))
    assert cache.extend(AttentionMask(), 3, 1, CPU).keep.tolist() == [[False, True], [True, True], [True, True]]


def test_documents_go_on_from_nothing_where_the_first_chunk_was_empty():
    cache = Cache(3)
    cache.extend(AttentionMask(documents=torch.zeros(1, 0, dtype=torch.long)), 1, 0, CPU)
    assert cache.extend(AttentionMask(), 1, 2, CPU).documents.tolist() == [[0, 0]]
