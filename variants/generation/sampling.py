"""Choose a token of a distribution: the likeliest, or by chance among the likely."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F


@dataclass(frozen=True)
class Sampling:
    """Reshape a distribution: first the temperature, then the k likeliest, then the likeliest that have p together.

    Source: Fan et al. 2018, "Hierarchical Neural Story Generation", arXiv:1805.04833 (top-k); Holtzman et al. 2020,
    "The Curious Case of Neural Text Degeneration", arXiv:1904.09751 (top-p).

    Args:
        temperature: Logits are divided by it; 0 takes the likeliest token.
        top_k: How many tokens are kept; None: all.
        top_p: Tokens are kept from the likeliest down to the one with which their probabilities reach this, that one
            included; 0 takes the likeliest token, None keeps all.

    Raises:
        ValueError: A value is out of its range.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < float("inf"):
            raise ValueError(f"temperature must be at least 0 and finite, not {self.temperature}")
        if self.top_k is not None and self.top_k < 1:
            raise ValueError(f"top_k must be at least 1, not {self.top_k}")
        if self.top_p is not None and not 0 <= self.top_p <= 1:
            raise ValueError(f"top_p must lie between 0 and 1, not at {self.top_p}")

    @property
    def greedy(self) -> bool:
        """Whether only the likeliest token is kept."""
        return self.temperature == 0 or self.top_k == 1 or self.top_p == 0

    def probabilities(self, logits: Float[Tensor, "rows vocab"]) -> Float[Tensor, "rows vocab"]:
        """What is drawn from, in float64: 0 for tokens that are not kept, 1 together for the others."""
        if self.greedy:
            nothing = torch.zeros_like(logits, dtype=torch.float64)
            return nothing.scatter_(1, logits.argmax(1, keepdim=True), 1.0)
        logits = logits.double()
        scaled = (logits - logits.amax(1, keepdim=True)) / self.temperature
        falling, order = scaled.softmax(1).sort(dim=1, descending=True, stable=True)
        if self.top_k is not None:
            falling = kept(falling, torch.arange(falling.shape[1]).expand_as(falling) < self.top_k)
        if self.top_p is not None and self.top_p < 1:
            before = F.pad(falling.cumsum(1)[:, :-1], (1, 0))
            falling = kept(falling, before < self.top_p)
        return torch.zeros_like(falling).scatter_(1, order, falling)


GREEDY = Sampling(temperature=0.0)


class Sampler:
    """Draw a token for every row, from a stream of random numbers that is the row's own.

    A stream is a function of the seed, the prompt, and how many earlier rows have the same prompt: what a prompt's
    sample is depends neither on what else is in the batch nor on the order, and equal prompts get different samples.

    Args:
        sampling: How distributions are reshaped.
        seed: Of all streams.
        prompts: Of every row.
    """

    def __init__(self, sampling: Sampling, seed: int, prompts: Sequence[Sequence[int]]) -> None:
        self.sampling = sampling
        seen: Counter[tuple[int, ...]] = Counter()
        self.streams = []
        for prompt in map(tuple, prompts):
            self.streams.append(stream(seed, prompt, seen[prompt]))
            seen[prompt] += 1

    def __call__(self, logits: Float[Tensor, "rows vocab"]) -> Int[Tensor, " rows"]:
        """The rows' next tokens."""
        return logits.argmax(1) if self.sampling.greedy else self.draw(logits.cpu()).to(logits.device)

    def draw(self, logits: Float[Tensor, "rows vocab"]) -> Int[Tensor, " rows"]:
        """Draw on the CPU, so that the device does not matter."""
        cumulated = self.sampling.probabilities(logits).cumsum(1)
        uniform = torch.stack([torch.rand(1, generator=s, dtype=torch.float64) for s in self.streams])
        return torch.searchsorted(cumulated, uniform * cumulated[:, -1:], right=True)[:, 0]


def stream(seed: int, prompt: tuple[int, ...], occurrence: int) -> torch.Generator:
    """The random numbers of one row."""
    address = hashlib.blake2b(repr((seed, prompt, occurrence)).encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(address, "little") >> 1)


def kept(probabilities: Float[Tensor, "rows vocab"], mask: Bool[Tensor, "rows vocab"]) -> Float[Tensor, "rows vocab"]:
    """The probabilities of these alone."""
    some = probabilities.masked_fill(~mask, 0.0)
    return some / some.sum(1, keepdim=True)
