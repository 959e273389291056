"""Distributions are cut where the papers say, and draws follow them."""

import pytest
import torch

from variants.generation import GREEDY, Sampler, Sampling

P = torch.tensor([[0.15, 0.5, 0.05, 0.3]])


def kept(sampling, logits=None):
    probabilities = sampling.probabilities(P.log() if logits is None else logits)
    torch.testing.assert_close(probabilities.sum(1), torch.ones(len(probabilities), dtype=torch.float64))
    return set(probabilities[0].nonzero()[:, 0].tolist())


@pytest.mark.parametrize(("top_p", "count"), [(0, 1), (0.4, 1), (0.6, 2), (0.85, 3), (0.97, 4), (1, 4)])
def test_the_token_that_crosses_top_p_is_kept(top_p, count):
    assert kept(Sampling(top_p=top_p)) == set([1, 3, 0, 2][:count])


def test_the_token_that_reaches_top_p_is_the_last():
    assert kept(Sampling(top_p=0.5), torch.zeros(1, 4)) == {0, 1}


@pytest.mark.parametrize(("top_k", "count"), [(1, 1), (2, 2), (4, 4), (10, 4)])
def test_top_k_keeps_k(top_k, count):
    assert kept(Sampling(top_k=top_k)) == set([1, 3, 0, 2][:count])


def test_top_k_keeps_k_of_equal_tokens():
    assert kept(Sampling(top_k=3), torch.zeros(1, 6)) == {0, 1, 2}


def test_top_p_counts_what_top_k_left():
    # of the two that are left, the first has 0.625
    assert kept(Sampling(top_k=2, top_p=0.6)) == {1}
    assert kept(Sampling(top_k=2, top_p=0.63)) == {1, 3}


def test_what_is_kept_keeps_its_proportions():
    assert Sampling(top_k=2).probabilities(P.log())[0].tolist() == pytest.approx([0, 0.625, 0, 0.375])


def test_temperature_sharpens_before_the_cut():
    assert Sampling(0.5).probabilities(P.log())[0].tolist() == pytest.approx((P**2 / (P**2).sum())[0].tolist())
    assert kept(Sampling(0.5, top_p=0.6)) == {1}  # 0.25 of 0.365


@pytest.mark.parametrize("sampling", [GREEDY, Sampling(top_p=0), Sampling(top_k=1), Sampling(1e-308)])
def test_degenerate_settings_are_greedy(sampling):
    logits = torch.randn(30, 11)
    logits[:, 4:6] = 5.0  # a tie
    if sampling.greedy:
        assert Sampler(sampling, 0, [()] * 30)(logits).tolist() == logits.argmax(1).tolist()
    assert (sampling.probabilities(logits).argmax(1) == logits.argmax(1)).all()


def test_impossible_tokens_are_never_drawn():
    logits = torch.tensor([[float("-inf"), 0.0, float("-inf"), 0.0]])
    for sampling in (Sampling(), Sampling(top_k=3), Sampling(2.0, top_p=0.999999)):
        assert kept(sampling, logits) == {1, 3}
        assert set(Sampler(sampling, 0, [()] * 200)(logits.expand(200, 4)).tolist()) == {1, 3}


@pytest.mark.parametrize("number", [0.0, 1 - 2**-53])
def test_the_ends_of_the_random_numbers_draw_tokens_that_are_kept(number, monkeypatch):
    monkeypatch.setattr(torch, "rand", lambda *_, **__: torch.tensor([number], dtype=torch.float64))
    drawn = Sampler(Sampling(top_k=2), 0, [()])(torch.tensor([[0.0, 3.0, 2.0, 1.0]]))
    assert drawn.tolist() == [1 if number == 0 else 2]


@pytest.mark.parametrize("rows", [20, 20_000])
def test_draws_follow_the_distribution(rows):
    """Across rows with streams of their own, and along one row's stream."""
    n = 20_000
    sampler = Sampler(Sampling(top_k=3), 7, [(5,)] * rows)
    drawn = torch.cat([sampler(P.log().expand(rows, 4)) for _ in range(n // rows)])
    expected = torch.tensor([0.15, 0.5, 0.0, 0.3]) / 0.95
    deviation = (n * expected * (1 - expected)).sqrt()
    assert ((drawn.bincount(minlength=4) - n * expected).abs() <= 3 * deviation).all()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"temperature": -0.1}, "temperature must be at least 0 and finite, not -0.1"),
        ({"temperature": float("nan")}, "temperature must be at least 0 and finite, not nan"),
        ({"top_k": 0}, "top_k must be at least 1, not 0"),
        ({"top_p": 1.5}, "top_p must lie between 0 and 1, not at 1.5"),
    ],
)
def test_settings_out_of_range_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        Sampling(**fields)
