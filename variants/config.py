"""A run's config: composed of files and overrides by one merge rule, checked, saved and loaded.

`model=llama_tiny` takes ``conf/model/llama_tiny.yaml``, from the user's folder or else from the packaged one; a file
may name a ``base:`` of its own group. Dotted overrides (``model.feedforward.ratio=4``) are laid over it in their order.
A config names registered choices only, so it cannot run code.

One file: from the overrides to a checked config, and what that is known by.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from variants import slots
from variants.errors import WRONG, ConfigError, attempt, is_wrong, unknown
from variants.models import skeleton
from variants.models.skeleton import PATCHES, Skeleton
from variants.options import Tracker, Trainer, check_tracker, check_trainer
from variants.reading import DEEPEST, read_yaml
from variants.registry import Slot, convert, fields_of, merge
from variants.relations import related

Config = dict[str, Any]
Override = str | tuple[str, Any]

PACKAGED = next(p for p in (Path(__file__).parent / "conf", Path(__file__).parent.parent / "conf") if p.is_dir())
GROUPS: dict[str, Slot[Any] | None] = {
    "model": None,
    "data": slots.data,
    "objective": slots.objectives,
    "optimiser": slots.optimisers,
    "schedule": slots.schedules,
    "trainer": None,
    "tracker": None,
}


# ---------------------------------------------------------------------------------------------------------------------
# Composing


def folders(config_dir: str | Path | None = None) -> list[Path]:
    """Where config files are looked for, in this order: the user's folder (``conf/`` by default), the packaged one.

    Raises:
        ConfigError: The folder that was named does not exist.
    """
    if config_dir is not None and not Path(config_dir).is_dir():
        raise ConfigError([f"--config-dir: {config_dir} is not a folder"])
    own = Path(config_dir) if config_dir is not None else Path("conf")
    return [own, PACKAGED] if own.is_dir() and own.resolve() != PACKAGED.resolve() else [PACKAGED]


def presets(group: str, config_dir: str | Path | None = None) -> list[str]:
    """The files of a group, by name."""
    return sorted({path.stem for folder in folders(config_dir) for path in (folder / group).glob("*.yaml")})


def compose(overrides: Sequence[Override] = (), config_dir: str | Path | None = None) -> Config:
    """Compose and check a run's config.

    Args:
        overrides: ``group=name`` takes a file, ``group.field=value`` sets a value (YAML, split at the first ``=``); or
            pairs of a dotted name and a value.
        config_dir: The user's folder of config files.

    Returns:
        Plain dicts, lists and scalars, interpolations resolved.

    Raises:
        ConfigError: All that is wrong with it, a line each.
    """
    problems: list[str] = []
    composed = attempt(problems, "", lambda: raw(overrides, config_dir))
    if not is_wrong(composed):
        composed = attempt(problems, "", lambda: resolve(composed))
    if is_wrong(composed):
        raise ConfigError(problems)
    return check(composed, problems)


def draft(overrides: Sequence[Override] = (), config_dir: str | Path | None = None) -> Config:
    """Compose a config without checking its values."""
    return resolve(raw(overrides, config_dir))


def raw(overrides: Sequence[Override] = (), config_dir: str | Path | None = None) -> Config:
    """Compose a config without resolving its interpolations."""
    problems: list[str] = []
    parsed = [attempt(problems, "", lambda override=override: _parse(override)) for override in overrides]
    pairs = [pair for pair in parsed if not is_wrong(pair)]
    where = folders(config_dir)
    config = _load_file(where, "", "run", [])
    for group in GROUPS:
        asked = [value for path, value in pairs if path == [group]]
        value = asked[-1] if asked else config.get(group)
        picked = attempt(problems, "", partial(_pick, where, group, value))
        config[group] = _unknown(group) if is_wrong(picked) else picked
    if isinstance(config.get("model"), dict):  # so that `model.mixer.window=64` need not name the mixer
        config["model"] = merge(skeleton.defaults(), config["model"])
    fields = [(".".join(p), value) for p, value in pairs if p[0] not in GROUPS or p[1:]]
    config = attempt(problems, "", lambda: overlay(config, fields))
    if problems:
        raise ConfigError(problems, config)
    return config


def overlay(config: Config, fields: Iterable[tuple[str, Any]]) -> Config:
    """Lay dotted fields over a config, in their order.

    Raises:
        ConfigError: A line for each that names no part of a run.
    """
    problems: list[str] = []
    for name, value in fields:
        path = name.split(".")
        if path[0] not in config and path[0] not in ("seed", "folder"):
            problems.append(unknown("part of a run", path[0], [*GROUPS, "seed", "folder"]))
        else:
            config = _lay(config, path, value)
    if problems:
        raise ConfigError(problems, config)
    return config


def fields(overrides: Sequence[str]) -> Config:
    """The fields of a single choice, written as overrides of it: ``d_ff=8``, ``qk_norm.norm_eps=1e-5``.

    Raises:
        ConfigError: A line for each that is not written so.
    """
    problems: list[str] = []
    laid: Config = {"choice": {}}
    for override in overrides:
        parsed = attempt(problems, "", lambda override=override: _parse(override))
        if not is_wrong(parsed):
            laid = _lay(laid, ["choice", *parsed[0]], parsed[1])
    if problems:
        raise ConfigError(problems)
    return dict(laid["choice"])


def resolve(config: Config) -> Config:
    """Replace interpolations by what they stand for.

    Raises:
        ConfigError: One stands for nothing.
    """
    if _is_literal(config):  # as most are; OmegaConf takes ten milliseconds for one
        return copy.deepcopy(config)
    problems: list[str] = []
    while True:
        try:
            resolved = OmegaConf.to_container(OmegaConf.create(config), resolve=True, throw_on_missing=True)
            break
        except OmegaConfBaseException as error:
            place = getattr(error, "full_key", None) or ""
            problems.append(f"{place}: {str(error).splitlines()[0]}")
            config = copy.deepcopy(config)
            if not _mark(config, place):  # nothing to go on with
                raise ConfigError(problems) from None
    assert isinstance(resolved, dict)
    composed: Config = {str(key): value for key, value in resolved.items()}
    if problems:
        raise ConfigError(problems, composed)
    return composed


def _mark(config: Any, place: str) -> bool:
    """Put `WRONG` where an interpolation stands for nothing; whether that could be done."""
    *parents, last = place.split(".")
    for parent in parents:
        config = config.get(parent) if isinstance(config, dict) else None
    if not isinstance(config, dict) or last not in config or is_wrong(config[last]):
        return False
    config[last] = WRONG
    return True


def _is_literal(value: Any) -> bool:
    """Whether OmegaConf would change nothing in it."""
    if isinstance(value, dict):
        return all(isinstance(key, str | int) and _is_literal(v) for key, v in value.items())
    if isinstance(value, list):
        return all(map(_is_literal, value))
    if isinstance(value, str):
        return "${" not in value and value != "???"
    return value is None or isinstance(value, bool | int | float)


def _parse(override: Override) -> tuple[list[str], Any]:
    if not isinstance(override, str):
        return override[0].split("."), _plain(override[1])
    name, equals, text = override.partition("=")
    if not equals or not all(name.split(".")) or name.count(".") > DEEPEST:
        raise ConfigError([f"{override!r}: an override is written name=value, such as model.norm=layernorm"])
    try:
        return name.split("."), read_yaml(f"value: {text}")["value"]
    except ConfigError as error:
        wrong = (name.split("."), WRONG)
        raise ConfigError([f"{name}: {text!r} is no YAML value ({error.problems[0]})"], wrong) from None


def _plain(value: Any) -> Any:
    """A value of Python's as a file would have it: paths and NumPy's numbers would not load safely."""
    if isinstance(value, Mapping):
        return {key: _plain(v) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return str(value) if isinstance(value, Path) else value.item() if isinstance(value, np.generic) else value


def _lay(config: Config, path: list[str], value: Any) -> Config:
    group, *rest = path
    for key in reversed(rest):
        value = {key: value}
    plain = group in ("trainer", "tracker")  # wandb's `name` is a run's, not a choice's
    return {**config, group: {**(config.get(group) or {}), **value} if plain else merge(config.get(group), value)}


def _pick(where: list[Path], group: str, value: Any) -> Any:
    """A group's value: a file's by name, else a registered choice, else what is written there."""
    if value is None or isinstance(value, Mapping) or is_wrong(value):
        return value
    if not isinstance(value, str):
        raise ConfigError([f"{group}: expected a preset or a mapping, got {value!r}"])
    files = {path.stem for folder in where for path in (folder / group).glob("*.yaml")}
    if value in files:
        return _load_file(where, group, value, [])
    slot = GROUPS[group]
    choices = slot.choices if slot else {}
    if value in choices:
        return {"name": value}
    raise ConfigError([f"{group}: {unknown(f'{group} preset', value, files | set(choices))}"])


def _unknown(group: str) -> Config:
    """A group of which nothing is known."""
    schema = {"model": Skeleton, "trainer": Trainer, "tracker": Tracker}.get(group)
    return {"name": WRONG} if schema is None else dict.fromkeys(set(fields_of(schema)) - set(PATCHES), WRONG)


@lru_cache(maxsize=256)  # by the text, so that a file that changes is read again
def _parsed(text: str) -> Config:
    return read_yaml(text)


def _load_file(where: list[Path], group: str, name: str, seen: list[str]) -> Config:
    if name in seen:
        raise ConfigError([f"{group}: base goes in a circle: {' -> '.join([*seen, name])}"])
    path = next((p for p in (folder / group / f"{name}.yaml" for folder in where) if p.is_file()), None)
    if path is None:
        known = {p.stem for folder in where for p in (folder / group).glob("*.yaml")}
        raise ConfigError([f"{group}: {unknown('base', name, known)}"])
    try:
        content = copy.deepcopy(_parsed(path.read_text("utf-8")))
    except (ConfigError, UnicodeDecodeError) as error:
        raise ConfigError([f"{path}: {str(error).splitlines()[0]}"]) from None
    base = content.pop("base", None)
    if base is None:
        return content
    merged = merge(_load_file(where, group, base, [*seen, name]), content)
    assert isinstance(merged, dict)
    return merged


# ---------------------------------------------------------------------------------------------------------------------
# Checking


def check(config: Config, problems: Sequence[str] = ()) -> Config:
    """Give every value its type, and say everything that is wrong; if anything is, then what does not go together too.

    Args:
        config: Composed and resolved.
        problems: What is known to be wrong already, with `WRONG` in its place.

    Raises:
        ConfigError: A line for each problem.
    """
    said = list(problems)
    checked: Config = {"seed": attempt(said, "seed", lambda: convert(config.get("seed", 0), int))}
    checked["model"] = attempt(said, "model", lambda: skeleton.check(_mapping(config, "model", said)))
    for group, slot in GROUPS.items():
        if slot is not None:
            value = config[group] if group != "objective" else _patched(config[group], checked["model"])
            optional = group == "objective" and value is None  # None: the layout's own
            checked[group] = None if optional else attempt(said, group, partial(slot.check, value))
    checked["trainer"] = attempt(said, "trainer", lambda: check_trainer(_mapping(config, "trainer", said)))
    checked["tracker"] = attempt(said, "tracker", lambda: check_tracker(_mapping(config, "tracker", said)))
    checked["folder"] = attempt(said, "folder", lambda: convert(config.get("folder"), str | None))
    if said:
        attempt(said, "", lambda: related(checked))
        raise ConfigError(said, checked)
    return checked


def _patched(objective: Any, model: Mapping[str, Any]) -> Any:
    """An objective; where it names none, its fields are a patch of the layout's own."""
    if not isinstance(objective, Mapping) or "name" in objective:
        return objective
    layout = model["layout"]["name"]
    own = WRONG if is_wrong(layout) else getattr(slots.layouts[layout].component, "objective", None)
    return objective if own is None else {"name": own, **objective}


