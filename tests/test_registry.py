"""The registry: schemas from constructors, nodes, the merge rule, and errors that help."""

from typing import Literal, Protocol

import pytest

from variants.errors import ConfigError
from variants.registry import SLOTS, Maker, Slot, convert, merge


class Gadget(Protocol):
    def __call__(self) -> str: ...


class Widget(Protocol):
    def __call__(self) -> str: ...


@pytest.fixture
def gadgets():
    """A slot with two choices, and one whose choice takes a choice of it."""
    slot = Slot("gadget", "says what it is", Gadget)
    inner = Slot("widget", "is inside a gadget", Widget)

    @inner.register("cog")
    class Cog:
        def __init__(self, width: int, *, teeth: int = 8) -> None:
            self.width, self.teeth = width, teeth

    @slot.register("plain")
    @slot.register("loud", volume=11)
    class Plain:
        """Say it.

        Source: nobody.
        """

        def __init__(
            self,
            d_model: int,
            *,
            volume: int = 1,
            tone: Literal["low", "high"] = "low",
            ratio: float = 2.0,
            bias: bool = False,
            part: Maker[Widget] | None = None,
        ) -> None:
            self.d_model, self.volume, self.tone, self.ratio, self.bias = d_model, volume, tone, ratio, bias
            self.part = part and part(d_model)

    yield slot
    del SLOTS["gadget"], SLOTS["widget"]


def test_a_name_alone_is_a_node(gadgets):
    assert gadgets.check("plain") == {"name": "plain"}


def test_what_a_name_fixes_is_not_in_its_schema(gadgets):
    assert gadgets.build("loud", d_model=3).volume == 11
    with pytest.raises(ConfigError, match="no field of gadget loud 'volume'"):
        gadgets.check({"name": "loud", "volume": 3})


def test_offers_are_passed_by_name_and_only_where_asked(gadgets):
    assert gadgets.build("plain", d_model=3, n_heads=9).d_model == 3


def test_a_config_wins_over_an_offer_and_an_offer_over_the_default(gadgets):
    assert gadgets.build("plain", d_model=1, bias=True).bias
    assert not gadgets.build({"name": "plain", "bias": False}, d_model=1, bias=True).bias
    assert not gadgets.build("plain", d_model=1, bias=None).bias


def test_a_positional_parameter_is_no_field(gadgets):
    with pytest.raises(ConfigError, match="no field of gadget plain 'd_model'"):
        gadgets.check({"name": "plain", "d_model": 3})


def test_a_missing_offer_is_named(gadgets):
    with pytest.raises(ValueError, match="plain needs d_model"):
        gadgets.build("plain")


def test_a_misspelt_choice_shows_the_nearest_the_choices_and_the_promise(gadgets):
    with pytest.raises(
        ConfigError, match=r"'plian' \(did you mean 'plain'\?\); there are: loud, plain .*says what it is"
    ):
        gadgets.check("plian")


def test_everything_wrong_with_a_node_is_said_at_once(gadgets):
    with pytest.raises(ConfigError) as caught:
        gadgets.check(
            {"name": "plain", "volum": 3, "tone": "middle", "ratio": "much", "part": {"name": "cog", "teth": 1}}
        )
    assert [p.split(":")[0] for p in caught.value.problems] == ["volum", "tone", "ratio", "part.teth"]


def test_a_maker_binds_fields_and_takes_the_rest(gadgets):
    built = gadgets.build({"name": "plain", "part": {"name": "cog", "teeth": 3}}, d_model=5)
    assert (built.part.width, built.part.teeth) == (5, 3)


def test_two_components_under_one_name_are_refused(gadgets):
    class Other:
        pass

    with pytest.raises(ValueError, match="'plain' is registered twice"):
        gadgets.register("plain")(Other)


def test_registering_with_an_unknown_parameter_is_refused(gadgets):
    class Other:
        def __init__(self, *, size: int = 1) -> None:
            pass

    with pytest.raises(ValueError, match="no parameter 'siez'"):
        gadgets.register("other", siez=3)(Other)


@pytest.mark.parametrize(
    ("value", "annotation", "wanted"),
    [
        (1, float, 1.0),
        (100000.0, int, 100000),
        (None, int | None, None),
        (3, int | float, 3),
        ([1, 2], list[float], [1.0, 2.0]),
        ([0.9, 0.98], tuple[float, float], [0.9, 0.98]),
        ("a", Literal["a", "b"], "a"),
        (True, bool, True),
    ],
)
def test_a_value_gets_the_type_that_is_asked_for(value, annotation, wanted):
    got = convert(value, annotation)
    assert got == wanted
    assert type(got) is type(wanted)


@pytest.mark.parametrize(
    ("value", "annotation"),
    [
        (True, int),
        (1, bool),
        ("1", int),
        (1.5, int),
        ("None", str),
        (1e234, str),
        (True, float),
        ("c", Literal["a", "b"]),
        ([1], tuple[float, float]),
        (3, list[int]),
        (None, int),
        (1, Literal[True]),
    ],
)
def test_a_value_of_another_type_is_refused(value, annotation):
    with pytest.raises(ValueError, match="expected|write null"):
        convert(value, annotation)


@pytest.mark.parametrize(
    ("base", "patch", "wanted"),
    [
        ({"name": "a", "x": 1}, {"name": "a", "y": 2}, {"name": "a", "x": 1, "y": 2}),
        ({"name": "a", "x": 1}, {"name": "b", "y": 2}, {"name": "b", "y": 2}),
        ({"name": "a", "x": 1}, "a", {"name": "a", "x": 1}),
        ("a", {"name": "b"}, {"name": "b"}),
        ({"p": {"name": "a", "x": 1}}, {"p": {"x": 2}}, {"p": {"name": "a", "x": 2}}),
        ({"p": 1}, {"p": None}, {"p": None}),
        ([1, 2], [3], [3]),
    ],
)
def test_the_same_name_merges_and_another_replaces(base, patch, wanted):
    assert merge(base, patch) == wanted


def test_merging_leaves_both_sides_as_they_were():
    base, patch = {"p": {"name": "a", "x": 1}}, {"p": {"x": 2}}
    merge(base, patch)["p"]["x"] = 3
    assert (base, patch) == ({"p": {"name": "a", "x": 1}}, {"p": {"x": 2}})
