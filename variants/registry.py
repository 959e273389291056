"""Slots and their choices: a constructor is the schema of what a config may say about it.

A *slot* is a place in a model or a run that several components can fill. A component registers under a name, and its
constructor says everything else: parameters before the ``*`` are what the surroundings offer (``d_model``, a built
kernel), those after it are what a config may set, with the types and the defaults written there and nowhere else.

Long, and one file: fields, choices and slots are defined by each other.
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import inspect
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Literal, Protocol, TypeVar, runtime_checkable

from variants.errors import WRONG, ConfigError, Undecided, is_wrong, unknown

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
Node = dict[str, Any]  # a choice as a config holds it: its `name` and its fields
EMPTY = inspect.Parameter.empty
LARGEST = 2**63  # what torch and a file can hold of an integer


@runtime_checkable
class Maker(Protocol[T_co]):
    """What makes a component when it is called: a class, or a choice of a config with its fields bound."""

    def __call__(self, *args: Any, **kwargs: Any) -> T_co: ...  # noqa: D102


# ---------------------------------------------------------------------------------------------------------------------
# Schemas


@dataclass(frozen=True)
class Field:
    """One parameter of a constructor."""

    name: str
    annotation: Any
    default: Any
    configurable: bool  # after the `*`: a config may set it; before: the surroundings offer it

    @property
    def required(self) -> bool:
        """Whether it has no default."""
        return self.default is EMPTY


@functools.cache
def fields_of(constructor: Any) -> dict[str, Field]:
    """The parameters of a class's constructor, or of a function, by name."""
    target = constructor.__init__ if inspect.isclass(constructor) else constructor
    hints = typing.get_type_hints(target, include_extras=True)
    parameters = inspect.signature(constructor).parameters.values()
    return {
        p.name: Field(p.name, hints.get(p.name, Any), p.default, p.kind is p.KEYWORD_ONLY)
        for p in parameters
        if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    }


def describe(annotation: Any) -> str:
    """Name a type as an error message would.

    >>> describe(int | None)
    'an integer or null'
    """
    plain = {int: "an integer", float: "a number", bool: "true or false", str: "text", types.NoneType: "null"}
    if annotation in plain:
        return plain[annotation]
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(map(describe, arguments))
    if origin is Literal:
        return "one of " + ", ".join(map(repr, arguments))
    if origin is Maker:
        return f"a choice of {slot_of(annotation).name}"
    if origin in (dict, Mapping):
        return "a mapping"
    if origin is not None:
        return "a list"
    return getattr(annotation, "__name__", str(annotation))


def convert(value: Any, annotation: Any) -> Any:
    """Give a config's value the type that a constructor asks for; strict, but an integer serves as a float.

    Raises:
        ValueError: The value has another type.
    """
    if is_wrong(value):
        return {"name": value} if slot_of(annotation, strict=False) else value
    if isinstance(value, int | float) and not abs(value) < LARGEST and not slot_of(annotation, strict=False):  # nor NaN
        raise ValueError(f"expected a number below 2^63, got {value!r}")
    if annotation is Any:
        return value
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        if value is None and types.NoneType in arguments:
            return None
        failures = []
        for option in sorted(arguments, key=lambda a: a is float):  # an integer stays one where both are allowed
            try:
                return convert(value, option)
            except ConfigError as error:
                failures.append(error)
            except ValueError:
                continue
        if failures:  # a slot's own words say more than "expected a choice"
            raise failures[0]
    elif origin is Literal:
        if any(value is a or (type(value) is type(a) and value == a) for a in arguments):
            return value
    elif origin is Maker:
        return slot_of(annotation).check(value)
    elif origin in (dict, Mapping):
        if isinstance(value, Mapping):
            return dict(value)
    elif origin is not None and isinstance(value, list | tuple):
        if origin is tuple and arguments[-1] is not Ellipsis and len(value) != len(arguments):
            raise ValueError(f"expected {len(arguments)} values, got {value!r}")
        kinds = arguments if origin is tuple and arguments[-1] is not Ellipsis else [arguments[0]] * len(value)
        return type(value)(convert(v, kind) for v, kind in zip(value, kinds, strict=True))
    elif annotation is float and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    elif annotation is int and isinstance(value, float) and value.is_integer():
        return int(value)  # 1e5 is how people write a hundred thousand
    elif annotation is str and value == "None":
        raise ValueError("got the text 'None'; write null")
    elif (
        inspect.isclass(annotation)
        and isinstance(value, annotation)
        and isinstance(value, bool) == (annotation is bool)
    ):
        return value
    if isinstance(value, Mapping | list) and any(
        map(is_wrong, value.values() if isinstance(value, Mapping) else value)
    ):
        return WRONG
    raise ValueError(f"expected {describe(annotation)}, got {value!r}{_quoting(value, annotation)}")


