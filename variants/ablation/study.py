"""A study as it is written: a question, a prediction, and what is varied to answer it.

A ``study.yaml`` of ten lines::

    question: Do gated feed-forward layers beat ReLU at equal parameters?
    prediction: swiglu lowers the validation loss of relu (Shazeer 2020, table 1).
    base: [model=llama_tiny, data=bible_en, trainer.max_steps=600]
    baseline: relu
    axes:
      model.feedforward: [relu, swiglu, {name: swiglu, ratio: 4}]
    match: parameters
    tune: {optimiser.lr: [1e-3, 2e-3, 4e-3]}
    seeds: 5
    smallest_effect: 0.01

An axis is a field of the config with its values, or a name of your own whose levels set several fields each::

      warmup:
        no-warmup: {schedule.warmup: 1}
        warmup: {schedule.warmup: 100}

A level is known by its name: the one given, else the value itself (``relu``, ``4``), a node's with its fields behind
it (``swiglu ratio=4``). ``baseline:`` names one level of each axis, in their order (``pre, no-warmup``), or an arm of
``arms:``. An arm is called by the levels in which it departs from the baseline (``post+warmup``); a level that says
nothing alone, such as a number, by its field as well (``n_layers=4``).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from variants.ablation import levels
from variants.ablation.levels import Fields
from variants.errors import ConfigError
from variants.reading import read_yaml
from variants.registry import EMPTY, check_fields, fields_of

Match = Literal["parameters", "non_embedding", "flops", "none"]


@dataclass(frozen=True, kw_only=True)
class Form:
    """What a ``study.yaml`` may say.

    Args:
        question: What the study asks.
        prediction: What its author expects and why, written before it runs.
        base: What all arms share: overrides, as on the command line.
        baseline: The arm that the others are compared with: one level of each axis, or the name of an arm.
        axes: Each axis, with its values or its named levels; the arms are their product.
        exclude: Combinations that are left out: mappings of axis to level, or to a list of levels.
        arms: Further arms: name to the fields that it sets over the base.
        match: What every arm shall have as much of as the baseline, within 1%.
        match_by: The field that is solved for it.
        tune: The grid that every arm is tuned on: field to values; None: no arm is tuned.
        tune_seeds: The seeds of the tuning, or how many.
        seeds: The seeds of the comparison, or how many.
        metric: What is compared, at the end of a run.
        better: Whether a lower or a higher metric is better.
        smallest_effect: A difference below this does not matter, in the metric's unit.
        variances: ``equal`` is a claim that must be made before the study runs; see `variants.ablation.statistics`.
        evaluate: Further evaluations of each trained run: name to overrides.
        launcher: How the runs are launched.
    """

    question: str
    prediction: str
    base: list[str] = ()  # type: ignore[assignment]
    baseline: Any
    axes: dict[str, Any] = None  # type: ignore[assignment]
    exclude: list[dict[str, Any]] = ()  # type: ignore[assignment]
    arms: dict[str, Any] = None  # type: ignore[assignment]
    match: Match = "none"
    match_by: str = "model.feedforward.d_ff"
    tune: dict[str, Any] | None = None
    tune_seeds: int | list[int] = (1000,)  # type: ignore[assignment]
    seeds: int | list[int] = 5
    metric: str = "val/loss"
    better: Literal["lower", "higher"] = "lower"
    smallest_effect: float | None = None
    variances: Literal["unequal", "equal"] = "unequal"
    evaluate: dict[str, Any] = None  # type: ignore[assignment]
    launcher: str | dict[str, Any] = "local"


@dataclass(frozen=True)
class Study:
    """A study that is well formed; whether its arms can be built, `variants.ablation.plan` finds.

    Attributes:
        folder: Where it is, with its runs below.
        name: Its folder's name.
        question: What it asks.
        prediction: What was expected before it ran.
        base: Overrides that all arms share.
        baseline: The baseline's name.
        origin: The baseline's level on each axis; empty where it is one of ``arms``.
        axes: Axis to level to the fields that the level sets.
        exclude: Axis to the levels which, all together, are left out.
        arms: Explicit arms, and the fields that they set.
        match: What the arms have as much of as the baseline.
        match_by: The field that is solved for it.
        tune: Field to the values of the tuning grid; empty: untuned.
        tune_seeds: Seeds of the tuning.
        seeds: Seeds of the comparison.
        metric: What is compared.
        better: Which direction is better.
        smallest_effect: A difference below this does not matter; None: nobody said.
        variances: Whether the arms' variances were declared equal.
        evaluate: Name to overrides, for evaluating a trained run on other data.
        launcher: A launcher's node.
    """

    folder: Path
    name: str
    question: str
    prediction: str
    base: tuple[str, ...]
    baseline: str
    origin: Mapping[str, str]
    axes: Mapping[str, Mapping[str, Fields]]
    exclude: tuple[Mapping[str, tuple[str, ...]], ...]
    arms: Mapping[str, Fields]
    match: Match
    match_by: str
    tune: Mapping[str, list[Any]]
    tune_seeds: tuple[int, ...]
    seeds: tuple[int, ...]
    metric: str
    better: Literal["lower", "higher"]
    smallest_effect: float | None
    variances: Literal["unequal", "equal"]
    evaluate: Mapping[str, list[str]]
    launcher: dict[str, Any]

    def factors(self) -> Iterator[dict[str, str]]:
        """The level on each axis of every arm of the product, exclusions left out."""
        for combination in itertools.product(*self.axes.values()) if self.axes else ():
            factors = dict(zip(self.axes, combination, strict=True))
            if not any(all(factors[axis] in excluded for axis, excluded in rule.items()) for rule in self.exclude):
                yield factors

    def name_of(self, factors: Mapping[str, str]) -> str:
        """An arm's name: the levels in which it departs from the baseline, all of them for the baseline itself."""
        departing = {axis: level for axis, level in factors.items() if self.origin.get(axis) != level}
        return "+".join(self._label(axis, level) for axis, level in (departing or factors).items())

    def fields(self, factors: Mapping[str, str]) -> Fields:
        """What the levels set, later axes over earlier ones."""
        return {name: value for axis, level in factors.items() for name, value in self.axes[axis][level].items()}

    def short(self, axis: str) -> str:
        """An axis's last part, where no other axis has the same."""
        last = axis.rpartition(".")[2]
        return axis if sum(other.rpartition(".")[2] == last for other in self.axes) > 1 else last

    def _label(self, axis: str, level: str) -> str:
        shared = sum(level in others for others in self.axes.values()) > 1
        fields = self.axes[axis][level]
        speaks = axis not in fields or isinstance(fields[axis], str | dict)
        return level if speaks and not shared else f"{self.short(axis)}={level}"


