"""Initial values by address: each a function of the seed and the parameter's name, whatever was drawn before.

So two models that share a parameter start it from the same value, and a sharded model from that of a whole one.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from variants.slots import Initialiser

# What wrappers put into a name: compilation, FSDP, activation checkpointing, DDP.
WRAPPERS = frozenset({"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module", "module"})

Constant = float | Callable[[torch.Size], Tensor]
CONSTANTS: dict[type[nn.Module], dict[str, Constant]] = {  # of torch's own modules; ours declare `initial`
    nn.Conv1d: {"bias": 0.0},
    nn.Conv2d: {"bias": 0.0},
    nn.LayerNorm: {"weight": 1.0, "bias": 0.0},
    nn.Linear: {"bias": 0.0},
    nn.RMSNorm: {"weight": 1.0},
}
KINDS: dict[type[nn.Module], Literal["linear", "embedding"]] = {nn.Embedding: "embedding", nn.Linear: "linear"}


@dataclass(frozen=True)
class Address:
    """All that an initial value may depend on besides the seed.

    Args:
        name: The parameter's dotted name without wrappers, or that of a part of a fused one.
        shape: Its shape; whole, if it is sharded.
        kind: What it is a matrix of.
        n_layers: Depth of its stack; 1 outside stacks.
        writes: Whether its output is added to the stream: a child that its owner names in ``writes``.
    """

    name: str
    shape: tuple[int, ...]
    kind: Literal["linear", "embedding", "other"] = "other"
    n_layers: int = 1
    writes: bool = False

    @property
    def fans(self) -> tuple[int, int]:
        """Inputs of an output feature, and outputs of an input feature.

        >>> Address("up.weight", (8, 2)).fans, Address("patches.weight", (8, 3, 4, 4)).fans
        ((2, 8), (48, 128))
        """
        rows, columns, *window = self.shape
        return columns * math.prod(window), rows * math.prod(window)


def stripped(name: str) -> str:
    """A dotted name without what wrappers put into it.

    >>> stripped("module._orig_mod.stack.layers.0.mixer.q.weight")
    'stack.layers.0.mixer.q.weight'
    """
    return ".".join(part for part in name.split(".") if part not in WRAPPERS)


def generator_of(seed: int, name: str) -> torch.Generator:
    """A generator on the CPU whose stream is that of this seed and this name alone."""
    digest = hashlib.blake2b(f"{seed}:{name}".encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "little") >> 1)  # torch takes 63 bits


@torch.no_grad()
def initialise(model: nn.Module, initialiser: Initialiser, seed: int) -> None:
    """Give every parameter its initial value, on whatever device and in whatever dtype it is.

    A module, or one that holds it, declares constants in ``initial``, by their names from there. What has two
    dimensions or more is drawn in float32 on the CPU; where an owner has ``parts(name)``, the rows of each part under
    a name of their own.

    Args:
        model: A model, also one whose memory is uninitialised (``to_empty``) or sharded.
        initialiser: Draws what is no constant.
        seed: Of all the draws.
    """
    modules = {stripped(path): module for path, module in model.named_modules()}
    for path, parameter in model.named_parameters():
        name, shape = stripped(path), parameter.shape
        owners = list(_owners(modules, name))
        constant = _constant(owners)
        if constant is not None:
            value = constant(shape) if callable(constant) else torch.full(shape, float(constant))
        else:
            assert len(shape) > 1, f"{name}: no module declares its initial value, and it is no matrix"
            value = torch.empty(shape)
            for part, rows in _parts(owners, name):
                drawn = value[rows]
                address = _address(owners, part, tuple(drawn.shape))
                drawn.copy_(initialiser(address, generator_of(seed, part)))
        parameter.copy_(_placed(value, parameter))


Owner = tuple[nn.Module, str, str]  # a module, its name, and the rest of the parameter's


def _owners(modules: Mapping[str, nn.Module], name: str) -> Iterator[Owner]:
    """All modules that hold a parameter, the nearest first."""
    steps = name.split(".")
    for cut in reversed(range(len(steps))):
        path = ".".join(steps[:cut])
        if path in modules:
            yield modules[path], path, ".".join(steps[cut:])


def _constant(owners: list[Owner]) -> Constant | None:
    for module, _, rest in owners:
        if rest in (known := getattr(module, "initial", {})):
            found: Constant = known[rest]
            return found
    module, _, rest = owners[0]
    return CONSTANTS.get(type(module), {}).get(rest)


def _parts(owners: list[Owner], name: str) -> list[tuple[str, slice]]:
    """Names and rows of what a parameter fuses; itself, if it fuses nothing."""
    for module, path, rest in owners:
        parts = getattr(module, "parts", None)
        if callable(parts) and (found := parts(rest)):
            return [(f"{path}.{part}".lstrip("."), rows) for part, rows in found]
    return [(name, slice(None))]


def _address(owners: list[Owner], name: str, shape: tuple[int, ...]) -> Address:
    child = [rest.rpartition(".")[0] for _, _, rest in owners]
    writes = any(c in getattr(module, "writes", ()) for (module, _, _), c in zip(owners, child, strict=True))
    orders = (getattr(module, "order", None) for module, _, _ in owners)  # a stack's: which layer runs at every depth
    n_layers = next((len(order) for order in orders if isinstance(order, list)), 1)
    return Address(name, shape, KINDS.get(type(owners[0][0]), "other"), n_layers, writes)


def _placed(value: Tensor, parameter: Tensor) -> Tensor:
    """The value as the parameter is laid out: where that is sharded, only this rank's part is kept."""
    if not hasattr(parameter, "device_mesh"):
        return value
    from torch.distributed.tensor import DTensor, distribute_tensor  # slow to import, and rarely needed

    assert isinstance(parameter, DTensor)
    whole = value.to(parameter.device)
    return distribute_tensor(whole, parameter.device_mesh, parameter.placements, src_data_rank=None)
