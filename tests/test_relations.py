"""All that is wrong with a run is said at once: a mistake hides no other, and none brings lines of its own."""

import contextlib
from functools import cache

import pytest

from variants.cli import main
from variants.config import GROUPS, compose
from variants.errors import WRONG, ConfigError, Undecided, attempt
from variants.registry import SLOTS
from variants.relations import related
from variants.slots import optimisers
from variants.training.optimisers import AdamW

BASE = ["data=recall", "model.n_layers=2", "model.d_model=32", "model.n_heads=4"]

# What one writes, and how the only line begins that says what is wrong with it.
NAMES = {
    "model.norm=rmsnrom": "model.norm: no norm 'rmsnrom' (did you mean 'rmsnorm'?)",
    "model.feedforward.raito=3": "model.feedforward.raito: no field of feedforward swiglu",
    "model.kernel=flahs": "model.kernel: no kernel 'flahs' (did you mean 'flash'?)",
    "model.layout=decoder_onli": "model.layout: no layout 'decoder_onli'",
    "model.dropout=1.5": "model.dropout: 1.5 is not a rate",
    "model.mixer.window=wide": "model.mixer.window: expected an integer or null, got 'wide'",
    "model.decoder.residual=poste": "model.decoder.residual: no residual 'poste'",
    "model.encoder.d_model=3": "model.encoder.d_model: no field of this patch",
    "model.layers={0: {norm: x}}": "model.layers.0.norm: no norm 'x'",
    "model.layers={0: {bias: x}, 1: {bias: y}}": (
        "model.layers.0.bias: expected true or false or null, got 'x'",
        "model.layers.1.bias: expected true or false or null, got 'y'",
    ),
    "data.queries=many": "data.queries: expected an integer or null, got 'many'",
    "trainer.max_step=10": "trainer.max_step: no field of a trainer 'max_step'",
    "trainer.accelerator=gpux": "trainer.accelerator: no accelerator 'gpux'",
    "trainer.max_steps=0": "trainer.max_steps: 0 must be at least 1",
    "optimiser=adamm": "optimiser: no optimiser preset 'adamm'",
    "objective=causal": "objective: no objective preset 'causal'",
    "tracker.mode=of": "tracker.mode: expected one of",
    "seed=x": "seed: expected an integer",
    "folder=3": "folder: expected text or null, got 3",
    "bar.x=3": "no part of a run 'bar'",
    "foo": "'foo': an override is written name=value",
    "model.max_length=[": "model.max_length: '[' is no YAML value",
    "model.vocab=${nowhere}": "model.vocab: Interpolation key 'nowhere' not found",
}
RELATIONS = {
    "model.n_heads=3": "model.mixer: n_heads 3 must divide d_model 32",
    "model.layers={1: {n_heads: 5}}": "model.mixer: n_heads 5 must divide d_model 32",
    "model.layers={7: {}}": "model.layers.7: there are 2 layers",
    "model.position={name: learned, max_length: 4}": "model.position: has 4 positions",
    "data={name: copy}": "objective: causal_lm takes language data, but data copy is pairs",
    "data={name: recall, batch_size: 0}": "data: batch_size=0",
    "trainer.precision=16-mixed": "trainer.precision='16-mixed' needs a GPU",
    "schedule={name: cosine, warmup: -1}": "schedule: warmup=-1 must not be negative",
    "schedule={name: constant, warmup: 100000}": "schedule: warmup=100000 must be below max_steps=1000",
    "model.initialiser={name: normal, std: -1}": "model.initialiser: ",
}
MISTAKES = {said: (line,) if isinstance(line, str) else line for said, line in (NAMES | RELATIONS).items()}

# What is wrong here leaves open whether that is.
OPEN = {
    "model.layout=decoder_onli": ["data={name: copy}"],  # the objective is the layout's
    "objective=causal": ["data={name: copy}"],
    "trainer.accelerator=gpux": ["trainer.precision=16-mixed"],
    "trainer.max_steps=0": ["schedule={name: constant, warmup: 100000}"],
    "data.queries=many": ["model.position={name: learned, max_length: 4}"],  # the length is the data's
    "data={name: recall, batch_size: 0}": ["model.position={name: learned, max_length: 4}"],
    "data={name: copy}": ["model.position={name: learned, max_length: 4}"],  # which has another length
}


def lines(*said):
    try:
        related(compose([*BASE, *said]))
    except ConfigError as error:
        return error.problems
    return ()


@cache
def alone(said):
    return set(lines(said))


def meet(first, second):
    """Whether one overwrites the other, or leaves it open."""
    one, other = (f"{said.partition('=')[0]}." for said in (first, second))
    return (
        one.startswith(other) or other.startswith(one) or second in OPEN.get(first, ()) or first in OPEN.get(second, ())
    )


@pytest.mark.parametrize("said", MISTAKES)
def test_a_mistake_is_said_in_its_own_lines_alone(said):
    found = lines(said)
    assert len(found) == len(MISTAKES[said]), found
    for line, start in zip(found, MISTAKES[said], strict=True):
        assert line.startswith(start)


