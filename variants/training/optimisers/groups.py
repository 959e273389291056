"""Which parameters decay."""

from __future__ import annotations

import re
from typing import Any

from torch import nn

WRAPPERS = re.compile(r"(^|\.)(_orig_mod|module|_fsdp_wrapped_module|_checkpoint_wrapped_module)(?=\.)")


def plain_name(name: str) -> str:
    """A parameter's name without what compilation, data parallelism and checkpointing put around modules.

    >>> plain_name("module._orig_mod.stack.layers.0._orig_mod.mixer.q.weight")
    'stack.layers.0.mixer.q.weight'
    """
    return WRAPPERS.sub("", name).lstrip(".")


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Sort the trainable parameters, each once, into those that decay and those that do not.

    Parameters of two or more dimensions decay, except where a module says otherwise: its ``no_decay`` names parameters
    and children of its own (position tables).

    Args:
        model: Whose parameters.
        weight_decay: The rate of those that decay.

    Returns:
        Groups for a torch optimiser; ``names`` has the parameters' plain names. An empty group is left out.
    """
    exempt: set[int] = set()
    for module in model.modules():
        for name in getattr(module, "no_decay", ()):
            owned = getattr(module, name)
            exempt |= {id(p) for p in (owned.parameters() if isinstance(owned, nn.Module) else [owned])}
    decayed: dict[str, nn.Parameter] = {}
    kept: dict[str, nn.Parameter] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            group = decayed if parameter.ndim >= 2 and id(parameter) not in exempt else kept
            group[plain_name(name)] = parameter
    return [
        {"params": list(group.values()), "names": list(group), "weight_decay": rate}
        for group, rate in ((decayed, weight_decay), (kept, 0.0))
        if group
    ]