def _mapping(config: Config, group: str, problems: list[str]) -> Mapping[str, Any]:
    value = config[group]
    if value is None or isinstance(value, Mapping):
        return {str(k): v for k, v in (value or {}).items()}
    if not is_wrong(value):
        problems.append(f"{group}: expected a preset or a mapping, got {value!r}")
    return _unknown(group)


# ---------------------------------------------------------------------------------------------------------------------
# What a config is known by


def flatten(config: Any, prefix: str = "") -> dict[str, Any]:
    """A config as dotted names and scalars; a choice stands under its slot's name, its fields below.

    >>> flatten({"model": {"norm": {"name": "rmsnorm", "eps": 1e-6}}})
    {'model.norm': 'rmsnorm', 'model.norm.eps': 1e-06}
    """
    if not isinstance(config, Mapping) or not config:
        return {prefix: config}
    flat: dict[str, Any] = {}
    for key, value in config.items():
        is_name = key == "name" and prefix not in ("", "tracker")
        flat |= flatten(value, prefix if is_name else f"{prefix}.{key}".lstrip("."))
    return flat


def departures(config: Config, from_: Config) -> dict[str, tuple[Any, Any]]:
    """Where a config differs from another: the dotted name, the other's value and its own (None: not there)."""
    own, other = flatten(config), flatten(from_)
    return {k: (other.get(k), own.get(k)) for k in sorted(own | other) if own.get(k) != other.get(k)}


