"""How a model is trained: one step of Lightning's loop, and what is logged of it."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from functools import partial
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from variants.data.order import address
from variants.slots import Schedule
from variants.training.divergence import Diverged, first_bad
from variants.training.objectives.base import Batch, Objective
from variants.training.optimisers.base import Optimiser
from variants.training.optimisers.groups import parameter_groups, plain_name


class Task(LightningModule):
    """Train a model on an objective.

    The loss of an update is the sum over the targets of all its micro-batches and ranks, divided by their number. That
    is known only after the last of them, so each backward pass divides by a nominal count, and the gradients are
    rescaled before they are clipped. A step is an update; the learning rate is a function of its number alone, and
    dropout one of the seed, the micro-batch's number and the rank.

    Args:
        model: To train.
        objective: What to minimise.
        optimiser: Makes the optimiser of parameter groups.
        schedule: The learning rate of an update, counted from 1.
        seed: Of the dropout.
        nominal: About how many targets a micro-batch of one rank has.
        log_every: Updates between two logged rows.
        bytes_per_target: Of the validation text; None: there is none.
        facts: Plain values that checkpoints carry along: the config, what the model was told by its data.
    """

    model: nn.Module

    def __init__(
        self,
        model: nn.Module,
        objective: Objective,
        optimiser: Optimiser,
        schedule: Schedule,
        *,
        seed: int,
        nominal: float = 1.0,
        log_every: int = 10,
        bytes_per_target: float | None = None,
        facts: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.model, self.objective, self.optimiser, self.schedule = model, objective, optimiser, schedule
        self.log_every = log_every
        self.seed, self.nominal, self.bytes_per_target, self.facts = seed, nominal, bytes_per_target, facts or {}
        self.tokens = 0  # targets of all updates so far
        self.skipped = 0  # updates that overflowed under 16-mixed, and were none
        self.stop_requested = False  # on this rank
        self.stopping = False  # on all ranks
        self.latest: dict[str, float] = {}  # what was logged last
        self._row: dict[str, float] = {}
        self._pending: list[Batch] = []  # this update's micro-batches, in case one must be looked into
        self._clock, self._timed_tokens = time.perf_counter(), 0

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """The optimiser; its learning rate is set before each update."""
        return self.optimiser(parameter_groups(self.model, self.optimiser.weight_decay))

    # -- training -----------------------------------------------------------------------------------------------------

    def on_train_start(self) -> None:
        """Start from no sums and no time."""
        self._sums = self._zeros(2)
        self._clock, self._timed_tokens = time.perf_counter(), 0

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """The micro-batch's summed loss over the nominal count."""
        self._seed_dropout(batch)
        loss = self.objective(self.model, batch)
        self._pending.append(batch)
        self._sums += self._pair(loss.nll, loss.count)
        return loss.loss / self.nominal

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Make the gradients those of the mean over the update's targets, and set the learning rate.

        Raises:
            Diverged: The gradients are not finite.
        """
        trainer = self.trainer
        step = trainer.global_step + 1 - self.skipped
        nll, count, stops = self._total(torch.cat([self._sums, self._sums.new_tensor([self.stop_requested])]))
        gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
        # Lightning has divided by the micro-batches, and data parallelism by the ranks.
        divided = self.nominal * trainer.accumulate_grad_batches * self._place[1]
        for gradient in gradients:
            gradient.mul_(divided / max(count, 1))
        norm = global_norm(gradients)
        learning_rate = self.schedule(step)
        if not math.isfinite(norm):
            if getattr(trainer.precision_plugin, "scaler", None) is None or not math.isfinite(nll):
                raise Diverged(trainer.global_step + 1, self._culprit())
            self.skipped += 1  # the scaler skips this update
        for group in optimizer.param_groups:
            group["lr"] = learning_rate
        self.stopping = stops > 0
        self.tokens += round(count)
        self._norm = norm
        self._row = {"train/loss": nll / count} if count else {}
        self._row |= {"lr": learning_rate, "grad_norm": norm}
        if self.skipped:
            self._row["skipped_updates"] = self.skipped
        self._sums = self._zeros(2)
        self._pending.clear()

    def configure_gradient_clipping(
        self,
        optimizer: torch.optim.Optimizer,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Clip by the norm of all gradients together, shards included, which is known already."""
        if gradient_clip_val is None:
            return
        if gradient_clip_algorithm == "value":
            self.clip_gradients(optimizer, gradient_clip_val, "value")
            return
        factor = gradient_clip_val / (self._norm + 1e-6)
        if factor < 1:
            for parameter in self.model.parameters():
                if parameter.grad is not None:
                    parameter.grad.mul_(factor)

    def on_train_batch_end(self, outputs: Any, batch: Batch, batch_idx: int) -> None:
        """Log an update that is due."""
        trainer = self.trainer
        step = trainer.global_step
        if not self._row:
            return
        if step == 1 or step % self.log_every == 0 or step == trainer.max_steps:
            now = time.perf_counter()
            self._row["tokens_per_second"] = (self.tokens - self._timed_tokens) / (now - self._clock)
            self._clock, self._timed_tokens = now, self.tokens
            self.write(self._row)
        self._row = {}
        if step == trainer.max_steps:
            trainer.should_stop = True  # so that Lightning validates once more, wherever its interval stands

    # -- validation ---------------------------------------------------------------------------------------------------

    def on_validation_epoch_start(self) -> None:
        """Start from no sums."""
        self._began = time.perf_counter()
        self._validated = self._zeros(3)

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        """Add a batch to the sums."""
        loss = self.objective(self.model, batch)
        assert loss.correct is not None, "gradients are off in validation"
        self._validated += torch.cat([self._pair(loss.nll, loss.count), loss.correct.to(self._validated).view(1)])

    def on_validation_epoch_end(self) -> None:
        """Log the loss of a target, over all batches and ranks, and what follows from it."""
        nll, count, correct = self._total(self._validated)
        loss = nll / count if count else math.nan
        row = {"val/loss": loss, "val/perplexity": torch.tensor(loss, dtype=torch.float64).exp().item()}
        row["val/accuracy"] = correct / count if count else math.nan
        if self.bytes_per_target:
            row["val/bits_per_byte"] = loss / math.log(2) / self.bytes_per_target
        self.log("val/loss", loss, logger=False)  # for early stopping
        self.write(row)
        self._clock += time.perf_counter() - self._began  # the speed is that of training

    def write(self, row: dict[str, float]) -> None:
        """Give a row of this step to every logger, and keep it for whoever shows it."""
        self.latest = {"step": self.trainer.global_step, "tokens": self.tokens, **row}
        for logger in self.trainer.loggers:
            logger.log_metrics(self.latest, step=self.trainer.global_step)

    # -- checkpoints --------------------------------------------------------------------------------------------------

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Save the model under its own names, and the run's place as a few numbers instead of Lightning's loops."""
        trainer = self.trainer
        checkpoint.pop("loops", None)
        if "state_dict" in checkpoint:
            checkpoint["state_dict"] = {self._own_name(k): v for k, v in checkpoint["state_dict"].items()}
        checkpoint["facts"] = self.facts
        checkpoint["progress"] = {
            "tokens": self.tokens,
            "skipped": self.skipped,
            "stopped_early": trainer.global_step < trainer.max_steps and stopped_early(trainer),
        }

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Take the run's place from the step: a checkpoint is always between two updates."""
        if "state_dict" in checkpoint:
            names = {self._own_name(name): name for name in self.state_dict()}
            checkpoint["state_dict"] = {names.get(k, k): v for k, v in checkpoint["state_dict"].items()}
        progress = checkpoint["progress"]
        self.tokens, self.skipped = progress["tokens"], progress["skipped"]
        trainer, step = self.trainer, checkpoint["global_step"]
        loop = trainer.fit_loop.epoch_loop
        loop.automatic_optimization.optim_progress.optimizer.step.total.ready = step
        loop.automatic_optimization.optim_progress.optimizer.step.total.completed = step
        for stage in ("ready", "started", "processed", "completed"):  # what the validation interval counts
            setattr(loop.batch_progress.total, stage, step * trainer.accumulate_grad_batches)
        if progress["stopped_early"] and trainer.early_stopping_callback is not None:
            trainer.should_stop = True

    @staticmethod
    def _own_name(name: str) -> str:
        return plain_name(name).removeprefix("model.")

    # -- helpers ------------------------------------------------------------------------------------------------------

    @property
    def _place(self) -> tuple[int, int]:
        """The rank among those with different data, and their number."""
        kwargs = getattr(self.trainer.strategy, "distributed_sampler_kwargs", None)
        return (kwargs["rank"], kwargs["num_replicas"]) if kwargs else (0, 1)

    def _seed_dropout(self, batch: Batch) -> None:
        torch.manual_seed(address("dropout", self.seed, batch["index"], self._place[0]))

    def _zeros(self, n: int) -> Tensor:
        return torch.zeros(n, dtype=torch.float32 if self.device.type == "mps" else torch.float64, device=self.device)

    def _pair(self, nll: Tensor, count: Tensor) -> Tensor:
        return torch.stack([nll.detach().to(self._zeros(0).dtype), count.to(self._zeros(0).dtype)])

    def _total(self, sums: Tensor) -> list[float]:
        """The sums over all ranks with different data; those of a tensor-parallel group have the same."""
        total = self.trainer.strategy.reduce(sums, reduce_op="sum")
        assert isinstance(total, Tensor)
        numbers: list[float] = (total * (self._place[1] / self.trainer.world_size)).tolist()
        return numbers

    def _culprit(self) -> str:
        """The first tensor that is not finite, found by running this update's micro-batches once more."""
        for batch in self._pending:
            self._seed_dropout(batch)
            with torch.no_grad(), self.trainer.precision_plugin.train_step_context():
                if bad := first_bad(self.model, partial(self.objective, self.model, batch)):
                    return bad
        named = reversed(list(self.model.named_parameters()))  # the backward pass goes from the last to the first
        bad_gradients = [n for n, p in named if p.grad is not None and not bool(p.grad.isfinite().all())]
        return f"the gradient of {plain_name(bad_gradients[0])}" if bad_gradients else "the norm of all gradients"


def stopped_early(trainer: Trainer) -> bool:
    """Whether early stopping has ended the training."""
    callback = trainer.early_stopping_callback
    return callback is not None and trainer.should_stop and callback.stopping_reason_message is not None


def global_norm(gradients: Iterable[Tensor]) -> float:
    """The norm of all gradients together, shards included, in float32 at least."""
    squares = [_whole(g).to(torch.promote_types(g.dtype, torch.float32)).square().sum() for g in gradients]
    return float(torch.stack(squares).sum().sqrt()) if squares else 0.0


def _whole(gradient: Tensor) -> Tensor:
    return gradient.full_tensor() if isinstance(gradient, DTensor) else gradient
