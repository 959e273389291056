"""The data as Lightning takes it."""

from __future__ import annotations

from lightning.pytorch import LightningDataModule, Trainer

from variants.data.base import Data, Notify, silent
from variants.data.loader import Batches, Loader, Pass, Span


class BatchModule(LightningDataModule):
    """Feed a run the batches that its step and its seed say, in one epoch that lasts the whole run.

    Training begins at micro-batch ``global_step * accumulate_grad_batches``, so that a run that resumes continues
    exactly, provided that its checkpoints are written between two updates. The trainer needs ``max_steps``, and
    ``use_distributed_sampler=False``, since every rank takes its own stripe here.

    Args:
        data: What to train on.
        seed: Of the order.
        num_workers: Processes that fetch batches, for each of the two splits.
        notify: Hears about preparations that take long.

    Raises:
        ValueError: On use: the trainer has no ``max_steps``, or the batch is no multiple of the ranks.
    """

    def __init__(self, data: Data, *, seed: int, num_workers: int = 0, notify: Notify = silent) -> None:
        super().__init__()
        self.data, self.seed, self.num_workers, self.notify = data, seed, num_workers, notify

    def prepare_data(self) -> None:
        """Prepare on one process a machine, which has the progress to tell."""
        self.data.prepare(self.notify)

    def setup(self, stage: str) -> None:
        """Prepare on every process, from the cache."""
        self.data.prepare()

    def train_dataloader(self) -> Loader:
        """The rank's training batches, from the trainer's step to its last one."""
        trainer = self._trainer
        if trainer.max_steps < 1:
            raise ValueError(f"trainer.max_steps={trainer.max_steps}: must be at least 1, the length of a run")
        batches = Batches(self.data.train, self.seed, self.data.batch_size, *self._place)
        micro_batches = trainer.accumulate_grad_batches
        span = Span(trainer.global_step * micro_batches, trainer.max_steps * micro_batches)
        return Loader(batches, span, self.num_workers)

    def val_dataloader(self) -> Loader:
        """The rank's validation batches, always in the same order."""
        return Loader(Pass(self.data.validation, self.data.batch_size, *self._place), num_workers=self.num_workers)

    @property
    def _trainer(self) -> Trainer:
        assert isinstance(self.trainer, Trainer), "the module is asked for batches outside a run"
        return self.trainer

    @property
    def _place(self) -> tuple[int, int]:
        """This process among the data-parallel ranks, which a tensor-parallel group shares."""
        place = getattr(self._trainer.strategy, "distributed_sampler_kwargs", None) or {"rank": 0, "num_replicas": 1}
        return place["rank"], place["num_replicas"]
