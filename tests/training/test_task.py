import copy
import math

import pytest
import torch
from lightning.pytorch import Callback
from lightning.pytorch.plugins.precision import MixedPrecision
from training_runs import fitted, tiny

from variants.blocks.heads.base import IGNORED
from variants.data.sequences import Sequences
from variants.errors import ConfigError
from variants.slots import callbacks, objectives
from variants.training.checkpoints import SafeCheckpointIO
from variants.training.objectives.base import with_losses
from variants.training.run import train
from variants.training.task import Task, global_norm

STILL = ("model.dropout=0.0", "trainer.max_steps=3", "trainer.val_check_interval=100")


def weights(task):
    return {name: p.detach().clone() for name, p in task.model.named_parameters()}


def largest_difference(one, other):
    return max((one[name] - other[name]).abs().max().item() for name in one)


class Gradients:
    """Keeps what the gradients are before they are clipped, and after."""

    def __init__(self, monkeypatch):
        self.before, self.after, self.norms, self.rates = [], [], [], []
        clip = Task.configure_gradient_clipping

        def keeping(task, optimizer, gradient_clip_val=None, gradient_clip_algorithm=None):
            self.before.append(self._of(task))
            clip(task, optimizer, gradient_clip_val, gradient_clip_algorithm)
            self.after.append(self._of(task))
            self.norms.append(task._norm)
            self.rates.append([group["lr"] for group in optimizer.param_groups])

        monkeypatch.setattr(Task, "configure_gradient_clipping", keeping)

    @staticmethod
    def _of(task):
        return {name: p.grad.clone() for name, p in task.model.named_parameters()}


def test_micro_batches_of_ragged_counts_train_as_one_batch_does(tmp_path):
    runs = [
        fitted(tmp_path, *STILL, f"data.batch_size={8 // n}", f"trainer.accumulate_grad_batches={n}") for n in (1, 2, 4)
    ]
    assert runs[0].tokens == runs[1].tokens == runs[2].tokens
    for run in runs[1:]:
        assert largest_difference(weights(run), weights(runs[0])) < 1e-12


def test_the_gradient_is_that_of_the_mean_over_the_steps_targets(tmp_path, monkeypatch):
    kept = Gradients(monkeypatch)
    start, rows = [], []
    keep = lambda task: start.append(copy.deepcopy(task.model))  # noqa: E731
    write = Task.write
    monkeypatch.setattr(Task, "write", lambda task, row: (rows.append(dict(row)), write(task, row)))
    task = fitted(tmp_path, *STILL, "trainer.gradient_clip_val=0.01", prepare=keep)
    model, loader = start[0], task.trainer.datamodule
    losses = [task.objective(model, loader.data.train.batch(_rows(loader, k))) for k in (0, 1)]
    (sum(loss.loss for loss in losses) / sum(int(loss.count) for loss in losses)).backward()
    expected = {name: p.grad for name, p in model.named_parameters()}
    assert losses[0].count != losses[1].count
    assert largest_difference(kept.before[0], expected) < 1e-12
    norm = math.sqrt(sum(float(g.square().sum()) for g in expected.values()))
    assert kept.norms[0] == pytest.approx(norm)
    nll, count = (sum(float(getattr(loss, name)) for loss in losses) for name in ("nll", "count"))
    logged = next(row for row in rows if "train/loss" in row)
    assert logged["train/loss"] == pytest.approx(nll / count)
    assert logged["grad_norm"] == pytest.approx(norm)
    clipped = global_norm(kept.after[0].values())
    assert clipped == pytest.approx(0.01, rel=1e-4)


def test_the_norm_is_that_of_all_gradients_in_float32_at_least_and_of_none_it_is_zero():
    assert global_norm([torch.tensor([300.0, 0.0]).half(), torch.tensor([[400.0]]).half()]) == 500  # squares overflow
    assert global_norm([]) == 0


def _rows(module, k):
    from variants.data.order import indices

    return indices(module.seed, k, len(module.data.train), module.data.batch_size).tolist()