def _quoting(value: Any, annotation: Any) -> str:
    """How a number would be text, where text is expected: a folder may be named 2024."""
    if not isinstance(value, int | float) or str not in (annotation, *typing.get_args(annotation)):
        return ""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return f"; if text is meant, quote it: \"'{text}'\""


def check_fields(
    values: Mapping[str, Any], fields: Mapping[str, Field], owner: str, extra: Iterable[str] = ()
) -> dict[str, Any]:
    """Convert every value to its field's type, or say everything that is wrong.

    Args:
        values: Field to value, as a config has it.
        fields: The schema.
        owner: What the fields belong to, for the messages.
        extra: Names that are known but not fields, for the messages.

    Raises:
        ConfigError: A line for each unknown name and each wrong type, with the place in front.
    """
    problems, typed = [], {}
    for name, value in values.items():
        if name not in fields:
            problems.append(f"{name}: {unknown(f'field of {owner}', name, [*fields, *extra])}")
            continue
        try:
            typed[name] = convert(value, fields[name].annotation)
        except ConfigError as error:
            problems += error.under(name)
            typed[name] = error.rest
        except ValueError as error:
            problems.append(f"{name}: {error}")
            typed[name] = WRONG
    if problems:
        raise ConfigError(problems, typed)
    return typed


def merge(base: Any, patch: Any) -> Any:
    """Lay a patch over a config by the one rule: the same name merges, another name replaces.

    >>> merge({"name": "swiglu", "ratio": 4}, "relu")
    {'name': 'relu'}
    >>> merge({"name": "swiglu", "ratio": 4}, {"bias": True})
    {'name': 'swiglu', 'ratio': 4, 'bias': True}
    >>> merge("swiglu", {"ratio": 4})
    {'name': 'swiglu', 'ratio': 4}
    """
    if isinstance(patch, str) and isinstance(base, dict) and "name" in base:
        patch = {"name": patch}
    if isinstance(base, str) and isinstance(patch, dict):
        base = {"name": base}
    if not (isinstance(base, dict) and isinstance(patch, dict)):
        return patch
    if "name" in patch and "name" in base and patch["name"] != base["name"]:
        return patch
    return {**base, **{k: merge(base[k], v) if k in base else v for k, v in patch.items()}}


# ---------------------------------------------------------------------------------------------------------------------
# Slots


