"""What planning needs of an arm: its config, fast, and its model on the meta device."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from variants import config as configs
from variants.models import cost
from variants.relations import related, trainable


@dataclass(frozen=True)
class Built:
    """A config and the model that it gives.

    Attributes:
        config: Resolved and checked.
        model: On the meta device.
        parameters: Of the model.
        flops_per_token: Of one forward and backward.
    """

    config: configs.Config
    model: nn.Module
    parameters: cost.Parameters
    flops_per_token: int


class Composer:
    """Composes the configs of many arms over one base, reading files once for all that pick the same ones.

    Args:
        base: Overrides that all share.
        config_dir: The user's folder of config files.
    """

    def __init__(self, base: Sequence[configs.Override], config_dir: str | Path | None = None) -> None:
        self.base, self.config_dir = tuple(base), config_dir
        self._raw: dict[str, configs.Config] = {}

    def __call__(self, fields: Iterable[tuple[str, Any]]) -> configs.Config:
        """The config with these fields over the base, as `variants.config.compose` would give it.

        Raises:
            ConfigError: All that is wrong with it, a line each.
        """
        fields = list(fields)
        picks = [(name, value) for name, value in fields if name in configs.GROUPS]
        key = repr(picks)
        if key not in self._raw:
            self._raw[key] = configs.raw([*self.base, *picks], self.config_dir)
        laid = configs.overlay(self._raw[key], [field for field in fields if field not in picks])
        return configs.check(configs.resolve(laid))


def build(config: configs.Config) -> Built:
    """Build a config's model without values.

    Raises:
        ConfigError: All that is wrong with it, a line each.
    """
    data, _, model = related(config)
    trainable(config)
    return Built(config, model, cost.parameters(model), cost.training_flops(model, data.length, data.source_length))
