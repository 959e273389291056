"""The house's rules: who imports whom, how long a file is, and what a choice says about itself."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import variants
from variants.registry import SLOTS
from variants.testing import PROMISES

ROOT = Path(variants.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
SOURCED = (
    ("mixer", ()),
    ("cross", ()),
    ("kernel", ("auto", "sdpa")),  # ours, and torch's dispatcher
    ("position", ()),
    ("norm", ("identity",)),
    ("residual", ()),
    ("feedforward", ()),
    ("initialiser", ()),
    ("optimiser", ()),
    ("schedule", ("constant", "linear", "step")),
)
LONGEST = 300  # lines; beyond it a file says in its first paragraphs why it is long


def imports_of(file):
    """The packages that a file imports from outside, wherever in the file."""
    names = set()
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names.add(node.module.partition(".")[0])
    return names


def loaded_by(statement):
    """The packages that are loaded after a statement in a fresh interpreter."""
    code = f"{statement}\nimport sys\nprint('packages:', *sorted({{name.partition('.')[0] for name in sys.modules}}))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    return set(run.stdout.rpartition("packages:")[2].split())


def test_imports_run_one_way():
    linter = Path(sys.executable).with_name("lint-imports")
    run = subprocess.run([linter, "--no-cache"], cwd=ROOT.parent, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stdout


def test_blocks_and_models_load_torch_and_jaxtyping_alone():
    loaded = loaded_by("import variants.blocks.feedforwards, variants.models")
    assert {"torch", "jaxtyping"} <= loaded
    assert not loaded & {
        "lightning",
        "omegaconf",
        "wandb",
        "sentencepiece",
        "torchmetrics",
        "matplotlib",
        "rich",
        "yaml",
    }


@pytest.mark.parametrize(
    ("package", "allowed"),
    [
        ("omegaconf", ("config.py",)),
        ("wandb", ("training/",)),
        ("lightning", ("training/", "data/", "options.py")),  # which asks it for its arguments' names
    ],
)
def test_heavy_packages_are_imported_where_they_belong(package, allowed):
    users = [str(file.relative_to(ROOT)) for file in FILES if package in imports_of(file)]
    assert all(user.startswith(allowed) for user in users), users


def test_only_one_file_imports_wandb():
    assert len([file for file in FILES if "wandb" in imports_of(file)]) <= 1


def test_listing_all_slots_loads_nothing_heavier_than_torch():
    loaded = loaded_by("from variants.cli import main\nassert main(['list', '--markdown']) == 0")
    assert "torch" in loaded
    assert not loaded & {"lightning", "omegaconf", "wandb", "sentencepiece", "torchmetrics", "matplotlib", "scipy"}


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_file_is_short_or_says_why_it_is_not(file):
    text = file.read_text("utf-8")
    head = ast.get_docstring(ast.parse(text)) or ""
    assert len(text.splitlines()) <= LONGEST or "one file" in head.lower(), f"{len(text.splitlines())} lines"


@pytest.mark.parametrize("slot", PROMISES)
def test_every_choice_of_ours_describes_itself_in_a_line(slot):
    for choice in SLOTS[slot].choices.values():
        assert choice.summary.endswith((".", ":", "``.")), f"{slot} {choice.name}: {choice.summary!r}"
        assert len(choice.summary) <= 200, f"{slot} {choice.name}: {choice.summary!r}"


@pytest.mark.parametrize(("slot", "without"), SOURCED)
def test_every_choice_of_ours_has_its_source(slot, without):
    for choice in SLOTS[slot].choices.values():
        assert choice.name in without or choice.source, f"{slot} {choice.name} says no Source"


def test_every_offer_of_a_test_is_known_to_some_choice():
    """What the kit offers is what constructors ask for; a misspelt offer would never reach anything."""
    from variants.registry import fields_of
    from variants.testing.examples import offers

    asked = {
        name
        for slot in PROMISES
        for choice in SLOTS[slot].choices.values()
        for name, field in fields_of(choice.build).items()
        if not field.configurable
    }
    known = {"norm_eps", "bias", "dropout", "assembly", "attention_dropout", "feedforward_dropout", "source"}
    assert asked - known <= set(offers())