@dataclass(frozen=True)
class Choice(Generic[T]):
    """One component under one name, with what the name fixes.

    Args:
        name: The name.
        component: The class or function that is registered.
        fixed: Parameters that the name fixes.
        build: What makes it, and whose parameters are the schema: the component, or a class method of it.
    """

    name: str
    component: Callable[..., T]
    fixed: Mapping[str, Any]
    build: Callable[..., T]

    @property
    def fields(self) -> dict[str, Field]:
        """What a config may set."""
        every = fields_of(self.build)
        return {n: f for n, f in every.items() if f.configurable and n not in self.fixed}

    @property
    def summary(self) -> str:
        """The first paragraph of the docstring, as one line."""
        return " ".join((inspect.getdoc(self.component) or "").split("\n\n")[0].split())

    @property
    def source(self) -> str:
        """Where the component comes from: the docstring's ``Source:``."""
        text = inspect.getdoc(self.component) or ""
        return " ".join(text.partition("Source:")[2].split("\n\n")[0].partition("Departs from it:")[0].split())

    def arguments(self, node: Mapping[str, Any], offers: Mapping[str, Any]) -> dict[str, Any]:
        """The constructor's arguments: what the config says, else what is offered, else the default (left out).

        Raises:
            ConfigError: Some are not given.
        """
        given: dict[str, Any] = {}
        missing: list[str] = []
        for name, field in fields_of(self.build).items():
            if name in self.fixed:
                given[name] = self.fixed[name]
            elif field.configurable and name in node:
                value = node[name]
                is_node = value is not None and slot_of(field.annotation, strict=False) is not None
                given[name] = slot_of(field.annotation).maker(value, **offers) if is_node else value
            elif offers.get(name) is not None:
                given[name] = offers[name]
            elif field.required:
                missing.append(f": {self.name} needs {name}, which is not given")
                given[name] = WRONG
        if missing:
            raise ConfigError(missing, given)
        return given

    def asks(self, node: Mapping[str, Any]) -> set[str]:
        """The parameters that it takes of its surroundings' offers, if they are there; with those of choices within."""
        asked: set[str] = set()
        for name, field in fields_of(self.build).items():
            slot = slot_of(field.annotation, strict=False)
            if name not in node:
                asked |= {name} - set(self.fixed)
            elif slot is not None and node[name] is not None:
                within = slot.check(node[name])
                asked |= slot[within["name"]].asks(within)
        return asked

    def judge(self, given: Mapping[str, Any], wrong: set[str]) -> list[str]:
        """What else is wrong with arguments of which some were wrong already, with others in the place of those.

        An error counts if it names an argument, as errors do, and none of the wrong ones: then it stands whatever they
        will be.
        """
        fields = fields_of(self.build)
        others = {name: value for name, value in given.items() if name not in wrong}
        needed = {name: fields[name].annotation for name in wrong if fields[name].required}
        if not set(needed.values()) <= {int, float, str}:
            return []
        try:
            self.build(**others, **{name: kind(1) for name, kind in needed.items()})
        except ValueError as error:
            lines = error.problems if isinstance(error, ConfigError) else (f": {error}",)
            named = {line: set(re.findall(r"\w+", line)) & set(given) for line in lines}
            return [line for line in lines if named[line] and not named[line] & wrong]
        except (ArithmeticError, TypeError):
            pass
        return []


