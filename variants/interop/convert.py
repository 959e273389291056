"""From a model of `transformers` to one of ours, and back."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from variants.errors import ConfigError, unknown
from variants.interop.counterparts import lacking
from variants.interop.family import Family
from variants.interop.gpt2 import GPT2
from variants.interop.llama import LLAMA
from variants.interop.marian import MARIAN
from variants.interop.t5 import T5
from variants.interop.weights import read, write
from variants.models import skeleton
from variants.models.assembly import assemble

FAMILIES = {family.model_type: family for family in (GPT2, LLAMA, MARIAN, T5)}


def model_config_of(config: Any) -> dict[str, Any]:
    """Say in a config of ours what a model of theirs is.

    Args:
        config: Their config: a `transformers.PretrainedConfig`.

    Raises:
        ConfigError: Its architecture is not known here, or one of its options has no counterpart.
    """
    return _family_of(config).model_of(config)


def from_transformers(model: nn.Module) -> nn.Module:
    """Make a model of ours that gives the same logits, on the same device and in the same dtype.

    Args:
        model: Theirs, with its head: GPT-2, Llama, T5 or Marian.

    Raises:
        ConfigError: Its architecture is not known here, or one of its options or weights has no counterpart.
    """
    theirs: Any = model
    family = _family_of(theirs.config)
    ours = assemble(family.model_of(theirs.config), on="cpu", device=theirs.device.type)
    state = read(family.weights_of(ours), theirs.state_dict(), ours.state_dict(), family.computed)
    ours.load_state_dict(state)
    return ours.to(theirs.device, theirs.dtype).train(theirs.training)


def to_transformers(
    model: nn.Module,
    config: Mapping[str, Any],
    folder: Path | None = None,
    *,
    tokens: Mapping[str, int] | None = None,
) -> nn.Module:
    """Make a model of theirs that gives the same logits; what has no counterpart is refused, not approximated.

    Rates of dropout that theirs does not have are left out: in evaluation there are none.

    Args:
        model: A decoder-only model of ours.
        config: Its config.
        folder: Where to save it as a checkpoint; None: nowhere.
        tokens: Their names of special tokens to ids: ``bos_token_id``, ``eos_token_id``, ``pad_token_id``.

    Returns:
        A causal language model of `transformers`, in evaluation mode.

    Raises:
        ConfigError: Some choice or option has no counterpart, or `transformers` is not installed.
    """
    fields = skeleton.check(config)
    family = _exporter(model, fields)
    assert family.export is not None
    needed()
    from transformers import AutoModelForCausalLM

    depth_0 = skeleton.layer_fields(skeleton.stack_fields(fields, "decoder"), 0)
    wanted = family.export.config_of(model, {**fields, **depth_0})
    for name, token in (tokens or {}).items():
        setattr(wanted, name, token)
    exported: Any = AutoModelForCausalLM.from_config(wanted)
    state = write(family.weights_of(model), model.state_dict())
    missing = [name for name in exported.state_dict() if name not in state]
    absent = {name: exported.state_dict()[name].zero_() for name in missing if name.endswith(".bias")}
    rest = exported.load_state_dict({**state, **absent}, strict=False)
    assert not rest.unexpected_keys, rest.unexpected_keys
    assert set(rest.missing_keys) <= {"lm_head.weight"}, rest.missing_keys  # tied: the table has it
    exported = exported.to(next(model.parameters()).dtype).eval()
    if folder is not None:
        exported.save_pretrained(folder)
    done: nn.Module = exported
    return done


def needed() -> None:
    """Say what to install where `transformers` is not.

    Raises:
        ConfigError: It is not.
    """
    try:
        import transformers  # noqa: F401
    except ImportError:
        raise ConfigError(["the package transformers is needed: pip install 'variants[interop]'"]) from None


def _family_of(config: Any) -> Family:
    kind = getattr(config, "model_type", None)
    if kind not in FAMILIES:
        raise ConfigError([unknown("architecture of transformers", kind, FAMILIES)])
    return FAMILIES[kind]


def _exporter(model: nn.Module, fields: Mapping[str, Any]) -> Family:
    """The family that has all that the model is made of."""
    reasons = []
    for family in FAMILIES.values():
        if family.export is None:
            continue
        lacks = lacking(fields, family.export.counterparts) or family.export.refuses(model)
        if not lacks:
            return family
        reasons.append(f"{family.model_type} has none for {', '.join(lacks)}")
    raise ConfigError([f"no counterpart in transformers: {'; '.join(reasons)}"])
