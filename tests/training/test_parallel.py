import os
import subprocess
import sys

import pytest
import torch
from training_runs import TINY, tiny

from variants.training.checkpoints import read_checkpoint
from variants.training.metrics import read_metrics
from variants.training.run import train

# A large epsilon: gradients that are 0 but for rounding (a key's bias) would else be blown up to steps of their own.
STILL = ("model.dropout=0.0", "trainer.max_steps=4", "trainer.gradient_clip_val=0.1", "optimiser.eps=1e-3")


@pytest.mark.slow
def test_two_processes_train_as_one_does(tmp_path):
    train(tiny(tmp_path / "one", *STILL), notify=str)
    two = [*TINY, *STILL, "trainer.devices=2", "trainer.strategy=ddp"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1"}
    command = [sys.executable, "-m", "variants", "train", *two, "--folder", str(tmp_path / "two")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr
    saved = [read_checkpoint(tmp_path / name / "checkpoints" / "last.ckpt") for name in ("one", "two")]
    assert saved[0]["state_dict"].keys() == saved[1]["state_dict"].keys()
    for name, value in saved[0]["state_dict"].items():
        torch.testing.assert_close(saved[1]["state_dict"][name], value, rtol=0, atol=1e-6)
    rows = [read_metrics(tmp_path / name / "metrics.csv") for name in ("one", "two")]
    assert [row["step"] for row in rows[1]] == [1, 2, 3, 4]
    for one, other in zip(*rows, strict=True):
        for name in ("tokens", "train/loss", "grad_norm", "val/loss"):  # validated on 10 pairs: a short last batch
            assert (name in other) == (name in one)
            assert other.get(name, 0) == pytest.approx(one.get(name, 0), rel=1e-5), name
    assert done.stdout.count("step 4/4") == 1  # one process speaks
