"""Training and evaluation: a part mixes along time in the same way in both."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import nn

from variants.testing.base import Broken, Promise
from variants.testing.examples import Example

RATES = dict.fromkeys(("dropout", "attention_dropout", "feedforward_dropout", "embedding_dropout"), 0.0)


class InMode(Example):
    """An example whose components are in evaluation, or in training with every rate of dropout at 0.

    Args:
        example: What is built.
        training: In which mode.
    """

    def __init__(self, example: Example, training: bool) -> None:
        self.__dict__.update(vars(example))
        self.fields = {name: 0.0 if name.endswith("dropout") else value for name, value in example.fields.items()}
        self.training = training

    def __call__(self, seed: int = 0, **changes: Any) -> Any:
        """Build it, as `Example` does."""
        built = super().__call__(seed, **{**RATES, **changes}).train(self.training)
        for module in built.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0
        return built


def in_both_modes(promise: Promise) -> Promise:
    """Try a promise in evaluation, without gradients, and in training, with them."""

    @functools.wraps(promise)
    def tried(example: Example) -> None:
        for mode, training in (("evaluation", False), ("training", True)):
            try:
                with torch.set_grad_enabled(training):
                    promise(InMode(example, training))
            except Broken as broken:
                raise Broken(f"{broken}, in {mode}") from None

    return tried


@torch.no_grad()
def without_written_biases(part: nn.Module) -> nn.Module:
    """The part with the biases of what it ``writes`` at 0; of all that it has, where it does not say what it writes."""
    written: tuple[str, ...] = getattr(part, "writes", ("",))
    for child in written:
        for name, parameter in part.get_submodule(child).named_parameters():
            if "bias" in name.rpartition(".")[2]:
                parameter.zero_()
    return part