def load(path: str | Path) -> Study:
    """Read a study.

    Args:
        path: Its folder, or the ``study.yaml`` in it.

    Raises:
        ConfigError: There is none, or all that is wrong with it, a line each.
    """
    path = Path(path)
    file = path / "study.yaml" if path.is_dir() or path.suffix not in (".yaml", ".yml") else path
    if not file.is_file():
        raise ConfigError([f"{path}: no study there; a study is a folder with a study.yaml"])
    try:
        return read(read_yaml(file.read_text("utf-8")), file.parent)
    except ConfigError as error:
        raise ConfigError([f"{file}: {line}" for line in error.problems]) from None
    except UnicodeDecodeError as error:
        raise ConfigError([f"{file}: {error}"]) from None


def read(content: Mapping[str, Any], folder: Path) -> Study:
    """Check what a ``study.yaml`` says.

    Raises:
        ConfigError: All that is wrong with it, a line each.
    """
    schema = fields_of(Form)
    values: dict[str, Any] = {name: field.default for name, field in schema.items()}
    problems: list[str] = []

    def tried(place: str, action: Callable[..., Any], *args: Any) -> Any:
        try:
            return action(*args)
        except ConfigError as error:
            problems.extend(error.problems)
        except ValueError as error:
            problems.append(f"{place}: {error}")
        return None

    for name, value in content.items():
        values |= tried(name, check_fields, {name: value}, schema, "a study") or {}
    for name, why in (("question", "what does it ask?"), ("prediction", "what do you expect, and why?")):
        if name not in content or values[name] == "":
            problems.append(f"{name}: missing; {why} Write it down before the study runs")
    axes = {
        axis: tried(f"axes.{axis}", levels.levels, axis, named) or {} for axis, named in (values["axes"] or {}).items()
    }
    arms = {str(n): tried(f"arms.{n}", levels.settings, fields) or {} for n, fields in (values["arms"] or {}).items()}
    if not axes and not arms:
        problems.append("axes: missing; name a field to vary, such as model.feedforward: [relu, swiglu]")
    baseline = values["baseline"]
    named = None if baseline is EMPTY else baseline
    origin = (tried("baseline", levels.origin, named, axes, arms) or {}) if axes or arms else {}
    exclude = [tried(f"exclude.{i}", levels.rule, rule, axes) for i, rule in enumerate(values["exclude"])]
    seeds, tune_seeds = (tried(name, _seeds, values[name]) or () for name in ("seeds", "tune_seeds"))
    tune = {field: tried(f"tune.{field}", _grid, field, grid) for field, grid in (values["tune"] or {}).items()}
    if tune and (both := sorted(set(seeds) & set(tune_seeds))):
        problems.append(f"tune_seeds: {both} are in seeds as well; an arm is not tuned on what it is judged by")
    evaluate = {str(n): tried(f"evaluate.{n}", _overrides, o) for n, o in (values["evaluate"] or {}).items()}
    if values["smallest_effect"] is not None and values["smallest_effect"] <= 0:
        problems.append(f"smallest_effect: {values['smallest_effect']} must be positive")
    if problems:
        raise ConfigError(problems)
    study = Study(
        folder=folder,
        name=folder.resolve().name,
        **{n: values[n] for n in ("question", "prediction", "match", "match_by", "metric", "better", "variances")},
        base=tuple(values["base"]),
        baseline=str(baseline),
        origin=origin,
        axes=axes,
        exclude=tuple(exclude),
        arms=arms,
        tune=tune,
        tune_seeds=tune_seeds,
        seeds=seeds,
        smallest_effect=values["smallest_effect"],
        evaluate=evaluate,
        launcher={"name": values["launcher"]} if isinstance(values["launcher"], str) else values["launcher"],
    )
    return replace(study, baseline=study.name_of(origin)) if origin else study


def _seeds(seeds: int | Sequence[int]) -> tuple[int, ...]:
    chosen = tuple(range(seeds)) if isinstance(seeds, int) else tuple(seeds)
    if not chosen:
        raise ValueError(f"{seeds}: at least one seed is needed")
    if len(set(chosen)) < len(chosen):
        raise ValueError(f"{list(chosen)}: a seed is there twice")
    return chosen


def _grid(field: str, grid: Any) -> list[Any]:
    if "." not in field:
        raise ValueError("is no dotted field of a config, such as optimiser.lr")
    if not isinstance(grid, list) or not grid:
        raise ValueError(f"expected a list of values, got {grid!r}")
    return grid


def _overrides(overrides: Any) -> list[str]:
    if not isinstance(overrides, list) or not all(isinstance(o, str) and "=" in o for o in overrides):
        raise ValueError(f"expected a list of overrides, such as [data.length=512], got {overrides!r}")
    return overrides
