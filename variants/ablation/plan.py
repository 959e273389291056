"""What a study comes to: its arms, built and made equal in cost, and the runs they take; nothing is trained here."""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from variants import config as configs
from variants.ablation import effect
from variants.ablation.build import Built, Composer, build
from variants.ablation.levels import Fields, text
from variants.ablation.match import AMOUNTS, Matched, match
from variants.ablation.study import Study
from variants.errors import ConfigError, unknown
from variants.models.cost import Parameters

Stage = Literal["tune", "main"]
Chosen = Mapping[str, Fields]  # an arm's name, and what tuning chose for it


def slug(name: str) -> str:
    """A name as a folder's; what must be changed for it leaves a hash, so that two names never share one.

    >>> slug("post+relu"), slug("swiglu ratio=4")
    ('post+relu', 'swiglu-ratio=4-be1a58')
    """
    plain = re.sub(r"[^A-Za-z0-9._=+-]|^\.", "-", name)[:80]
    return plain if plain == name else f"{plain}-{hashlib.blake2b(name.encode(), digest_size=3).hexdigest()}"


@dataclass(frozen=True)
class Arm:
    """One of the things that are compared.

    Attributes:
        name: The levels in which it departs from the baseline.
        overrides: What it sets over the study's base, matching excepted.
        factors: Its level on each axis; empty for an explicit arm.
        config: Resolved and checked, matching included, with the base's seed; None where it cannot be composed.
        parameters: Of its model; None where it cannot be built.
        flops_per_token: Of one forward and backward; None where it cannot be built.
        matched: What was solved to make it as large as the baseline; None: nothing was.
        effect: What it changed against the baseline in the model that is built and in the run's settings, a line each.
        without_effect: What it asks for and changes nothing, a line each.
        problem: Why it cannot run.
    """

    name: str
    overrides: tuple[tuple[str, Any], ...]
    factors: Mapping[str, str]
    config: configs.Config | None = None
    parameters: Parameters | None = None
    flops_per_token: int | None = None
    matched: Matched | None = None
    effect: tuple[str, ...] = ()
    without_effect: tuple[str, ...] = ()
    problem: str | None = None

    @property
    def unchanged(self) -> bool:
        """Whether nothing came of what it sets; so it is for the baseline, of course."""
        return self.problem is None and not self.effect

    @property
    def slug(self) -> str:
        """Its folder's name, which no other arm has."""
        return slug(self.name)


@dataclass(frozen=True)
class Run:
    """One training.

    Attributes:
        study: The study's name.
        arm: The arm's name.
        seed: Of everything in it.
        stage: Whether it tunes the arm or is compared.
        setting: What the tuning tries in it, or chose for it.
        config: Complete, folder included.
        folder: Where it goes.
    """

    study: str
    arm: str
    seed: int
    stage: Stage
    setting: Fields
    config: configs.Config
    folder: Path

    @cached_property
    def identity(self) -> str:
        """A hash of all that can change its result."""
        return configs.identity(self.config)


@dataclass(frozen=True)
class Plan:
    """A study's arms and runs.

    Attributes:
        study: The study.
        arms: All arms, the baseline among them.
        problems: Everything that keeps the study from running, a line each.
        only: Names of the arms that run; None: all.
    """

    study: Study
    arms: tuple[Arm, ...]
    problems: tuple[str, ...]
    only: tuple[str, ...] | None = None

    @property
    def baseline(self) -> Arm:
        """The arm that the others are compared with."""
        return self[self.study.baseline]

    def __getitem__(self, name: str) -> Arm:
        """An arm by name."""
        return next(arm for arm in self.arms if arm.name == name)

    def check(self) -> Plan:
        """This plan.

        Raises:
            ConfigError: It cannot run: all its problems.
        """
        if self.problems:
            raise ConfigError(self.problems)
        return self

    @cached_property
    def settings(self) -> list[Fields]:
        """The points of the tuning grid; none where the arms are not tuned."""
        tune = self.study.tune
        return [dict(zip(tune, point, strict=True)) for point in itertools.product(*tune.values())] if tune else []

    def tune_runs(self) -> list[Run]:
        """The runs that tune: every arm at every point of the grid, on the seeds of the tuning."""
        points = itertools.product(self._running, self.settings, self.study.tune_seeds)
        return [self.run(arm, seed, "tune", setting) for arm, setting, seed in points]

    def main_runs(self, chosen: Chosen | None = None) -> list[Run]:
        """The runs that are compared, a seed after the other, so that a study cut short has whole blocks.

        Args:
            chosen: What tuning chose for each arm; an arm that is not there runs as it is.
        """
        chosen = chosen or {}
        points = itertools.product(self.study.seeds, self._running)
        return [self.run(arm, seed, "main", dict(chosen.get(arm.name, {}))) for seed, arm in points]

    @property
    def _running(self) -> list[Arm]:
        return [arm for arm in self.arms if self.only is None or arm.name in self.only]

    def run(self, arm: Arm, seed: int, stage: Stage, setting: Fields) -> Run:
        """One run of an arm that can be built."""
        assert arm.config is not None
        point = "".join(f"-{field}={text(value)}" for field, value in setting.items()) if stage == "tune" else ""
        folder = self.study.folder / "runs" / arm.slug / slug(f"{stage}{point}-{seed}")
        config = configs.check(configs.overlay(arm.config, setting.items())) if setting else arm.config
        tracker = config["tracker"]
        names = {"group": self.study.name, "job_type": arm.name, "name": f"{arm.name}/{folder.name}"}
        tracker = {**tracker, **{n: v for n, v in names.items() if tracker[n] is None}}
        config = {**config, "seed": seed, "tracker": tracker, "folder": str(folder)}
        return Run(self.study.name, arm.name, seed, stage, setting, config, folder)


