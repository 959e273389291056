"""What the initialisers of a model's parameters promise."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import nn

from variants.blocks.initialisers.base import Address, generator_of, initialise
from variants.testing.base import Broken, finite, same
from variants.testing.examples import Example


def draws_as_wide_as_it_says(example: Example) -> None:
    """Values are finite, centred, and of the standard deviation that ``std(address)`` says, whatever the address."""
    initialiser = example.plain()
    for address in _addresses():
        value = initialiser(address, generator_of(0, address.name))
        finite(value, repr(address))
        if tuple(value.shape) != address.shape:
            raise Broken(f"{address} gets {tuple(value.shape)}")
        said = getattr(initialiser, "std", None)
        if said is not None and abs(value.std().item() / said(address) - 1) > 0.05:
            raise Broken(f"the deviation is {value.std().item():.4f}, not {said(address):.4f}: {address}")
        if abs(value.mean().item()) > 0.05 * value.std().item():
            raise Broken(f"the mean is {value.mean().item():.4f}: {address}")


def a_value_is_of_its_seed_and_name(example: Example) -> None:
    """The same seed and name give the same values, whatever was drawn before; another of either gives others."""
    initialiser, address = example.plain(), next(_addresses())
    first = initialiser(address, generator_of(0, "a"))
    torch.rand(3)
    initialiser(address, generator_of(0, "c"))
    same(initialiser(address, generator_of(0, "a")), first, "drawn a second time", 0.0)
    for seed, name in ((1, "a"), (0, "b")):
        if torch.equal(initialiser(address, generator_of(seed, name)), first):
            raise Broken(f"seed {seed} and name {name!r} give the values of seed 0 and name 'a'")
    wrapped, plain = nn.Linear(8, 8), nn.Linear(8, 8)
    initialise(nn.ModuleDict({"x": nn.ModuleDict({"_orig_mod": wrapped})}), initialiser, 0)
    initialise(nn.ModuleDict({"x": plain}), initialiser, 0)
    same(wrapped.weight, plain.weight, "in a wrapper and without", 0.0)


def _addresses() -> Iterator[Address]:
    for shape in ((128, 128), (96, 384), (384, 96)):
        for kind in ("linear", "embedding"):
            address = Address(f"layers.0.{kind}.weight", shape, kind)
            yield address
            yield replace(address, n_layers=12, writes=True)


INITIALISER = (draws_as_wide_as_it_says, a_value_is_of_its_seed_and_name)
