"""Components from outside: found in an installed package, with no flag and no edit."""

import os
import subprocess
import sys

import pytest

MODULE = """
from torch import nn
from variants.slots import norms


@norms.register("outside")
class Outside(nn.Module):
    '''Come from another package.'''

    def __init__(self, width: int, *, gain: float = 2.0) -> None:
        super().__init__()
        self.gain = gain

    def forward(self, x):
        return x * self.gain
"""


@pytest.fixture
def elsewhere(tmp_path):
    """A folder on the path with an installed package that offers a component; runs the command line with it."""
    (tmp_path / "outside_norms.py").write_text(MODULE)
    about = tmp_path / "outside_norms-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: outside-norms\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[variants.components]\nouter = outside_norms\n")

    def run(*arguments):
        command = [sys.executable, "-m", "variants", *arguments]
        environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
        return subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)

    run.folder = tmp_path
    return run


@pytest.mark.slow
def test_a_component_of_an_installed_package_is_listed_typed_and_built(elsewhere):
    assert "gain: a number; default 2.0" in elsewhere("list", "norm").stdout
    explained = elsewhere("explain", "model.norm=outside", "model.norm.gain=3")
    assert "model.norm: rmsnorm -> outside" in explained.stdout
    assert "no field of norm outside 'gian'" in elsewhere("explain", "model.norm={name: outside, gian: 3}").stderr


@pytest.mark.slow
def test_a_package_that_cannot_be_imported_is_named_in_one_line(elsewhere):
    (elsewhere.folder / "outside_norms.py").write_text("import nothing_of_that_name\n")
    listed = elsewhere("list", "norm")
    assert listed.returncode == 2
    assert listed.stderr.count("\n") == 1
    assert "outer" in listed.stderr
    assert "nothing_of_that_name" in listed.stderr