def test_a_step_without_a_target_has_no_gradient_and_no_nan(tmp_path, monkeypatch):
    kept = Gradients(monkeypatch)
    batch = Sequences.batch
    calls = []

    def empty_at_first(self, indices):
        calls.append(indices)
        made = batch(self, indices)
        return {**made, "targets": torch.full_like(made["targets"], IGNORED)} if len(calls) <= 2 else made

    monkeypatch.setattr(Sequences, "batch", empty_at_first)
    task = fitted(tmp_path, *STILL)
    assert all(not gradient.any() for gradient in kept.before[0].values())
    assert all(gradient.isfinite().all() for gradient in kept.before[1].values())
    assert any(gradient.any() for gradient in kept.before[1].values())
    assert all(p.isfinite().all() for p in task.model.parameters())


@pytest.mark.parametrize("schedule", ["cosine", "noam"])
def test_each_update_has_the_schedules_next_value(tmp_path, monkeypatch, schedule):
    kept = Gradients(monkeypatch)
    task = fitted(tmp_path, *STILL, f"schedule={schedule}", "schedule.warmup=4", "trainer.max_steps=8")
    assert kept.rates == [[task.schedule(step)] * 2 for step in range(1, 9)]
    assert len({rate for rate, _ in kept.rates}) == 8
    assert max(kept.rates) == kept.rates[3]
    if schedule == "cosine":  # it reaches its floor with the last update, however many micro-batches one takes
        assert kept.rates[-1][0] == pytest.approx(0.1 * kept.rates[3][0])


def test_validation_leaves_the_training_as_it_is(tmp_path):
    often = fitted(tmp_path, "trainer.max_steps=3", "trainer.val_check_interval=1")
    never = fitted(tmp_path, "trainer.max_steps=3", "trainer.limit_val_batches=0")
    assert largest_difference(weights(often), weights(never)) == 0


def test_dropout_differs_between_micro_batches_and_not_between_runs(tmp_path):
    one, other = (fitted(tmp_path, "trainer.max_steps=1", "model.dropout=0.5") for _ in range(2))
    assert largest_difference(weights(one), weights(other)) == 0
    batch = one.trainer.datamodule.data.train.batch([0, 1])
    losses = []
    for index in (0, 0, 1):
        one.train()
        losses.append(one.training_step({**batch, "index": index}, 0).item())
    assert losses[0] == losses[1] != losses[2]


def test_the_validation_loss_is_that_of_all_targets_whatever_the_batches(tmp_path):
    tell = lambda task: setattr(task, "bytes_per_target", 2.5)  # noqa: E731
    task = fitted(tmp_path, *STILL, "objective=seq2seq", "objective.label_smoothing=0.3", prepare=tell)
    shown = task.trainer.callback_metrics["val/loss"].item()
    task.eval()
    split = task.trainer.datamodule.data.validation
    with torch.no_grad():
        whole = task.objective(task.model, split.batch(range(len(split))))
    assert len(split) % 4  # so that the last batch is short
    assert shown == pytest.approx((whole.nll / whole.count).item(), rel=1e-6)
    assert task.latest["val/loss"] == pytest.approx(shown, rel=1e-6)
    assert task.latest["val/perplexity"] == pytest.approx(math.exp(shown))
    assert task.latest["val/accuracy"] == pytest.approx(whole.correct.item() / whole.count.item())
    assert task.latest["val/bits_per_byte"] == pytest.approx(shown / math.log(2) / 2.5)
    assert abs(whole.loss.item() / whole.nll.item() - 1) > 1e-3  # the smoothed loss is another number


def test_what_parts_add_counts_once_a_target():
    loss = objectives.build("causal_lm")  # any; what matters is the sum
    assert loss.label_smoothing == 0
    from variants.blocks.heads.base import Loss

    summed = with_losses(Loss(torch.tensor(6.0), torch.tensor(5.0), torch.tensor(3)), {"balance": torch.tensor(0.5)})
    assert (summed.loss.item(), summed.nll.item()) == (7.5, 5.0)


# -- numbers that are not finite ------------------------------------------------------------------------------


