"""Every behaviour on which projects of this kind were reported wrong has tests and causes, or waits for its feature.

That the tests fail by the causes, `make causes` shows; here, that they are still of this code.
"""

import ast
from functools import cache
from pathlib import Path

import pytest

from experiments import causes
from variants import slots

TESTS = Path(__file__).parents[1]
CAUSES = causes.causes()
# What each behaviour without a cause waits for, as it will be registered.
WAITING = {"POS-03": (slots.positions, "alibi"), "MLM-01": (slots.objectives, "masked_lm")}
# The same for features that would be no choice of a slot: a word that their code could not do without.
WORDS = {"DIST-05": "parallelize_module", "MET-03": "bleu", "MET-04": "bleu", "WB-03": "wandb.agent"}


@cache
def functions_of(file):
    """The test functions of a file below `tests/`, and their docstrings."""
    tree = ast.parse((TESTS / file).read_text("utf-8"))
    return {node.name: ast.get_docstring(node) or "" for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_all_46_have_causes_or_wait():
    assert len(CAUSES) + len(WAITING) + len(WORDS) == 46
    assert len({*CAUSES, *WAITING, *WORDS}) == 46
    assert all(CAUSES.values())


@pytest.mark.parametrize("identity", CAUSES)
def test_each_cause_can_be_put_into_this_code_and_names_tests_that_there_are(identity):
    for cause in CAUSES[identity]:
        for path, text in cause.files().items():
            assert path.parts[0] == "variants"
            assert ast.dump(ast.parse(text)) != ast.dump(ast.parse((causes.ROOT / path).read_text("utf-8"))), cause.says
        assert cause.fails
        for test in cause.fails:
            file, _, function = test.partition("[")[0].partition("::")
            assert function in functions_of(file), test


def test_a_cause_whose_place_is_gone_is_named():
    cause = causes.Cause("X-01", "", (causes.Edit("variants/cli.py", "no such text", ""),), ())
    with pytest.raises(ValueError, match=r"X-01: variants/cli.py has 0 times, not once:\nno such text"):
        cause.files()


def test_a_test_counts_as_failed_by_a_failure_alone(tmp_path):
    report = tmp_path / "report.xml"
    case = '<testcase classname="tests.blocks.test_masks" name="{}">{}</testcase>'
    given = {"a[x]": "<failure/>", "a[y]": "", "b": "<error/>", "c": "<skipped/>"}
    report.write_text(f"<testsuite>{''.join(case.format(*item) for item in given.items())}</testsuite>")
    assert causes.failed_of(report) == {"blocks/test_masks.py::a"}


def test_every_test_here_is_mapped_to_the_behaviour_that_it_names():
    for file in Path(__file__).parent.glob("test_*.py"):
        for name, told in functions_of(f"behaviours/{file.name}").items():
            if name.startswith("test_") and file != Path(__file__):
                identity = told.split(".")[0].split(":")[0]
                fails = {test.partition("[")[0] for cause in CAUSES[identity] for test in cause.fails}
                assert f"behaviours/{file.name}::{name}" in fails, (name, identity)


@pytest.mark.parametrize("identity", WAITING)
def test_a_behaviour_waits_only_while_its_feature_is_not_there(identity):
    slot, choice = WAITING[identity]
    assert choice not in slot.choices


@pytest.mark.parametrize("identity", WORDS)
def test_a_behaviour_waits_only_while_nothing_speaks_of_its_feature(identity):
    code = [path.read_text("utf-8").lower() for path in (TESTS.parent / "variants").rglob("*.py")]
    assert not any(WORDS[identity] in text for text in code)
