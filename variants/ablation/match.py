"""Make arms equal in parameters or operations by solving one field of each."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from variants.ablation.build import Built
from variants.errors import ConfigError

TOLERANCE = 0.01
LARGEST = 2**24  # of the field that is solved
WIDEST_GAP = 257  # between two of its values that can be built
AMOUNTS: dict[str, Callable[[Built], int]] = {
    "parameters": lambda built: built.parameters.total,
    "non_embedding": lambda built: built.parameters.non_embedding,
    "flops": lambda built: built.flops_per_token,
}


@dataclass(frozen=True)
class Matched:
    """What was solved.

    Attributes:
        field: The field.
        value: Its value; None: the arm was equal as it is.
        residual: By which share of the baseline's amount the arm has more.
    """

    field: str
    value: int | None
    residual: float


def solve(amount: Callable[[int], int | None], target: int) -> tuple[int, int]:
    """Find the positive integer whose amount is nearest to a target.

    Args:
        amount: Grows with the value; None at values that cannot be built.
        target: What it should come to.

    Returns:
        The value and its amount.

    Raises:
        ValueError: No value can be built, or the amount does not grow.

    >>> solve(lambda width: 100 + 3 * width, 1_000)
    (300, 1000)
    >>> solve(lambda width: width**2 if width % 8 == 0 else None, 1_000)
    (32, 1024)
    """
    known: dict[int, int | None] = {}

    def at(value: int) -> int | None:
        if value not in known:
            known[value] = amount(value)
        return known[value]

    def built(value: int, low: int, high: int) -> tuple[int, int] | None:
        """The value nearest to this one that can be built, between two others that are left out; and its amount."""
        for near in (v for d in range(WIDEST_GAP) for v in dict.fromkeys((value + d, value - d)) if low < v < high):
            if (found := at(near)) is not None:
                return near, found
        return None

    low, high = built(1, 0, LARGEST), built(8, 1, LARGEST)
    if low is None or high is None:
        raise ValueError("none of its values can be built")
    high = built(8, low[0], LARGEST) or low
    if high[1] <= low[1]:
        raise ValueError("it has no influence")
    if low[1] >= target:
        return low
    for turn in itertools.count():
        slope = Fraction(high[1] - low[1], high[0] - low[0])
        root = low[0] + (target - low[1]) / slope
        if high[1] < target:  # the line through both goes on to the target
            guess = max(round(root), high[0] + 1)
            found = built(guess, high[0], LARGEST)
            if found is None:
                raise ValueError(f"even {high[0]} gives no more than {high[1]:,}")
            is_line = found[0] == guess and found[1] == low[1] + slope * (guess - low[0])
            low, high = high, found
        else:  # a step on the line, then a halving, in turn
            guess = round(root) if turn % 2 == 0 else (low[0] + high[0]) // 2
            found = built(min(max(guess, low[0] + 1), high[0] - 1), low[0], high[0])
            if found is None:
                return min(low, high, key=lambda pair: abs(pair[1] - target))
            is_line = found[0] == round(root) and found[1] == low[1] + slope * (found[0] - low[0])
            low, high = (found, high) if found[1] <= target else (low, found)
        if is_line:  # then nothing is nearer
            return found
    raise AssertionError


def match(arm: Built, target: int, by: str, field: str, rebuilt: Callable[[int], Built]) -> tuple[Built, Matched]:
    """Give an arm the baseline's amount.

    Args:
        arm: As it is.
        target: The baseline's amount.
        by: Of what: a key of `AMOUNTS`.
        field: The field that is solved.
        rebuilt: The arm with a value of that field.

    Returns:
        The arm with the solved value, and what was solved.

    Raises:
        ConfigError: The field cannot do it; with the nearest that can be reached.
    """
    amount_of = AMOUNTS[by]
    if amount_of(arm) == target:
        return arm, Matched(field, None, 0.0)
    last: dict[int, Built] = {}
    failures: list[str] = []

    def amount(value: int) -> int | None:
        try:
            last[value] = rebuilt(value)
        except ConfigError as error:
            failures.append(error.problems[0])
            return None
        return amount_of(last[value])

    try:
        value, reached = solve(amount, target)
    except ValueError as error:
        why = f" ({failures[0]})" if failures else ""
        raise ConfigError([f"match_by {field}: cannot match {by} of {target:,}: {error}{why}"]) from None
    residual = reached / target - 1
    if abs(residual) > TOLERANCE:
        raise ConfigError(
            [f"match_by {field}: nearest to {by} of {target:,} is {reached:,} ({residual:+.1%}), at {value}"]
        )
    return last[value], Matched(field, value, residual)
