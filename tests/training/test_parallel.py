import os
import subprocess
import sys

import pytest
import torch
from training_runs import TINY, tiny

from variants.components import import_component
from variants.training.checkpoints import read_checkpoint
from variants.training.metrics import read_metrics
from variants.training.run import train

# A large epsilon: gradients that are 0 but for rounding (a key's bias) would else be blown up to steps of their own.
STILL = ("model.dropout=0.0", "trainer.max_steps=4", "trainer.gradient_clip_val=0.1", "optimiser.eps=1e-3")
STILL += ("data.n_validation=9",)  # so that the second of two ranks has no row of the last batch
HOLES = '''
from lightning.pytorch import Callback

from variants.slots import callbacks


@callbacks.register("holes")
class Holes(Callback):
    """Take all targets of a micro-batch from the second of two ranks."""

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        if batch["index"] == 3 and trainer.world_size == 1:
            batch["targets"][1::2] = -100
        elif batch["index"] == 3 and trainer.global_rank == 1:
            batch["targets"][:] = -100
'''


@pytest.mark.slow
def test_two_processes_train_as_one_does(tmp_path):
    holes = tmp_path / "holes.py"
    holes.write_text(HOLES)
    import_component(str(holes))
    still = [*STILL, "trainer.callbacks=[holes]"]
    train(tiny(tmp_path / "one", *still), notify=str)
    two = [*TINY, *still, "trainer.devices=2", "trainer.strategy=ddp", "--import", str(holes)]
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
        for name in ("tokens", "train/loss", "grad_norm", "val/loss"):  # validated on 9 pairs: a short last batch
            assert (name in other) == (name in one)
            assert other.get(name, 0) == pytest.approx(one.get(name, 0), rel=1e-5), name
    assert done.stdout.count("step 4/4") == 1  # one process speaks
