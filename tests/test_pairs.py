"""Every pair of choices works in every layout, or a rule refuses it in words; the document says which."""

import pytest

from variants import slots
from variants.models import assemble
from variants.testing import pairs
from variants.testing.combinations import Combination, cause_of, config_of, defaults, factors, refusal

LAYOUTS = list(slots.layouts.choices)
PARTS = 4  # of a layout's rows, so that workers share them; finding the rows takes seconds, so that collecting does not


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("part", range(PARTS))
def test_every_pair_keeps_what_a_model_promises(layout, part):
    rows, _ = pairs.covering(layout)
    assert len(rows) >= PARTS
    assert [line for row in rows[part::PARTS] for line in pairs.broken_by(layout, row)] == []


@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_pair_is_in_a_row_or_refused(layout):
    rows, refused = pairs.covering(layout)
    assert pairs.uncovered(layout) == set()
    assert all(refusal(layout, row) is None for row in rows)
    assert all(reason.startswith("model.") for reason in refused.values())


@pytest.mark.slow
def test_the_document_is_up_to_date():
    said = pairs.document()
    assert pairs.DOCUMENT.read_text("utf-8") == said, "run python -m variants.testing.pairs"


def test_every_slot_of_a_model_is_a_factor():
    assert set(factors("encoder_decoder")) >= {
        *("mixer", "cross", "kernel", "position", "norm", "residual", "feedforward", "embedding", "head", "sharing"),
        "initialiser",
    }
    assert not {"head", "head_bias", "cross"} & set(factors("encoder_only"))
    assert "cross" not in factors("decoder_only")


def test_a_cause_is_the_smallest_part_that_is_refused():
    wrong = {"kernel": "flash", "position": "relative", "norm": "layernorm", "bias": "true"}
    choices = defaults("decoder_only") | wrong
    assert cause_of("decoder_only", choices) == (("kernel", "flash"), ("position", "relative"))


def test_a_choice_against_a_default_is_refused_with_it_alone():
    base = {"kernel": "flash"}  # as if flash were the default
    choices = defaults("decoder_only") | base | {"position": "relative", "norm": "layernorm"}
    cause = cause_of("decoder_only", choices, defaults("decoder_only") | base)
    assert {("kernel", "flash"), ("position", "relative")} <= set(cause)
    assert ("norm", "layernorm") not in cause


def test_a_combination_is_built_of_its_choices():
    example = Combination("decoder_only", {"mixer": "lstm", "residual": "post", "checkpointing": "full"})
    model = example()
    assert type(model.stack.layers[0].mixer).__name__ == "Lstm"
    assert model.stack.checkpoint_every == 1
    assert repr(example) == "decoder_only: mixer lstm, residual post, checkpointing full"
    assert config_of("decoder_only", example.choices)["residual"] == {"name": "post"}


def test_an_encoder_that_nothing_reads_is_said_to_have_no_effect():
    from variants.models.effects import idle, without_effect

    model = assemble(
        {"d_model": 8, "n_layers": 2, "n_heads": 2, "vocab": 9, "layout": "encoder_decoder", "cross": "none"}
    )
    assert idle(model)[0] is model.encoder
    assert without_effect(model) == ["encoder has no effect: no layer of the decoder has a cross mixer to read it"]
    some = assemble(
        {
            **{"d_model": 8, "n_layers": 2, "n_heads": 2, "vocab": 9, "layout": "encoder_decoder"},
            "decoder": {"layers": {0: {"cross": "none"}}},
        }
    )
    assert idle(some) == []


def test_a_model_without_a_head_has_no_output_matrix():
    model = assemble(
        {"d_model": 8, "n_layers": 1, "n_heads": 2, "vocab": 9, "layout": "encoder_only", "embedding": "untied"}
    )
    assert [name for name, _ in model.named_parameters() if name.startswith("embedding")] == ["embedding.table.weight"]


def test_what_gets_no_gradient_must_be_said_to_have_no_effect(monkeypatch):
    idle = {"mixer": "lstm", "position": "relative"}
    monkeypatch.setattr(pairs, "PROMISES", (pairs.what_has_an_effect_learns,))
    assert pairs.broken_by("decoder_only", idle) == []
    monkeypatch.setattr(pairs.effects, "idle", lambda model: [])
    line = "what_has_an_effect_learns: Broken: stack.positions.0.table.weight gets no gradient, and nothing says so"
    assert pairs.broken_by("decoder_only", idle) == [f"decoder_only: mixer lstm, position relative: {line}"]
