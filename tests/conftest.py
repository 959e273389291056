"""Types and shapes are checked where tensors are; one thread a worker, so that workers do not crowd each other."""

import os
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("WANDB_MODE", "offline")

from jaxtyping import install_import_hook

# Where there are no shapes, mypy says as much, and checking every call doubles the time of the suite.
TENSORS = ("blocks", "data", "generation", "interop", "models", "testing", "training")
install_import_hook([f"variants.{package}" for package in TENSORS], "typecheck.checked")

import pytest
import torch
from exporting import unchecked

torch.set_num_threads(1)

# Doctests are collected from every file, but what tests share is no test, and would be imported twice.
HERE = Path(__file__).parent
collect_ignore = [str(p.relative_to(HERE)) for p in HERE.rglob("*.py") if not p.name.startswith(("test_", "conftest"))]


@pytest.fixture
def quick():
    """Without the checks of types and shapes, for tests of much that quicker tests run with them."""
    with unchecked():
        yield


@pytest.fixture(autouse=True)
def seeded():
    """Every test draws from the same start, whatever ran before it."""
    torch.manual_seed(0)
