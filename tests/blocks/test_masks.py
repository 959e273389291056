"""The mask's rule against a loop over queries and keys, and what kernels are told of it."""

import itertools

import pytest
import torch
from exporting import unchecked
from torch.utils import _pytree as pytree

from variants.blocks.masks import AttentionMask, positions_of, starts_of

KEEP = torch.tensor([[0, 1, 1, 1, 1], [1, 1, 1, 0, 0]], dtype=torch.bool)
DOCUMENTS = torch.tensor([[3, 3, 1, 1, 1], [0, 0, 0, 0, 3]])
PREFIX = torch.tensor([[1, 1, 0, 0, 0], [1, 1, 1, 0, 0]], dtype=torch.bool)
LENGTHS = [(5, 5), (1, 5), (3, 5), (5, 3)]


def masks():
    options = itertools.product([None, KEEP], [None, DOCUMENTS], [None, PREFIX], [False, True], [None, 1, 3])
    for keep, documents, prefix, causal, window in options:
        yield AttentionMask(keep=keep, documents=documents, prefix=prefix, causal=causal, window=window)


def slow_dense(mask, n_query, n_key):
    """Whether each query sees each key, one by one; both are counted from the last."""
    seen = torch.zeros(2, 1, n_query, n_key, dtype=torch.bool)
    for row, query, key in itertools.product(range(2), range(n_query), range(n_key)):
        q, k = query - n_query, key - n_key
        sees = k <= q or not mask.causal or (mask.prefix is not None and mask.prefix[row, k])
        if mask.window is not None:
            sees = sees and abs(q - k) < mask.window
        if mask.documents is not None:
            own = mask.documents if mask.query_documents is None else mask.query_documents
            sees = sees and own[row, q] == mask.documents[row, k]
        if mask.keep is not None:
            sees = sees and mask.keep[row, k]
        seen[row, 0, query, key] = bool(sees)
    return seen


@pytest.mark.parametrize(("n_query", "n_key"), LENGTHS)
def test_a_query_sees_what_the_rule_says(n_query, n_key):
    for mask in masks():
        dense = mask.dense(n_query, n_key, "cpu")
        assert dense.dtype == torch.bool
        torch.testing.assert_close(dense.expand(2, -1, -1, -1), slow_dense(mask, n_query, n_key), msg=str(mask))


def test_queries_may_have_documents_of_their_own():
    mask = AttentionMask(documents=DOCUMENTS, query_documents=torch.tensor([[1, 3], [3, 0]]))
    torch.testing.assert_close(mask.dense(2, 5, "cpu"), slow_dense(mask, 2, 5))


def test_a_kernel_is_told_the_cheapest_form_that_is_true():
    for (n_query, n_key), mask in itertools.product(LENGTHS[:3], masks()):
        seen = slow_dense(mask, n_query, n_key)
        facts = mask.keep is not None or mask.documents is not None or mask.prefix is not None
        if facts or (mask.window is not None and mask.window < n_key):
            expected = "dense"
        elif seen.all():
            expected = "all"
        else:
            expected = "causal" if n_query == n_key else "dense"
        assert mask.flag(n_query, n_key) == expected, (mask, n_query, n_key)


@pytest.mark.parametrize(
    ("window", "lengths", "flag"),
    [(5, (5, 5), "all"), (4, (5, 5), "dense"), (4, (5, 4), "dense"), (4, (4, 5), "dense"), (6, (2, 5), "all")],
)
def test_a_window_as_long_as_all_says_nothing(window, lengths, flag):
    assert AttentionMask(window=window).flag(*lengths) == flag


def test_a_single_query_sees_all_and_two_with_more_keys_do_not():
    assert AttentionMask(causal=True).flag(1, 7) == "all"
    assert AttentionMask(causal=True).flag(1, 1) == "all"
    assert AttentionMask(causal=True).flag(2, 7) == "dense"
    assert AttentionMask(causal=True).flag(2, 2) == "causal"


@pytest.mark.parametrize(("n_query", "n_key"), LENGTHS)
def test_rows_that_see_nothing_are_announced_and_where_there_can_be_none_nothing_is(n_query, n_key):
    for mask in masks():
        blind = not slow_dense(mask, n_query, n_key).any(-1).all()
        facts = mask.keep is not None or mask.documents is not None
        assert mask.may_hide_rows(n_query, n_key) or not blind, mask
        if not facts and n_query <= n_key:
            assert not mask.may_hide_rows(n_query, n_key), mask
    assert not AttentionMask().may_hide_rows(5, 3)
    assert AttentionMask(keep=KEEP).may_hide_rows(1, 5)
    assert AttentionMask(documents=DOCUMENTS).may_hide_rows(1, 5)


