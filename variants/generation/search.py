"""The hypotheses of one beam search, and when it is over."""

from __future__ import annotations

import bisect
from collections.abc import Iterable
from typing import NamedTuple


class Hypothesis(NamedTuple):
    """A sequence and how likely the model finds it.

    Attributes:
        score: The logarithm of its probability over the length's penalty.
        log_probability: Of all its tokens, given the prompt; nats.
        ids: Its tokens, EOS included if it ends by itself and not by the limit.
    """

    score: float
    log_probability: float
    ids: tuple[int, ...]


class Candidate(NamedTuple):
    """One more token for a live hypothesis."""

    log_probability: float
    parent: int
    token: int


class Search:
    """The search for one prompt: it knows of no other.

    Args:
        beam: Live hypotheses at most.
        n_best: How many sequences are wanted.
        alpha: Of the length's penalty.
        max_new: Tokens of a sequence at most.
        eos: What ends a sequence.
    """

    def __init__(self, beam: int, n_best: int, alpha: float, max_new: int, eos: int | None) -> None:
        self.beam, self.n_best, self.alpha, self.max_new, self.eos = beam, n_best, alpha, max_new, eos
        self.live: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
        self.best: list[Hypothesis] = []

    def totals(self) -> list[float]:
        """The log-probabilities of what is live; minus infinity where the beam is not full."""
        dead = [float("-inf")] * (self.beam - len(self.live))
        return [total for total, _ in self.live] + dead

    def take(self, candidates: Iterable[Candidate]) -> list[tuple[int, int]]:
        """Go on with these, the likeliest first.

        Returns:
            For every place in the beam, the place it continues and with which token; anything where it is not full.
        """
        before, self.live = self.live, []
        taken = []
        for total, parent, token in candidates:
            if total == float("-inf"):
                break
            ids = (*before[parent][1], token)
            if token == self.eos or len(ids) == self.max_new:
                found = Hypothesis(total / self.penalty(len(ids)), total, ids)
                bisect.insort(self.best, found, key=lambda hypothesis: -hypothesis.score)
            else:
                self.live.append((total, ids))
                taken.append((parent, token))
        del self.best[self.n_best :]
        if self.over:
            self.live = []
        return taken + [(0, 0)] * (self.beam - len(taken))

    @property
    def over(self) -> bool:
        """Whether nothing that is live can still come among the best."""
        if not self.live or len(self.best) < self.n_best:
            return not self.live
        total, ids = self.live[0]  # the likeliest; more tokens make it no likelier, but may penalise it less
        least = max(self.penalty(len(ids) + 1), self.penalty(self.max_new))
        return self.best[-1].score >= total / least

    def penalty(self, length: int) -> float:
        """What a log-probability is divided by."""
        return float(((5 + length) / 6) ** self.alpha)