def identity(config: Config) -> str:
    """A run's identity: a hash of all that can change its result."""
    aside = ("enable_progress_bar", "log_every_n_steps", "num_workers")
    parts = {k: v for k, v in config.items() if k not in ("folder", "tracker")}
    parts["trainer"] = {k: v for k, v in config["trainer"].items() if k not in aside}
    return hashlib.blake2b(json.dumps(parts, sort_keys=True, default=str).encode(), digest_size=6).hexdigest()


def to_text(config: Config) -> str:
    """A config as YAML."""
    return OmegaConf.to_yaml(OmegaConf.create(config))


def load(path: Path) -> Config:
    """A config that was saved, checked again.

    Raises:
        ConfigError: It is damaged, or of another version of the config.
    """
    try:
        config = read_yaml(path.read_text("utf-8"))
        if missing := [group for group in GROUPS if group not in config]:
            raise ConfigError([f"{', '.join(missing)}: missing from this run's config"])
        return check(config)
    except ConfigError as error:
        raise ConfigError([f"{path}: {line}" for line in error.problems]) from None
    except UnicodeDecodeError as error:
        raise ConfigError([f"{path}: {error}"]) from None


def changed(pairs: Iterable[tuple[str, tuple[Any, Any]]]) -> list[str]:
    """Word departures, a line each."""
    return [f"{name}: {old!r} -> {new!r}" for name, (old, new) in pairs]
