"""Choices three and more at a time: `make test-product N=200 SEED=7`. A failure is shrunk to the fewest departures."""

import os
import random

import pytest
from hypothesis import HealthCheck, Phase, Verbosity, assume, given, seed, settings
from hypothesis import strategies as st

from variants import slots
from variants.testing import pairs
from variants.testing.combinations import defaults, factors, refusal

N = int(os.environ.get("VARIANTS_PRODUCT", "0"))
SEED = int(os.environ.get("VARIANTS_SEED") or random.randrange(10**6))
LEAST = 3

pytestmark = pytest.mark.skipif(not N, reason="for as long as you like: make test-product")


@st.composite
def departures(draw):
    """A layout and at least three choices that are no defaults."""
    layout = draw(st.sampled_from(list(slots.layouts.choices)))
    known, usual = factors(layout), defaults(layout)
    names = st.lists(st.sampled_from([n for n in known if len(known[n]) > 1]), min_size=LEAST, unique=True)
    return layout, {name: draw(st.sampled_from([v for v in known[name] if v != usual[name]])) for name in draw(names)}


@seed(SEED)
@settings(
    max_examples=max(N, 1),
    database=None,
    deadline=None,
    verbosity=Verbosity.quiet,
    phases=[Phase.generate, Phase.shrink],
    suppress_health_check=list(HealthCheck),
)
@given(departures())
def sample(departed):
    layout, choices = departed
    full = defaults(layout) | choices
    assume(refusal(layout, full) is None)  # whatever else a rule raises than a refusal fails here
    broken = pairs.broken_by(layout, full)
    assert not broken, "\n".join(broken)


def test_three_choices_and_more_keep_what_a_model_promises(capsys):
    for layout in slots.layouts.choices:  # builds a model, which a strategy must not
        factors(layout)
    with capsys.disabled():
        print(f"\n{N} combinations, VARIANTS_SEED={SEED}")
    try:
        sample()
    except AssertionError as error:
        pytest.fail(f"{error}\nagain: make test-product N={N} SEED={SEED}", pytrace=False)
