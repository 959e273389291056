"""A component to try: a choice of a slot, built small and with values that hide nothing."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import nn

from variants import slots
from variants.blocks.embeddings import TiedEmbedding
from variants.blocks.kernels.math import Math
from variants.blocks.norms import LayerNorm
from variants.blocks.residuals.base import Depths
from variants.models import Assembly, skeleton
from variants.registry import SLOTS, Choice, Slot, fields_of

D_MODEL, N_HEADS, VOCAB, MAX_LENGTH = 16, 4, 19, 64
RATES = ("dropout", "attention_dropout", "feedforward_dropout", "embedding_dropout")
MODEL = {"d_model": D_MODEL, "n_layers": 2, "n_heads": N_HEADS, "vocab": VOCAB, "max_length": MAX_LENGTH}
DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)


def offers() -> dict[str, Any]:
    """What a small model would offer, made afresh."""
    return {
        "d_model": D_MODEL,
        "width": D_MODEL,
        "n_heads": N_HEADS,
        "n_layers": 2,
        "vocab": VOCAB,
        "max_length": MAX_LENGTH,
        "bidirectional": False,
        "role": "decoder",
        "kernel": Math(),
        "norm": partial(LayerNorm, D_MODEL),
        "n_branches": 2,
        "depths": Depths(2, decoder=2),
        "embedding": TiedEmbedding(VOCAB, D_MODEL),
        "lr": 0.1,
        "max_steps": 100,
        **dict.fromkeys(RATES, 0.0),
    }


class Example:
    """A component to try, built anew at every call.

    Args:
        slot: The slot whose promises it makes.
        component: The name of a registered choice, or a class or function that need not be registered.
        fields: What a config would set.

    Attributes:
        positions: The positions that a whole model is tried with.
        training: Whether it is built in training, with nothing dropped; else in evaluation.
    """

    positions: tuple[str, ...] = ("rotary", "sinusoidal", "learned", "relative")
    training = False

    def __init__(self, slot: str | Slot[Any], component: str | Callable[..., Any], **fields: Any) -> None:
        self.slot: Slot[Any] = SLOTS[slot] if isinstance(slot, str) else slot
        self.fields = fields
        if isinstance(component, str):
            self.choice: Choice[Any] = self.slot[component]
        else:
            build = getattr(component, self.slot.by) if self.slot.by else component
            self.choice = Choice(getattr(component, "__name__", "component"), component, {}, build)

    def __repr__(self) -> str:
        fields = ",".join(f"{name}={value}" for name, value in self.fields.items())
        return f"{self.slot.name}.{self.choice.name}" + (f"[{fields}]" if fields else "")

    def asks(self, name: str) -> bool:
        """Whether the constructor takes something of that name."""
        return name in inspect.signature(self.choice.build).parameters

    def takes(self, name: str) -> bool:
        """Whether it takes an offer of that name, which neither its registration nor the fields have set."""
        return self.asks(name) and name not in self.choice.fixed and name not in self.fields

    def missing(self) -> list[str]:
        """What its constructor needs and neither the fields nor a model give."""
        given = {"assembly", *offers(), *self.fields, *self.choice.fixed}
        return [name for name, field in fields_of(self.choice.build).items() if field.required and name not in given]

    def in_training(self) -> Example:
        """The same component, to be built in training, with nothing dropped."""
        other = copy.copy(self)
        other.training = True
        other.fields = {name: 0.0 if name.endswith("dropout") else value for name, value in self.fields.items()}
        return other

    def __call__(self, seed: int = 0, **changes: Any) -> Any:
        """Build it; parameters are moved off their initial values, since a 0 hides what it multiplies.

        Args:
            seed: Of the values.
            **changes: What is offered instead of the usual.
        """
        built = self.plain(seed, **changes)
        if not isinstance(built, nn.Module):
            return built
        for module in built.modules() if self.training else ():
            if isinstance(module, DROPOUTS):
                module.p = 0.0
        return shaken(built, seed).train(self.training)

    def plain(self, seed: int = 0, **changes: Any) -> Any:
        """Build it as its constructor leaves it."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            if self.slot is slots.layouts:
                return self._model(**changes)
            return self._build({**offers(), **changes})

    def _build(self, offered: Mapping[str, Any]) -> Any:
        registered = self.slot.choices.get(self.choice.name)
        if registered is not None and registered.component is self.choice.component:
            return self.slot.build({"name": self.choice.name, **self.fields}, **offered)
        return self.choice.build(**self.choice.arguments(self.fields, offered))

    def _model(self, checkpoint_every: int = 0, **fields: Any) -> nn.Module:
        assembly = Assembly(skeleton.check({**MODEL, **fields}), checkpoint_every=checkpoint_every)
        built: nn.Module = self._build({"assembly": assembly})
        assert not assembly.problems, assembly.problems
        return built


@torch.no_grad()
def shaken(module: nn.Module, seed: int = 0) -> nn.Module:
    """Move every parameter a little, each by a draw of its own."""
    generator = torch.Generator().manual_seed(seed + 1)
    for parameter in module.parameters():
        if not parameter.is_meta:
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.2)
    return module
