"""The levels of a study's axes: their names, the fields they set, and the words that a study picks them by."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

from variants import config as configs
from variants.errors import ConfigError, unknown

Fields = dict[str, Any]  # dotted fields of a config, and their values


def levels(axis: str, levels: Any) -> dict[str, Fields]:
    """An axis's levels by name, and the fields that each sets."""
    is_field = "." in axis or axis in configs.GROUPS
    if not isinstance(levels, list | Mapping):
        raise ValueError(f"expected a list of values or a mapping of levels, got {levels!r}")
    if not levels:
        raise ValueError("is empty; an axis needs its values")
    if isinstance(levels, Mapping):
        return {text(name): {axis: value} if is_field else settings(value) for name, value in levels.items()}
    if not is_field:
        raise ValueError("is no dotted field of a config, so its levels need names: a mapping of level to fields")
    named = {text(value): {axis: value} for value in levels}
    if len(named) < len(levels):
        raise ValueError(f"{next(n for n, c in Counter(map(text, levels)).items() if c > 1)} is there twice")
    return named


def text(value: Any) -> str:
    """A level's name.

    >>> text("relu"), text(None), text({"name": "swiglu", "ratio": 4})
    ('relu', 'null', 'swiglu ratio=4')
    """
    if isinstance(value, Mapping):
        fields = [f"{name}={text(v)}" for name, v in value.items() if name != "name"]
        return " ".join([str(value["name"]), *fields] if "name" in value else fields)
    return value if isinstance(value, str) else json.dumps(value)


def settings(fields: Any) -> Fields:
    """What a level or an arm sets."""
    if not isinstance(fields, Mapping):
        raise ValueError(f"expected a mapping of dotted fields to values, got {fields!r}")
    return {str(name): value for name, value in fields.items()}


def origin(baseline: Any, axes: Mapping[str, Mapping[str, Any]], arms: Mapping[str, Any]) -> dict[str, str]:
    """The baseline's level on each axis; none where it is an arm's name."""
    words = (
        [text(w) for w in baseline] if isinstance(baseline, list) else [w.strip() for w in text(baseline).split(",")]
    )
    if baseline is None:
        ask = ", ".join(next(iter(levels), "?") for levels in axes.values()) or next(iter(arms), "")
        raise ValueError(f"missing; name the arm that the others are compared with, such as {ask}")
    if len(words) == 1 and words[0] in arms:
        return {}
    if not axes:
        raise ValueError(unknown("arm", words[0], arms))
    if len(words) != len(axes):
        raise ValueError(f"{', '.join(words)}: {len(words)} levels for {len(axes)} axes ({', '.join(axes)})")
    problems = [
        f"baseline: {unknown(f'level of {axis}', word, levels)}"
        for word, (axis, levels) in zip(words, axes.items(), strict=True)
        if levels and word not in levels
    ]
    if problems:
        raise ConfigError(problems)
    return dict(zip(axes, words, strict=True))


def rule(rule: Mapping[str, Any], axes: Mapping[str, Mapping[str, Any]]) -> dict[str, tuple[str, ...]]:
    """The levels of an exclusion, by axis."""
    if not rule:
        raise ValueError("is empty, which would leave out every arm")
    excluded: dict[str, tuple[str, ...]] = {}
    for axis, levels in rule.items():
        if axis not in axes:
            raise ValueError(unknown("axis", axis, axes))
        excluded[axis] = tuple(text(level) for level in (levels if isinstance(levels, list) else [levels]))
        for level in excluded[axis]:
            if level not in axes[axis]:
                raise ValueError(unknown(f"level of {axis}", level, axes[axis]))
    return excluded