def test_the_smaller_window_holds():
    assert AttentionMask(window=3).narrowed(None).window == 3
    assert AttentionMask(window=3).narrowed(5).window == 3
    assert AttentionMask(window=3).narrowed(2).window == 2
    narrowed = AttentionMask(keep=KEEP, causal=True).narrowed(4)
    assert narrowed.window == 4
    assert narrowed.causal
    assert narrowed.keep is KEEP


@pytest.mark.parametrize("name", ["keep", "documents", "prefix"])
def test_facts_of_another_length_are_refused(name):
    facts = {"keep": KEEP, "documents": DOCUMENTS, "prefix": PREFIX}[name]
    AttentionMask(**{name: facts}).fits(5)
    for n_key in (4, 6):
        with pytest.raises(
            ValueError, match=rf"{name} has shape \(2, 5\), but there are {n_key} keys: \(batch, {n_key}\)"
        ):
            AttentionMask(**{name: facts}).fits(n_key)


def test_facts_that_are_no_row_a_sequence_are_refused():
    with unchecked():
        for keep in (KEEP[0], KEEP[..., None]):
            with pytest.raises(ValueError, match="keep has shape"):
                AttentionMask(keep=keep).fits(5)


@pytest.mark.parametrize("name", ["keep", "prefix"])
def test_flags_that_are_no_booleans_are_refused(name):
    with unchecked(), pytest.raises(ValueError, match=rf"{name} must be boolean \(True: may attend\), not torch.int64"):
        AttentionMask(**{name: KEEP.long()})


@pytest.mark.parametrize("name", ["documents", "query_documents"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bool])
def test_documents_that_are_no_integers_are_refused(name, dtype):
    with unchecked(), pytest.raises(ValueError, match=f"{name} must be integers, not {dtype}"):
        AttentionMask(**{name: DOCUMENTS.to(dtype)})


def test_a_window_below_one_is_refused():
    with pytest.raises(ValueError, match="window must be at least 1, not 0"):
        AttentionMask(window=0)
    assert AttentionMask(window=1).dense(3, 3, "cpu")[0, 0].equal(torch.eye(3, dtype=torch.bool))


def test_pads_are_zeroed_forward_and_backward():
    x = torch.full((2, 5, 3), torch.nan)
    x[KEEP] = 1.0
    blanked = AttentionMask(keep=KEEP).blank(x.requires_grad_())
    assert blanked.equal(KEEP[..., None].expand(2, 5, 3).float())
    blanked.sum().backward()
    assert x.grad.equal(blanked.detach())
    assert AttentionMask().blank(x) is x


def test_the_pads_of_a_chunk_are_the_last():
    x = torch.ones(2, 2, 3)
    assert AttentionMask(keep=KEEP).blank(x).equal(KEEP[:, -2:, None].expand(2, 2, 3).float())


def test_positions_count_real_tokens_from_the_start_of_each_document():
    for keep, documents in itertools.product([None, KEEP, KEEP.flip(0)], [None, DOCUMENTS]):
        positions = positions_of(AttentionMask(keep=keep, documents=documents), 5, "cpu")
        for row in range(2):
            count, previous = 0, None
            for key in range(5):
                document = None if documents is None else int(documents[row, key])
                if document != previous:
                    count, previous = 0, document
                real = keep is None or bool(keep[row, key])
                if real:
                    assert positions.expand(2, -1)[row, key] == count, (keep, documents, row, key)
                assert positions.min() >= 0
                count += real


def test_a_document_starts_at_the_first_and_wherever_it_changes():
    assert starts_of(DOCUMENTS).tolist() == [[True, False, True, False, False], [True, False, False, False, True]]


def test_a_mask_is_a_tree_of_its_tensors_that_is_also_written_and_read():
    for mask in masks():
        leaves, spec = pytree.tree_flatten(mask)
        assert len(leaves) == sum(t is not None for t in (mask.keep, mask.documents, mask.prefix))
        for again in (spec, pytree.treespec_loads(pytree.treespec_dumps(spec))):
            other = pytree.tree_unflatten(leaves, again)
            assert (other.causal, other.window) == (mask.causal, mask.window)
            assert other.keep is mask.keep
            assert other.documents is mask.documents
            assert other.prefix is mask.prefix
            assert other.query_documents is None
    paths = [path for path, _ in pytree.tree_flatten_with_path(AttentionMask(keep=KEEP, prefix=PREFIX))[0]]
    assert [str(path[0].name) for path in paths] == ["keep", "prefix"]
