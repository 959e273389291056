import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint

from variants.data.module import BatchModule
from variants.slots import data

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    pytest.mark.filterwarnings("ignore:.*treespec, LeafSpec"),
    pytest.mark.filterwarnings("ignore:The dirpath has changed"),
]


class Recorder(LightningModule):
    """Notes what it is fed."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))
        self.seen, self.validated = [], []

    def training_step(self, batch, batch_idx):
        self.seen.append((batch["index"], int(batch["source"].sum())))
        assert batch_idx == batch["index"]
        return self.weight

    def validation_step(self, batch, batch_idx):
        self.validated.append((self.global_step, batch["index"]))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


def run(folder, max_steps, resume=None, **options):
    task = data.build({"name": "copy", "n_train": 30, "n_validation": 10, "batch_size": 4})
    model = Recorder()
    trainer = Trainer(
        accelerator="cpu",
        max_steps=max_steps,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
        num_sanity_val_steps=0,
        callbacks=[ModelCheckpoint(folder, every_n_train_steps=1, save_top_k=-1, filename="{step}")],
        **options,
    )
    trainer.fit(model, datamodule=BatchModule(task, seed=1), ckpt_path=resume, weights_only=True)
    return model


@pytest.mark.parametrize("accumulate", [1, 3])
@pytest.mark.parametrize("stop", [1, 5, 8])
def test_a_resumed_run_sees_what_is_left_and_validates_where_it_would_have(tmp_path, accumulate, stop):
    options = {"accumulate_grad_batches": accumulate, "val_check_interval": 4 * accumulate}
    whole = run(tmp_path / "whole", 12, **options)
    resumed = run(tmp_path / "resumed", 12, tmp_path / "whole" / f"step={stop}.ckpt", **options)
    assert [k for k, _ in whole.seen] == list(range(12 * accumulate))
    assert resumed.seen == whole.seen[stop * accumulate :]
    assert [v for v in whole.validated if v[0] > stop] == [v for v in resumed.validated if v[0] > stop]


def test_a_finished_run_sees_nothing_more(tmp_path):
    run(tmp_path / "whole", 4)
    assert run(tmp_path / "again", 4, tmp_path / "whole" / "step=4.ckpt").seen == []


def test_a_run_without_a_length_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"trainer.max_steps=-1"):
        run(tmp_path, -1, max_epochs=1)
