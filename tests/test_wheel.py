"""The wheel, installed elsewhere, lists, explains and trains from any folder."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TINY = ["model.d_model=16", "model.n_layers=1", "model.n_heads=2", "data.length=32", "data.vocab=512", "tracker=csv"]


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder that holds the unpacked wheel alone."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    site = folder / "site"
    zipfile.ZipFile(wheel).extractall(site)
    return site


@pytest.mark.slow
def test_the_wheel_lists_explains_and_trains_from_any_folder(installed, tmp_path):
    # -P and no editable install in front: what runs is what the wheel holds
    start = f"import sys; sys.path.insert(0, {str(installed)!r}); import variants; from variants.cli import main; "

    def run(*arguments):
        script = start + f"assert variants.__file__.startswith({str(installed)!r}); sys.exit(main({list(arguments)!r}))"
        done = subprocess.run(
            [sys.executable, "-P", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "swiglu" in run("list", "feedforward")
    assert "parameters: 124,439,808 total" in run("explain", "model=gpt2")
    run("train", *TINY, "trainer.max_steps=2")
    assert list(tmp_path.glob("runs/*/metrics.csv"))


@pytest.mark.slow
def test_the_wheel_carries_presets_data_and_licences(installed):
    names = {str(path.relative_to(installed)) for path in installed.rglob("*") if path.is_file()}
    assert "variants/conf/model/llama_tiny.yaml" in names
    assert "variants/data/sets/bible_en/text.txt.gz" in names
    assert "variants/data/sets/bible_en/LICENSE" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
