"""What the README shows is true: its table of slots, its component of one's own, its blocks elsewhere."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def code(language, containing):
    """The block of code that has these words."""
    return next(b for b in re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL) if containing in b)


def test_the_table_of_slots_is_what_the_tool_prints():
    command = [sys.executable, "-m", "variants", "list", "--markdown"]  # alone: other tests register their own
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    table = README.partition("-->\n")[2].partition("<!-- end of slots")[0].strip()
    assert table == printed.strip(), "make it again: variants list --markdown"


@pytest.mark.slow
def test_a_component_of_ones_own_is_listed_explained_checked_and_trained(tmp_path):
    example = code("python", "# my_norm.py")
    assert len([line for line in example.splitlines() if line.strip()]) < 25
    (tmp_path / "my_norm.py").write_text(example)
    tiny = ["model.d_model=16", "model.n_layers=1", "model.n_heads=2", "data.length=32", "data.vocab=300"]
    own = ["--import", "my_norm.py"]
    chosen = ["model.norm=clipnorm", "model.norm.most=4"]

    def run(*arguments):
        return subprocess.run(
            [sys.executable, "-m", "variants", *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
        )

    assert "most: a number; default 8.0" in run("list", "norm", *own).stdout
    assert "clipnorm" in run("explain", *own, *tiny, *chosen).stdout
    assert (
        "model.norm.mots: no field of norm clipnorm"
        in run("explain", *own, "model.norm=clipnorm", "model.norm.mots=4").stderr
    )
    checked = run("check", "norm.clipnorm", *own)
    assert checked.returncode == 0, checked.stdout
    (tmp_path / "text.txt").write_text("".join(f"line {i} of a text that says little\n" for i in range(2000)))
    text = ["data=text", "data.path=text.txt"]
    trained = run("train", *own, *text, *tiny, *chosen, "trainer.max_steps=3", "tracker=csv", "--folder", "run")
    assert trained.returncode == 0, trained.stderr
    assert (tmp_path / "run" / "metrics.csv").exists()


def test_the_blocks_work_by_themselves():
    exec(code("python", "GatedFeedForward"), {})


@pytest.mark.slow
def test_a_block_needs_torch_and_jaxtyping_alone():
    script = (
        "import sys\nfrom variants.blocks.feedforwards import GatedFeedForward\n"
        "heavy = {'lightning', 'omegaconf', 'wandb', 'sentencepiece', 'matplotlib', 'rich'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