RULES = {  # several of one component, and how each of its lines begins
    "data={name: text, path: no.txt, length: -4, batch_size: 0, vocab: 3, validation: 2, coverage: 0}": (
        "data: length=-4",
        "data: batch_size=0",
        "data: vocab=3",
        "data: validation=2.0",
        "data: coverage=0.0",
        "data: path=no.txt",
    ),
    "data={name: recall, pairs: 0, min_gap: -1, n_train: 0}": ("data: pairs=0", "data: min_gap=-1", "data: n_train=0"),
    "data={name: recall, keys: 0, batch_size: 0}": ("data: keys=0", "data: batch_size=0"),
    "data={name: copying, symbols: 0, max_length: 1}": ("data: symbols=0", "data: min_length=4: must not exceed"),
    "data={name: text, length: 0}": ("data: text needs path", "data: length=0"),
    "data={name: text, path: 3, length: 0, vocab: many}": (
        "data.path: expected text, got 3",
        "data.vocab: expected an integer",
        "data: length=0",
    ),
    "optimiser={name: adam, lr: 0, betas: [1], eps: 0, weight_decay: -1}": (
        "optimiser: lr=0.0",
        "optimiser: betas=[1.0]",
        "optimiser: eps=0.0",
        "optimiser: weight_decay=-1.0",
    ),
    "schedule={name: cosine, warmup: -1, floor: 2}": ("schedule: warmup=-1", "schedule: floor=2.0"),
    "schedule={name: noam, warmup: -1, factor: 0}": ("schedule: warmup=-1", "schedule: factor=0.0"),
    "model.mixer={n_kv_heads: 3, d_head: 0, attention_dropout: 1, window: 0}": (
        "model.mixer: n_kv_heads 3",
        "model.mixer: d_head",
        "model.mixer: attention_dropout",
        "model.mixer: window",
    ),
    "model.position={base: 0, fraction: 2}": ("model.position: base", "model.position: fraction"),
    "model.feedforward={ratio: 0, multiple_of: -1}": (
        "model.feedforward: ratio=0.0",
        "model.feedforward: multiple_of=-1",
    ),
}


@pytest.mark.parametrize("said", RULES)
def test_all_that_is_wrong_with_one_component_is_said_at_once(said):
    found = lines(said)
    assert len(found) == len(RULES[said]), found
    for line, start in zip(found, RULES[said], strict=True):
        assert line.startswith(start)


def test_a_constructor_says_all_in_one_value_error():
    with pytest.raises(ValueError, match=r"^lr=0 must be positive\neps=-1 must be positive$"):
        AdamW(lr=0, eps=-1)


def test_a_constructors_error_has_no_colon_in_front_where_no_place_is_known():
    said = []
    attempt(said, "", lambda: optimisers.build({"name": "adamw", "lr": 0, "eps": -1}))
    assert said == ["lr=0.0 must be positive", "eps=-1.0 must be positive"]


@pytest.mark.parametrize("relation", RELATIONS)
def test_a_relation_is_said_beside_any_other_mistake_and_no_third_line(relation):
    for other in MISTAKES:
        if not meet(relation, other):
            assert set(lines(relation, other)) == alone(relation) | alone(other), other


def test_many_mistakes_are_said_at_once():
    chosen = []
    for said in MISTAKES:
        if not any(meet(said, other) for other in chosen):
            chosen.append(said)
    assert len(chosen) > 20
    assert set(lines(*chosen)) == set().union(*map(alone, chosen))


def test_what_depends_on_a_wrong_value_alone_is_not_judged():
    config = compose(BASE)
    with pytest.raises(Undecided):
        related({**config, "model": {**config["model"], "d_model": WRONG}})
    with pytest.raises(ConfigError) as caught:
        related({**config, "model": {**config["model"], "d_model": WRONG, "layers": {7: {}}}})
    assert caught.value.problems == ("model.layers.7: there are 2 layers, from 0 to 1",)


@pytest.mark.parametrize("layout", ["decoder_only", "encoder_decoder", "encoder_only"])
def test_any_value_may_be_wrong(layout):
    config = compose([*BASE, f"model.layout={layout}", "objective=causal_lm"])
    for group in ("model", "trainer"):
        for name in config[group]:
            with contextlib.suppress(Undecided, ConfigError):
                related({**config, group: {**config[group], name: {"name": WRONG} if name in SLOTS else WRONG}})
    for name, slot in GROUPS.items():
        for field in slot[config[name]["name"]].fields if slot else ():
            with contextlib.suppress(Undecided, ConfigError):
                related({**config, name: {**config[name], field: WRONG}})


@pytest.mark.parametrize("group", ["model", "trainer", "tracker", "data", "objective", "optimiser", "schedule"])
@pytest.mark.parametrize("value", ["nowhere", "[1]", "3"])
def test_a_group_that_is_no_preset_hides_nothing_else_and_needs_nothing(group, value):
    (line,) = lines(f"{group}={value}") if group != "data" else lines("data=recall", f"data={value}")
    beside = f"{'tracker' if group == 'trainer' else 'trainer'}.max_step=1"
    assert set(lines(f"{group}={value}", beside)) == {line, *alone(beside)}


def test_training_says_besides_what_the_config_has_nothing_to_do_with(tmp_path, capsys):
    (tmp_path / "short.txt").write_text("A few words.\n" * 9)
    said = ["data={name: text, path: short.txt, vocab: 300}", "model.norm=rmsnrom", "trainer.devices=-7"]
    with contextlib.chdir(tmp_path):
        assert main(["train", "model.n_layers=1", *said, "--folder", "short.txt/run"]) == 2
        assert [path.name for path in tmp_path.iterdir()] == ["short.txt"]
    starts = ["model.norm: no norm", "data: vocab=300", "folder=short.txt/run cannot be made", "trainer: "]
    found = capsys.readouterr().err.splitlines()
    assert len(found) == len(starts), found
    for line, start in zip(found, starts, strict=True):
        assert line.startswith(f"error: {start}")
