"""What promises are made of: a broken one, the modes it is tried in, comparisons that word it, and gradients."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import Tensor, nn

from variants.blocks.cache import Cache
from variants.testing.examples import Example

Promise = Callable[[Example], None]
NAN, INF = float("nan"), float("inf")
BF16_TOLERANCE = 0.05  # of the output's size: 8 bits of mantissa, through a few layers
CHUNKS = ([1, 1], [12], [1] * 12, [5, 1, 1, 5])  # of a sequence that is passed through a cache, the shortest first


class Broken(AssertionError):  # noqa: N818  # a verdict, no fault of the program
    """A promise that does not hold, with the smallest counterexample in one line."""


def in_both_modes(promise: Promise) -> Promise:
    """Try a promise in evaluation, and in training with every dropout rate at 0.

    In training, what draws random numbers all the same is not judged: two calls of it may differ, and should.
    """

    @functools.wraps(promise)
    def tried(example: Example) -> None:
        promise(example)
        with torch.random.fork_rng(devices=[]):
            before = torch.get_rng_state()
            try:
                promise(example.in_training())
            except Broken as broken:
                if torch.equal(torch.get_rng_state(), before):
                    raise Broken(f"{broken}, in training") from None

    return tried


def distance(a: Tensor, b: Tensor) -> float:
    """The largest difference of two tensors; infinite where one is not finite and they differ there."""
    if a.shape != b.shape:
        return INF
    a, b = a.detach().double(), b.detach().double()
    apart = torch.where(a == b, 0.0, (a - b).abs())
    return float(apart.nan_to_num(INF).max()) if apart.numel() else 0.0


def same(actual: Tensor, expected: Tensor, what: str, tolerance: float = 1e-5) -> None:
    """Compare two tensors, relative to the size of the expected one.

    Raises:
        Broken: They differ.
    """
    if actual.shape != expected.shape:
        raise Broken(f"{what}: the shape is {tuple(actual.shape)}, not {tuple(expected.shape)}")
    apart = distance(actual, expected)
    size = float(expected.detach().double().abs().max()) if expected.numel() else 0.0
    if not apart <= tolerance * max(1.0, size):
        raise Broken(f"{what}: differs by {apart:.2g}")


def close(actual: Tensor, expected: Tensor, what: str, tolerance: float) -> None:
    """Compare two tensors as vectors: the length of their difference over that of the expected one.

    Raises:
        Broken: They differ.
    """
    actual, expected = actual.detach().double(), expected.detach().double()
    apart = float((actual - expected).norm() / expected.norm().clamp(min=0.1)) if actual.numel() else 0.0
    if not apart <= tolerance:
        raise Broken(f"{what}: differs by {apart:.2g} of its size")


def finite(x: Tensor, what: str) -> None:
    """Look for NaN and infinity.

    Raises:
        Broken: There is one.
    """
    if not torch.isfinite(x).all():
        where = (~torch.isfinite(x)).nonzero()[0].tolist()
        raise Broken(f"{what}: not finite at {where}")


def moved(changed: Tensor, before: Tensor, tolerance: float = 1e-6) -> list[bool]:
    """Which positions of (batch, time, d) differ in some row."""
    apart = (changed.detach().double() - before.detach().double()).abs().nan_to_num(INF)
    return (apart.amax((0, 2)) > tolerance).tolist()


def generator(seed: int = 0) -> torch.Generator:
    """A generator of its own, so that a promise neither uses nor changes the global one."""
    return torch.Generator().manual_seed(seed)


def noise(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    """Normal numbers, the same at every call."""
    return torch.randn(*shape, generator=generator(seed), dtype=torch.float64).to(dtype)


def gradients(module: nn.Module, loss: Tensor, *inputs: Tensor) -> dict[str, Tensor]:
    """The gradients of a loss with respect to inputs and parameters, by name; zeros where there is none."""
    named = {f"input {i}": t for i, t in enumerate(inputs)}
    named |= {name: p for name, p in module.named_parameters() if p.requires_grad}
    if not named or not loss.requires_grad:
        return {name: torch.zeros_like(t) for name, t in named.items()}
    found = torch.autograd.grad(loss, list(named.values()), allow_unused=True)
    return {n: torch.zeros_like(t) if g is None else g for (n, t), g in zip(named.items(), found, strict=True)}


def spoil_unused(cache: Cache, held: float) -> None:
    """Overwrite what a cache holds behind the end of each slot, as whoever allocates without clearing would."""
    for slot in cache.slots.values():
        for buffer in slot.grown:
            buffer[..., slot.end :, :] = held


@torch.no_grad()
def without_written_biases(part: nn.Module) -> nn.Module:
    """The part with the biases of what it ``writes`` at 0; of all that it has, where it does not say what it writes."""
    written: tuple[str, ...] = getattr(part, "writes", ("",))
    for child in written:
        for name, parameter in part.get_submodule(child).named_parameters():
            if "bias" in name.rpartition(".")[2]:
                parameter.zero_()
    return part


def weighted(y: Tensor, seed: int = 9) -> Tensor:
    """A sum with weights of its own for every output, so that no gradient cancels."""
    return (y * noise(*y.shape, seed=seed, dtype=y.dtype)).sum()
