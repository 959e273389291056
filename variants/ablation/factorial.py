"""Main effects and two-way interactions of a study with several axes."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from variants.ablation.statistics import Estimate, estimate_of


@dataclass(frozen=True)
class Effect:
    """A contrast over all arms, tested over seeds.

    Attributes:
        name: The level (``swiglu``), or two of them (``swiglu x post``).
        axes: The axes that it is about: one for a main effect, two for an interaction.
        estimate: A main effect is the mean with the level minus that with the baseline's level; an interaction the
            difference of two such differences, whose error is twice as large.
        read_alone: Whether a main effect says something by itself: no interaction of it is as large. At either of
            another axis's two levels the effect is the main effect, give or take half the interaction.
    """

    name: str
    axes: tuple[str, ...]
    estimate: Estimate
    read_alone: bool = True


def effects(values: ArrayLike, axes: Mapping[str, Sequence[str]]) -> list[Effect]:
    """Estimate every main effect, then every two-way interaction, with intervals that hold for all of them together.

    Each is a contrast within a seed, tested over seeds as a paired difference. A pooled analysis of variance would find
    too much where the arms' variances differ.

    Args:
        values: The metric (seeds, levels of the first axis, levels of the second, ...); seeds with a NaN are left out.
        axes: Axis to levels, the baseline's level first.
    """
    table = np.asarray(values, dtype=float)
    table = table[~np.isnan(table.reshape(len(table), -1)).any(axis=1)]
    if not len(table):
        return []
    names = list(axes)
    contrasts = []
    for size in (1, 2):
        for chosen in itertools.combinations(range(len(names)), size):
            others = tuple(1 + i for i in range(len(names)) if i not in chosen)
            means = table.mean(axis=others)  # (seeds, levels of the chosen axes)
            for levels in itertools.product(*(range(1, len(axes[names[i]])) for i in chosen)):
                contrast = means
                for level in levels:  # each takes the difference along the first axis that is left
                    contrast = contrast[:, level] - contrast[:, 0]
                label = " x ".join(axes[names[i]][level] for i, level in zip(chosen, levels, strict=True))
                contrasts.append((label, tuple(names[i] for i in chosen), levels, contrast))
    made = [Effect(label, about, estimate_of(c, len(contrasts))) for label, about, _, c in contrasts]
    places = [set(zip(about, levels, strict=True)) for _, about, levels, _ in contrasts]
    return [
        replace(
            effect, read_alone=not any(_outweighs(o, effect) for o, p in zip(made, places, strict=True) if place < p)
        )
        for effect, place in zip(made, places, strict=True)
    ]


def _outweighs(interaction: Effect, main: Effect) -> bool:
    return abs(interaction.estimate.difference) >= abs(main.estimate.difference)
