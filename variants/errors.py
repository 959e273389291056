"""What is wrong with a config: the error that says all of it, and the ways to go on and find the rest."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

T = TypeVar("T")
WRONG = "\0"  # stands in a config for a value that was wrong, and said to be; no file can hold it


class ConfigError(ValueError):
    """Everything that is wrong with a config, a line each, found before any weight is allocated.

    Args:
        problems: The lines.
        rest: What was checked, with `WRONG` in place of what is wrong with it, so that the rest can be judged too.
    """

    def __init__(self, problems: Iterable[str], rest: Any = WRONG) -> None:
        self.problems = tuple(dict.fromkeys(map(one_line, problems)))
        self.rest = rest
        super().__init__("\n".join(line.removeprefix(": ") for line in self.problems))

    def under(self, place: str) -> list[str]:
        """The lines, with the place in front of them; a line that begins with a colon is of the place itself."""
        return [f"{place}{'' if line.startswith(':') else '.'}{line}" for line in self.problems]


class Undecided(Exception):  # noqa: N818  # no error of a user's
    """Whether something can be built depends on a value that is wrong."""


def is_wrong(value: Any) -> bool:
    """Whether a value of a config was wrong, and said to be."""
    return isinstance(value, str) and value == WRONG


def attempt(problems: list[str], place: str, action: Callable[[], T]) -> T | Any:
    """What an action gives; where something is wrong with it, say so, and go on with `WRONG`, or with what is left.

    Args:
        problems: Hears it.
        place: What stands in front; empty: the lines say it themselves.
        action: Which may raise.
    """
    try:
        return action()
    except Undecided:
        return WRONG
    except ConfigError as error:
        problems += error.under(place) if place else str(error).splitlines()
        return error.rest
    except ValueError as error:
        problems.append(f"{place}: {error}" if place else str(error))
        return WRONG


def refuse(*problems: str | bool) -> None:
    """Say all that is wrong with a constructor's arguments, where something is.

    Args:
        *problems: A line each; what is false is no problem: ``lr <= 0 and f"lr={lr} must be positive"``.

    Raises:
        ConfigError: Something is wrong. It is a ValueError, and its message has a line for each problem.

    >>> refuse(False, "eps=-1 must be positive", "beta=2 must be below 1")
    Traceback (most recent call last):
    variants.errors.ConfigError: eps=-1 must be positive
    beta=2 must be below 1
    """
    if lines := [f": {problem}" for problem in problems if problem]:
        raise ConfigError(lines)


def one_line(text: str) -> str:
    r"""Escape what would break a line, or not show on it.

    >>> print(one_line("a\nb é"))
    a\nb é
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def unknown(kind: str, name: object, known: Iterable[str], hint: str = "") -> str:
    """Word the error for a name that nobody knows: the nearest one, and all there are.

    >>> unknown("norm", "rmsnrom", ["layernorm", "rmsnorm"])
    "no norm 'rmsnrom' (did you mean 'rmsnorm'?); there are: layernorm, rmsnorm"
    """
    known = sorted(map(str, known))
    near = difflib.get_close_matches(str(name), known, n=1)
    guess = f" (did you mean {near[0]!r}?)" if near else ""
    return f"no {kind} {name!r}{guess}; there are: {', '.join(known) or 'none'}{hint}"
