"""Beam search finds what an exhaustive search finds, and scores what it finds as the model does."""

import itertools

import pytest
import torch
from generating import LAYOUTS, Chain, forced, small

from variants.generation import beam_search, decode

PROMPTS = [[5, 6, 7], [4, 9, 8, 7, 6, 5, 4, 11, 9], [12], [5, 6, 7, 13], [8, 8], [17, 4, 5, 5, 6]]


def rescored(model, prompt, *rows):
    """The log-probabilities of every beginning of sequences of one length, under teacher forcing."""
    following = forced(model, prompt, *rows)[:, :-1].double().log_softmax(-1)
    return following.gather(2, torch.tensor(rows)[:, :, None])[:, :, 0].cumsum(1).tolist()


def score(total, length, alpha):
    return total / ((5 + length) / 6) ** alpha


def exhaustive(model, prompt, vocab, eos, max_new, alpha):
    """Every sequence that ends by itself or by the limit, the best first."""
    found = {}
    rows = list(itertools.product(range(vocab), repeat=max_new))
    for ids, totals in zip(rows, rescored(model, prompt, *rows), strict=True):
        length = ids.index(eos) + 1 if eos in ids else max_new
        found[ids[:length]] = score(totals[length - 1], length, alpha)
    return sorted(((value, ids) for ids, value in found.items()), reverse=True)


@pytest.mark.parametrize(("vocab", "max_new"), [(3, 4), (4, 3)])
@pytest.mark.parametrize("alpha", [0.0, 0.6, 2.0])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_beam_that_holds_every_prefix_is_exhaustive(layout, alpha, vocab, max_new):
    model = small(layout, vocab=vocab, seed=vocab)
    expected = exhaustive(model, [1, 0], vocab, eos=1, max_new=max_new, alpha=alpha)
    n_best = len(expected)
    found = beam_search(model, [[1, 0]], max_new=max_new, beam=64, n_best=64, alpha=alpha, eos=1)[0]
    assert [h.ids for h in found] == [ids for _, ids in expected]
    assert [h.score for h in found] == pytest.approx([s for s, _ in expected], abs=1e-4)
    (best,) = beam_search(model, [[1, 0]], max_new=max_new, beam=64, alpha=alpha, eos=1)[0]
    assert best.ids == expected[0][1]
    assert n_best == sum((vocab - 1) ** n for n in range(max_new)) + (vocab - 1) ** max_new


@pytest.mark.parametrize("alpha", [-1.0, 0.0, 0.6, 3.0])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_beam_of_one_is_greedy(layout, alpha):
    model = small(layout, vocab=6)
    prompts = [[4, 5], [5], [4, 4, 5], []]
    greedy = decode(model, prompts, max_new=10)
    assert any(row[-1] == 3 for row in greedy)
    assert greedy == [list(best.ids) for (best,) in beam_search(model, prompts, max_new=10, beam=1, alpha=alpha)]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_prompt_is_searched_as_if_it_were_alone(layout):
    model = small(layout)
    together = beam_search(model, PROMPTS, max_new=10, n_best=3)
    alone = [beam_search(model, [prompt], max_new=10, n_best=3)[0] for prompt in PROMPTS]
    swapped = beam_search(model, PROMPTS[::-1], max_new=10, n_best=3)[::-1]
    uncached = beam_search(model, PROMPTS, max_new=10, n_best=3, use_cache=False)
    for other in (alone, swapped, uncached):
        for ours, theirs in zip(together, other, strict=True):
            assert [h.ids for h in ours] == [h.ids for h in theirs]
            assert [h.score for h in ours] == pytest.approx([h.score for h in theirs], abs=1e-4)


@pytest.mark.parametrize("fields", [{}, {"mixer": "lstm"}, {"position": "relative"}], ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_results_are_sorted_different_and_score_as_teacher_forcing_does(layout, fields):
    model = small(layout, vocab=7, **fields)
    prompts = [[4, 5, 6], [5], [6, 6, 4, 4, 5, 6]]
    for prompt, found in zip(prompts, beam_search(model, prompts, max_new=6, beam=5, n_best=5), strict=True):
        assert len({h.ids for h in found}) == len(found) == 5
        assert [h.score for h in found] == sorted((h.score for h in found), reverse=True)
        for h in found:
            assert h.log_probability == pytest.approx(rescored(model, prompt, h.ids)[0][-1], abs=1e-4)
            assert h.score == pytest.approx(score(h.log_probability, len(h.ids), 0.6), abs=1e-6)
            assert 3 not in h.ids[:-1]
            assert h.ids[-1] == 3 or len(h.ids) == 6


def test_a_beam_wider_than_the_vocabulary_has_no_copies():
    model = small(vocab=3)
    found = beam_search(model, [[1]], max_new=3, beam=5, n_best=5, eos=2)[0]
    assert len({h.ids for h in found}) == 5
    assert all(h.score > float("-inf") for h in found)


def test_impossible_sequences_are_no_results():
    model = Chain([0.5, 0.0, 0.0, 0.5], *[[1.0, 0.0, 0.0, 0.0]] * 3)
    found = beam_search(model, [[2]], max_new=3, beam=5, n_best=5)[0]
    assert sorted(h.ids for h in found) == [(0, 0, 0), (0, 0, 3), (0, 3)]


def test_a_search_goes_on_while_something_live_can_win():
    # 0 is likelier left out (0.52 against 0.48 * 0.99), but length makes it the better: -0.744 / (7/6) against -0.654
    model = Chain([0.005, 0.005, 0.0, 0.99], [0.25] * 4, [0.48, 0.0, 0.0, 0.52], [0.25] * 4)
    assert beam_search(model, [[2]], max_new=6, beam=2, alpha=1.0)[0][0].ids == (0, 3)
    assert beam_search(model, [[2]], max_new=6, beam=2, alpha=0.0)[0][0].ids == (3,)


def test_a_search_ends_when_nothing_live_can_win():
    model = Chain(*[[0.001, 0.0, 0.0, 0.999]] * 4)
    assert beam_search(model, [[2], [0]], max_new=50)[1][0].ids == (3,)
    assert model.steps == 1


def test_a_step_that_ends_frees_no_place_for_a_worse_one():
    model = Chain([0.0, 0.0, 0.0, 1.0], [0.0, 0.0, 0.0, 1.0], [0.3, 0.1, 0.0, 0.6], [0.25] * 4)
    assert [h.ids for h in beam_search(model, [[2]], max_new=4, beam=2, n_best=2)[0]] == [(3,), (0, 3)]


def test_min_new_holds_for_beams():
    model = Chain(*[[0.2, 0.1, 0.0, 0.7]] * 4)
    found = beam_search(model, [[2]], max_new=6, min_new=2, n_best=4)[0]
    assert min(len(h.ids) for h in found) == 3
    assert found[0].ids == (0, 0, 3)


def test_the_memory_of_a_source_is_not_copied_for_its_beams():
    model, seen = small("encoder_decoder"), set()
    model.decoder.layers[0].cross.kernel.register_forward_pre_hook(lambda _, given: seen.add(len(given[1])))
    beam_search(model, PROMPTS, max_new=5, beam=3)
    assert seen == {len(PROMPTS)}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"beam": 0}, "beam must be at least 1, not 0"),
        ({"beam": 2, "n_best": 3}, "n_best must lie between 1 and beam 2, not at 3"),
        ({"max_new": 0}, "max_new must be at least 1, not 0"),
    ],
)
def test_numbers_out_of_range_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        beam_search(small(), [[5]], **{"max_new": 3, **fields})


def test_no_prompts_give_no_results():
    assert beam_search(small(), [], max_new=3) == []
