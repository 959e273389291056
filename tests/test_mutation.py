"""What mutation testing leaves out, and that each mutated file has tests to run."""

import re

import pytest

from experiments import mutation
from variants.testing import PROMISES

FILE = '''
class Gate:
    """Scale by 2."""

    initial: ClassVar[dict[str, int]] = {"weight": 1}

    @register("gate", 1)
    def scaled(self, x: int | None = None) -> int | None:
        raise ValueError(f"{x + 1}: must be {2}")
'''


@pytest.mark.parametrize(
    ("old", "new", "counts"),
    [
        ("Scale by 2", "Scale by 3", False),
        ("dict[str, int]]", "dict[str, 1]]", False),
        ('@register("gate", 1)', '@register("gate", 2)', False),
        ("x: int | None", "x: int & None", False),
        ("-> int | None", "-> int - None", False),
        ("x + 1", "x - 1", False),
        ('"weight": 1}', '"weight": 2}', True),
        ("= None)", "= 1)", True),
        ("raise ValueError", "raise TypeError", True),
    ],
)
def test_a_fault_counts_in_code_alone(old, new, counts):
    assert old in FILE
    assert (mutation.code(FILE.replace(old, new)) != mutation.code(FILE)) == counts


def test_every_mutated_file_has_tests():
    files = mutation.sources()
    assert {file.parts[1] for file in files} == {"blocks", "models", "training"}
    for file in files:
        for call in mutation.tests_of(file):
            paths = [argument for argument in call if argument.startswith("tests/")]
            assert paths
            assert all((mutation.ROOT / path).exists() for path in paths), file
            slots = re.findall(r"(\w+)\.", call[-1]) if "-k" in call else []
            assert set(slots) <= set(PROMISES), file
