"""Types and shapes are checked while the tests run; one thread a worker, so that workers do not crowd each other."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("WANDB_MODE", "offline")

from jaxtyping import install_import_hook

install_import_hook("variants", "typecheck.checked")

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def seeded():
    """Every test draws from the same start, whatever ran before it."""
    torch.manual_seed(0)
