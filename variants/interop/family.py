"""What is known of one architecture of `transformers`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from variants.errors import ConfigError
from variants.interop.counterparts import Counterparts
from variants.interop.weights import Weights
from variants.registry import Node


@dataclass(frozen=True)
class Export:
    """How models of ours become models of theirs.

    Args:
        counterparts: The choices that it has.
        refuses: What of a built model it cannot have though it has the choices, a line each.
        config_of: Their config of a model of ours and its config.
    """

    counterparts: Counterparts
    refuses: Callable[[nn.Module], list[str]]
    config_of: Callable[[nn.Module, Mapping[str, Any]], Any]


@dataclass(frozen=True)
class Family:
    """One architecture.

    Args:
        model_type: Its name there.
        model_of: Our model's config of their config.
        weights_of: Where each parameter of a model of ours lies in their state.
        computed: A part of the names of their tensors that are no weights.
        export: The way back, if there is one.
    """

    model_type: str
    model_of: Callable[[Any], dict[str, Any]]
    weights_of: Callable[[nn.Module], Weights]
    computed: str = ""
    export: Export | None = None


PLAIN: dict[str, Node] = {
    "relu": {"name": "relu"},
    "silu": {"name": "silu"},
    "swish": {"name": "silu"},
    "gelu": {"name": "gelu", "approximate": "none"},
    "gelu_new": {"name": "gelu", "approximate": "tanh"},
    "gelu_pytorch_tanh": {"name": "gelu", "approximate": "tanh"},
}
GATED: dict[str, Node] = {"silu": {"name": "swiglu"}, "swish": {"name": "swiglu"}, "gelu": {"name": "geglu"}}


def feedforward_of(model_type: str, activation: str, known: Mapping[str, Node], d_ff: int) -> Node:
    """The feed-forward of an activation's name there.

    Raises:
        ConfigError: There is none.
    """
    require(model_type, "activation", activation, *known)
    return {**known[activation], "d_ff": d_ff}


def activation_of(node: Node, known: Mapping[str, Node]) -> str:
    """The name there of a feed-forward of ours."""
    options = {"approximate": "none"} if node["name"] == "gelu" else {}
    wanted = {**options, **{name: node[name] for name in ("name", "approximate") if name in node}}
    return next(name for name, choice in known.items() if choice == wanted)


def final_epsilon(model: Any) -> list[str]:
    """The epsilon of a final norm of ours, where it is not that of the layers' norms: theirs have one in common."""
    final, layers = model.stack.norm.eps, model.stack.layers[0].residual.norms[0].eps
    return [] if final == layers else [f"norm_eps {final} in the final norm beside {layers} in the layers (it has one)"]


def require(model_type: str, field: str, value: Any, *accepted: Any) -> None:
    """Refuse a value that has no counterpart here.

    Raises:
        ConfigError: It is none of the accepted ones.
    """
    if value not in accepted:
        known = ", ".join(map(str, accepted))
        raise ConfigError([f"{model_type}: {field}={value} has no counterpart here; what has: {known}"])