class Slot(Generic[T]):
    """A place that several components can fill.

    Args:
        name: The slot's name in a config.
        promise: What every choice keeps, in a line.
        interface: The protocol that a choice fulfils; a parameter typed ``Maker[interface]`` takes a choice of this
            slot.
        home: The package whose import registers the project's own choices.
        by: The class method that builds a choice; None: its constructor.
    """

    def __init__(
        self, name: str, promise: str, interface: type[T], home: str | None = None, *, by: str | None = None
    ) -> None:
        self.name, self.promise, self.interface, self.home, self.by = name, promise, interface, home, by
        self._choices: dict[str, Choice[T]] = {}
        SLOTS[name] = self

    def register(self, name: str, **fixed: Any) -> Callable[[Callable[..., T]], Callable[..., T]]:
        """Register a component under a name, which may fix some of its parameters.

        Raises:
            ValueError: The name is taken by another component, or ``fixed`` names no parameter.
        """

        def decorate(component: Callable[..., T]) -> Callable[..., T]:
            # A file imported twice (`python -m`, a reload) brings its component again; another one may not come.
            old = self._choices.get(name)
            if old and _where(old.component) != _where(component):
                raise ValueError(
                    f"{self.name} {name!r} is registered twice: by {_where(old.component)} and by {_where(component)}"
                )
            build = getattr(component, self.by) if self.by else component
            names = inspect.signature(build).parameters  # names alone: types may not be defined yet
            for parameter in set(fixed) - set(names):
                raise ValueError(f"{self.name} {name!r}: {unknown('parameter', parameter, names)}")
            self._choices[name] = Choice(name, component, fixed, build)
            return component

        return decorate

    @property
    def choices(self) -> dict[str, Choice[T]]:
        """Every choice by name, sorted; imports the slot's home and the installed components first."""
        if self.home is not None:
            importlib.import_module(self.home)
        load_components()
        return dict(sorted(self._choices.items()))

    def __getitem__(self, name: str) -> Choice[T]:
        """The choice of that name.

        Raises:
            ConfigError: There is none; with the nearest name, the choices and the slot's promise.
        """
        if name not in self._choices and name not in self.choices:
            hint = f" ({self.name}: {self.promise})"
            raise ConfigError([f": {unknown(self.name, name, self.choices, hint)}"], {"name": WRONG})
        return self._choices[name]

    def check(self, node: Any) -> Node:
        """A name, or a mapping with a name, as a node whose fields have the constructor's types.

        Raises:
            ConfigError: A line for everything that is wrong with it.
        """
        if isinstance(node, str):
            node = {"name": node}
        if isinstance(node, Mapping) and is_wrong(node.get("name")):
            return {"name": WRONG}
        if not isinstance(node, Mapping) or not isinstance(node.get("name"), str):
            expected = (
                f"expected a choice of {self.name} ({', '.join(self.choices)}), alone or as the name of a mapping"
            )
            raise ConfigError([f": {expected}; got {node!r}"], {"name": WRONG})
        choice = self[node["name"]]
        fields = {str(k): v for k, v in node.items() if k != "name"}  # YAML has numbers for keys
        try:
            return {"name": choice.name, **check_fields(fields, choice.fields, f"{self.name} {choice.name}")}
        except ConfigError as error:
            raise ConfigError(error.problems, {"name": choice.name, **error.rest}) from None

    def build(self, node: str | Mapping[str, Any], **offers: Any) -> T:
        """Build the component that a node names.

        Args:
            node: A name, or a node.
            **offers: What the surroundings offer, by parameter name; an offer of None is none.

        Raises:
            ValueError: From the constructor.
            Undecided: What it would be built of is wrong, and said to be.
        """
        return self.maker(node, **offers)()

    def maker(self, node: str | Mapping[str, Any], **offers: Any) -> Maker[T]:
        """A node with its fields and the offers bound, to be called with the rest.

        Raises:
            Undecided: The name is wrong, and said to be.
        """
        node = self.check(node)
        if is_wrong(node["name"]):
            raise Undecided
        choice = self[node["name"]]

        def make(*args: Any, **kwargs: Any) -> T:
            positional = dict(zip(fields_of(choice.build), args, strict=False))
            given = {**positional, **kwargs}
            said: tuple[str, ...] = ()
            try:
                arguments = choice.arguments(node, {**offers, **given})
            except ConfigError as error:
                said, arguments = error.problems, error.rest
            arguments |= given
            if wrong := {name for name, value in arguments.items() if is_wrong(value)}:
                if said := (*said, *choice.judge(arguments, wrong)):
                    raise ConfigError(said)
                raise Undecided
            return choice.build(**arguments)

        return make


def _where(component: Callable[..., Any]) -> str:
    return f"{component.__module__}.{component.__qualname__}"


SLOTS: dict[str, Slot[Any]] = {}


@typing.overload
def slot_of(annotation: Any) -> Slot[Any]: ...
@typing.overload
def slot_of(annotation: Any, *, strict: bool) -> Slot[Any] | None: ...
def slot_of(annotation: Any, *, strict: bool = True) -> Slot[Any] | None:
    """The slot behind ``Maker[Interface]`` or ``Maker[Interface] | None``."""
    for option in (annotation, *typing.get_args(annotation)):
        if typing.get_origin(option) is Maker:
            interface = typing.get_args(option)[0]
            return next(slot for slot in SLOTS.values() if slot.interface is interface)
    assert not strict, f"{annotation} names no slot"
    return None


@functools.cache
def load_components() -> None:
    """Import what other installed packages offer under the entry-point group ``variants.components``.

    Raises:
        ConfigError: One of them cannot be imported; which, and why.
    """
    for entry in importlib.metadata.entry_points(group="variants.components"):
        try:
            entry.load()
        except Exception as error:  # whatever another package raises
            place = f"entry point {entry.name} = {entry.value} in group variants.components"
            raise ConfigError([f"{place}: {type(error).__name__}: {error}"]) from error