def plan(study: Study, *, only: Sequence[str] | None = None, config_dir: str | Path | None = None) -> Plan:
    """Compose, match and build every arm.

    Args:
        study: As it was loaded.
        only: Names of the arms that shall run; None: all.
        config_dir: The user's folder of config files.

    Returns:
        The plan, with everything that is wrong with it.
    """
    problems: list[str] = []
    named = [(study.name_of(factors), study.fields(factors), factors) for factors in study.factors()]
    named += [(name, fields, {}) for name, fields in study.arms.items()]
    names = [name for name, _, _ in named]
    problems += [f"arm {name}: two arms have this name" for name in sorted({n for n in names if names.count(n) > 1})]
    if study.baseline not in names:
        problems.append(f"baseline: {unknown('arm', study.baseline, names)}")
        return Plan(study, (), tuple(problems))
    if len(names) == 1:
        problems.append(f"axes: {study.baseline} is the only arm, so there is nothing to compare")
    problems += [f"only: {unknown('arm', name, names)}" for name in only or () if name not in names]
    problems += [
        f"match_by: {study.match_by} is varied by axis {axis}, so it cannot be solved as well"
        for axis, levels in study.axes.items()
        if study.match != "none" and any(study.match_by in fields for fields in levels.values())
    ]
    planner = _Planner(study, config_dir)
    first = names.index(study.baseline)
    named = [named[first], *named[:first], *named[first + 1 :]]
    arms = [planner.arm(name, tuple(fields.items()), factors) for name, fields, factors in named]
    problems += dict.fromkeys(line for arm in arms if arm.problem for line in _attributed(arm, arms))
    problems += planner.tuning_problems(arms[0])
    return Plan(study, tuple(arms), tuple(problems), tuple(only) if only else None)


def _attributed(arm: Arm, arms: Sequence[Arm]) -> list[str]:
    """An arm's problems, with the arm where not all of them have it."""
    assert arm.problem is not None
    shared = [line for line in arm.problem.split("\n") if all(line in (other.problem or "") for other in arms)]
    return [line if line in shared else f"arm {arm.name}: {line}" for line in arm.problem.split("\n")]


class _Planner:
    """Builds arms one after the other, the baseline first."""

    def __init__(self, study: Study, config_dir: str | Path | None) -> None:
        self.study, self.compose = study, Composer(study.base, config_dir)
        self.baseline: Built | None = None
        self.configs: dict[str, str] = {}  # identities, and who had them first
        self.outcomes: dict[str, str] = {}
        self.matched: dict[str, Matched] = {}  # models, and what was solved for them

    def arm(self, name: str, fields: tuple[tuple[str, Any], ...], factors: Mapping[str, str]) -> Arm:
        arm = Arm(name, fields, factors)
        try:
            config = self.compose(fields)
            arm = replace(arm, config=config)
            twin = self.configs.setdefault(configs.identity(config), name)
            if twin != name:
                raise ConfigError([f"is the same config as {twin}"])
            built, matched = self._matched(config, fields)
        except ConfigError as error:
            return replace(arm, problem="\n".join(error.problems))
        self.baseline = self.baseline or built
        idle = effect.idle(built)
        if (twin := self.outcomes.setdefault(effect.signature(built), name)) != name:
            idle.append(f"comes to the same model and run as {twin}")
        return replace(
            arm,
            config=built.config,
            parameters=built.parameters,
            flops_per_token=built.flops_per_token,
            matched=matched,
            effect=tuple(effect.differences(built, self.baseline)),
            without_effect=tuple(idle),
        )

    def _matched(self, config: configs.Config, fields: tuple[tuple[str, Any], ...]) -> tuple[Built, Matched | None]:
        study = self.study
        if self.baseline is None or study.match == "none":
            return build(config), None
        trainer = {name: config["trainer"][name] for name in ("accelerator", "gradient_checkpointing")}
        key = repr((config["model"], config["data"], trainer))

        def rebuilt(value: int) -> Built:
            return build(self.compose([*fields, (study.match_by, value)]))

        if known := self.matched.get(key):  # another arm with this model
            return (build(config) if known.value is None else rebuilt(known.value)), known
        target = AMOUNTS[study.match](self.baseline)
        built, self.matched[key] = match(build(config), target, study.match, study.match_by, rebuilt)
        return built, self.matched[key]

    def tuning_problems(self, arm: Arm) -> list[str]:
        """Whether every value of the grid is one that a run could have."""
        problems: list[str] = []
        for field, values in self.study.tune.items() if arm.config else ():
            for value in values:
                try:
                    self.compose([*arm.overrides, (field, value)])
                except ConfigError as error:
                    problems += [f"tune.{field}: {line}" for line in error.problems]
        return list(dict.fromkeys(problems))
