"""Every behaviour is mapped to tests that exist, or to the feature that it waits for."""

import ast
from pathlib import Path

import pytest
from behaviours.covered import COVERED

from variants import slots

TESTS = Path(__file__).parents[1]
# What each behaviour without a test waits for, as it will be registered.
WAITING = {"POS-03": (slots.positions, "alibi"), "MLM-01": (slots.objectives, "masked_lm")}

# The same for features that would be no choice of a slot: a word that their code could not do without.
WORDS = {"DIST-05": "parallelize_module", "MET-03": "bleu", "MET-04": "bleu", "WB-03": "wandb.agent"}


def test_all_46_are_mapped():
    assert len(COVERED) == 46
    assert all(COVERED.values())
    assert list(COVERED) == sorted(COVERED)


@pytest.mark.parametrize("identity", [i for i, tests in COVERED.items() if isinstance(tests, list)])
def test_what_is_mapped_exists(identity):
    for test in COVERED[identity]:
        file, _, function = test.partition("::")
        names = [n.name for n in ast.parse((TESTS / file).read_text()).body if isinstance(n, ast.FunctionDef)]
        assert function in names, test


def test_every_test_here_is_mapped_to_the_behaviours_that_it_names():
    for file in Path(__file__).parent.glob("test_*.py"):
        for node in ast.parse(file.read_text()).body:
            if getattr(node, "name", "").startswith("test_") and file != Path(__file__):
                identity = (ast.get_docstring(node) or "").split(".")[0].split(":")[0]
                assert f"behaviours/{file.name}::{node.name}" in COVERED[identity], (node.name, identity)


@pytest.mark.parametrize("identity", WAITING)
def test_a_behaviour_waits_only_while_its_feature_is_not_there(identity):
    slot, choice = WAITING[identity]
    assert isinstance(COVERED[identity], list) or choice not in slot.choices


@pytest.mark.parametrize("identity", WORDS)
def test_a_behaviour_waits_only_while_nothing_speaks_of_its_feature(identity):
    code = [path.read_text("utf-8").lower() for path in (TESTS.parent / "variants").rglob("*.py")]
    assert isinstance(COVERED[identity], list) or not any(WORDS[identity] in text for text in code)


def test_every_behaviour_that_waits_is_looked_after():
    assert {identity for identity, tests in COVERED.items() if isinstance(tests, str)} <= {*WAITING, *WORDS}