@callbacks.register("poison")
class Poison(Callback):
    """Make a number bad before a step."""

    def __init__(self, *, step: int = 3, what: str = "output") -> None:
        self.step, self.what = step, what

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        layer = pl_module.model.decoder.layers[0]
        if batch["index"] == 2 * (self.step - 1) + 1:  # the second micro-batch of that step
            if self.what == "output":
                layer.feedforward.register_forward_hook(lambda module, args, output: output * math.nan)
            elif self.what == "parameter":
                layer.feedforward.down.weight.data[0, 0] = math.inf
            else:
                layer.feedforward.down.weight.register_hook(lambda gradient: gradient * math.inf)


@pytest.mark.parametrize(
    ("what", "tensor"),
    [
        ("output", "the output of decoder.layers.0.feedforward"),
        ("parameter", "the parameter decoder.layers.0.feedforward.down.weight"),
        ("gradient", "the gradient of decoder.layers.0.feedforward.down.weight"),
    ],
)
def test_a_run_that_diverges_stops_and_names_the_step_and_the_tensor(tmp_path, what, tensor):
    config = tiny(tmp_path / "run", f"trainer.callbacks=[{{name: poison, what: {what}}}]")
    lines = []
    result = train(config, notify=lines.append)
    assert result.status == "diverged"
    assert result.message == f"diverged at step 3: {tensor} is not finite"
    assert result.message in lines
    assert result.metrics["step"] == 2


def test_an_update_that_overflows_under_16_mixed_is_none(tmp_path, monkeypatch):
    kept = Gradients(monkeypatch)
    snapshots, rows = [], []
    write = Task.write
    monkeypatch.setattr(Task, "write", lambda task, row: (rows.append(dict(row)), write(task, row)))

    class Overflow(Callback):
        def on_after_backward(self, trainer, pl_module):
            if trainer.global_step == 0:
                next(pl_module.model.parameters()).grad.fill_(math.inf)

        def on_train_batch_end(self, trainer, pl_module, *_):
            snapshots.append(weights(pl_module))

    scaler = torch.amp.GradScaler("cpu")
    plugins = [MixedPrecision("16-mixed", "cpu", scaler), SafeCheckpointIO()]
    callbacks.register("overflow")(Overflow)
    task = fitted(
        tmp_path,
        *STILL,
        "trainer.accumulate_grad_batches=1",
        "trainer.callbacks=[overflow]",
        "trainer.gradient_clip_val=0.01",
        prepare=lambda task: (snapshots.append(weights(task.float())),),
        plugins=plugins,
        precision=None,
    )
    assert task.skipped == 1
    assert largest_difference(snapshots[0], snapshots[1]) == 0  # the update that overflowed
    assert largest_difference(snapshots[1], snapshots[2]) > 0
    assert [rates[0] for rates in kept.rates] == [task.schedule(1), task.schedule(1), task.schedule(2)]
    assert 0.1 < kept.norms[1] < 100  # of the gradients as they are, without the scale
    assert [global_norm(after.values()) for after in kept.after[1:]] == pytest.approx([0.01] * 2, rel=1e-3)
    assert [row["skipped_updates"] for row in rows if "grad_norm" in row] == [1, 1, 1]
    saved = {"global_step": 3}
    task.on_save_checkpoint(saved)
    task.skipped = 0
    task.on_load_checkpoint(saved)
    assert task.skipped == 1  # else a resumed run would leave out a value of the schedule


# -- precision ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("precision", ["16-mixed", "16-true", "64-true", "fp8"])
def test_a_precision_that_the_device_does_not_have_is_refused(tmp_path, precision):
    with pytest.raises(ConfigError, match="trainer.precision"):
        train(tiny(tmp_path / "run", f"trainer.precision={precision}"))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("precision", ["bf16-mixed", "bf16-true"])
def test_a_run_in_bfloat16_stays_finite(tmp_path, precision):
    result = train(tiny(tmp_path / "run", f"trainer.precision={precision}", "trainer.max_steps=2"), notify=str)
    assert result.status == "finished"
    assert math.isfinite(result.metrics["val/loss"])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_compilation_changes_no_name(tmp_path):
    from variants.relations import related
    from variants.training.run import task_of

    names = [
        list(task_of(config, *related(config)[:2]).state_dict())
        for config in (tiny(tmp_path), tiny(tmp_path, "trainer.compile=true"))
    ]
    assert names[0] == names[1]
