"""Recomputed layers, random streams, empty micro-batches, decay and saved weights."""

import math
import os
import subprocess
import sys
from unittest.mock import MagicMock

import pytest
import torch
from generating import LAYOUTS, small
from lightning.pytorch import Callback, LightningModule, Trainer
from training_runs import TINY, fitted, tiny

from variants import slots
from variants.blocks.heads.base import IGNORED
from variants.blocks.kernels.base import Needs
from variants.data.sequences import Sequences
from variants.generation import Sampling, decode
from variants.models import Stack, stack
from variants.relations import related
from variants.slots import callbacks, kernels, objectives, optimisers
from variants.training.checkpoints import Checkpoints, read_checkpoint
from variants.training.folder import Folder
from variants.training.metrics import read_metrics
from variants.training.optimisers.groups import parameter_groups
from variants.training.run import task_of, train
from variants.training.task import Task

DROPPING = [k for k in kernels.choices if kernels.build(k).refuses(Needs(dropout=0.5)) is None]
every_layout = pytest.mark.parametrize("layout", slots.layouts.choices)


def step(model, *, every, autocast=False, looks_away=False):
    """The loss and all gradients of a step, and the random state after it."""
    for module in model.modules():
        if isinstance(module, Stack):
            module.checkpoint_every = every
    model.train()
    model.zero_grad()
    ids = torch.randint(4, 20, (2, 6), generator=torch.Generator().manual_seed(1))
    inputs = (ids, ids) if hasattr(model, "encode") else (ids,)
    torch.manual_seed(3)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        hidden, _ = model.hidden(*inputs)
        if looks_away:
            with torch.no_grad():
                model.eval().hidden(*inputs)
            model.train()
    loss = hidden.float().square().mean()
    loss.backward()
    found = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    return {"loss": loss.detach(), **found, "state": torch.get_rng_state()}


def assert_equal(one, other):
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert torch.equal(other[name], value), name


@pytest.mark.parametrize("kernel", DROPPING)
@every_layout
def test_a_recomputed_layer_drops_what_it_dropped_before_to_the_bit(layout, kernel):
    """TRAIN-01."""
    model = small(layout, kernel=kernel, dropout=0.5)
    assert_equal(step(model, every=1), step(model, every=0))
    assert_equal(step(model, every=2), step(model, every=0))


def test_without_the_random_state_a_recomputed_layer_would_drop_something_else(monkeypatch):
    """TRAIN-01: that the test before can fail."""
    careless = stack.checkpoint
    monkeypatch.setattr(stack, "checkpoint", lambda *a, **k: careless(*a, **{**k, "preserve_rng_state": False}))
    model = small(dropout=0.5)
    with pytest.raises(AssertionError):
        assert_equal(step(model, every=1), step(model, every=0))


@pytest.mark.parametrize("sharing", slots.sharings.choices)
@every_layout
def test_layers_are_recomputed_on_frozen_inputs_when_shared_and_under_autocast(layout, sharing):
    """TRAIN-03."""
    model = small(layout, sharing=sharing, dropout=0.1)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("embedding" not in name)
    plain = step(model, every=0, autocast=True)
    recomputed = step(model, every=1, autocast=True, looks_away=True)
    trainable = {name for name, p in model.named_parameters() if p.requires_grad and "head" not in name}
    assert trainable <= plain.keys()
    assert_equal(recomputed, plain)


@pytest.mark.slow
def test_two_processes_that_recompute_shared_layers_train_as_one_that_does_not(tmp_path):
    """TRAIN-03."""
    still = ("model.sharing=all", "model.n_layers=2", "model.dropout=0.0", "trainer.max_steps=2", "optimiser.eps=1e-3")
    train(tiny(tmp_path / "one", *still), notify=str)
    two = [*TINY, *still, "trainer.devices=2", "trainer.strategy=ddp", "trainer.gradient_checkpointing=full"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1"}
    command = [sys.executable, "-m", "variants", "train", *two, "--folder", str(tmp_path / "two")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr
    one, other = (read_checkpoint(tmp_path / n / "checkpoints" / "last.ckpt")["state_dict"] for n in ("one", "two"))
    for name, value in one.items():
        torch.testing.assert_close(other[name], value, rtol=0, atol=1e-6)
    norms = [[row["grad_norm"] for row in read_metrics(tmp_path / n / "metrics.csv")] for n in ("one", "two")]
    assert norms[1] == pytest.approx(norms[0], rel=1e-4)


# ---------------------------------------------------------------------------------------------------------------------
# Nothing to predict


def test_a_micro_batch_without_a_target_leaves_the_others_as_they_are(tmp_path, monkeypatch):
    """LOSS-02."""
    clip, batch = Task.configure_gradient_clipping, Sequences.batch
    empty, gradients = [], []

    def counting(self, indices):
        made = batch(self, indices)
        return {**made, "targets": torch.full_like(made["targets"], IGNORED)} if empty.pop(0) else made

    def keeping(task, *args, **kwargs):
        gradients.append({name: p.grad.clone() for name, p in task.model.named_parameters()})
        clip(task, *args, **kwargs)

    monkeypatch.setattr(Sequences, "batch", counting)
    monkeypatch.setattr(Task, "configure_gradient_clipping", keeping)
    one = ("model.dropout=0.0", "trainer.max_steps=1", "trainer.val_check_interval=100", "trainer.limit_val_batches=0")
    for n, holes in ((2, [False, True]), (1, [False])):
        empty[:] = holes + [False] * 20
        fitted(tmp_path, *one, f"trainer.accumulate_grad_batches={n}")
    for name, gradient in gradients[1].items():
        torch.testing.assert_close(gradients[0][name], gradient, rtol=1e-9, atol=1e-12)


def test_weights_whose_loss_is_no_number_are_never_the_best(tmp_path):
    """LOSS-02."""
    keeper, kept = Checkpoints(Folder(tmp_path), every=1), []
    for loss in (math.nan, 2.0, 1.0, math.nan, 1.5):
        trainer = MagicMock(spec=Trainer, callback_metrics={"val/loss": torch.tensor(loss)})
        keeper.on_validation_end(trainer, MagicMock(spec=LightningModule))
        kept += [loss] * trainer.save_checkpoint.call_count
    assert kept == [2.0, 1.0]


@pytest.mark.parametrize("kernel", ["auto", "math"])
@pytest.mark.parametrize("name", ["causal_lm", "seq2seq"])
def test_a_batch_with_an_empty_text_trains_and_scores(name, kernel):
    """TOK-02."""
    begun = torch.tensor([[2, 0, 0], [2, 5, 6]])
    targets = torch.tensor([[3, IGNORED, IGNORED], [5, 6, 3]])  # the first is begin and end alone
    batch = {"ids": begun, "targets": targets}
    if name == "seq2seq":
        keep = torch.tensor([[True, False, False], [True, True, True]])
        source = torch.tensor([[0, 0, 0], [5, 6, 3]])
        batch = {"source": source, "source_keep": source > 0, "target": begun, "target_keep": keep, "targets": targets}
    model = small("decoder_only" if name == "causal_lm" else "encoder_decoder", kernel=kernel)
    objective = objectives.build(name)
    loss = objective(model, batch)
    loss.loss.backward()
    assert loss.count == 4
    assert all(p.grad.isfinite().all() for p in model.parameters())
    alone = [objective(model, {field: value[row : row + 1] for field, value in batch.items()}) for row in (0, 1)]
    assert loss.loss.item() == pytest.approx(sum(one.loss.item() for one in alone), rel=1e-5)


# ---------------------------------------------------------------------------------------------------------------------
# Random streams


def test_dropout_is_another_for_every_rank_micro_batch_and_seed_and_none_else(tmp_path, monkeypatch):
    """DIST-03."""
    config = tiny(tmp_path, "model.dropout=0.5")
    data, known, _ = related(config)
    task, losses = task_of(config, data, known).train(), {}
    task.on_train_start()
    for seed in (1, 2):
        for rank in (0, 1):
            monkeypatch.setattr(Task, "_place", (rank, 2))
            for index in (0, 1, 0):
                task.seed = seed
                loss = task.training_step({**data.train.batch([0, 1]), "index": index}, 0).item()
                assert losses.setdefault((seed, rank, index), loss) == loss
    assert len(set(losses.values())) == len(losses) == 8


def test_a_runs_seed_reaches_its_first_weights_its_order_and_its_dropout(tmp_path, monkeypatch):
    """DIST-03."""
    step, seen = Task.training_step, []

    def watched(task, batch, index):
        weights = [p.tolist() for p in task.parameters() if p.ndim > 1]
        loss = step(task, batch, index)
        seen.append((weights, batch["targets"].tolist(), torch.initial_seed()))
        return loss

    monkeypatch.setattr(Task, "training_step", watched)
    short = ("trainer.max_steps=1", "trainer.accumulate_grad_batches=1", "trainer.limit_val_batches=1")
    for number, seed in enumerate((1, 1, 2)):
        train(tiny(tmp_path / str(number), f"seed={seed}", *short), notify=str)
    one, again, other = seen
    assert one == again
    assert all(ours != theirs for ours, theirs in zip(one, other, strict=True))


def test_sampling_while_a_run_validates_leaves_the_training_as_it_is(tmp_path):
    """GEN-11."""

    class Samples(Callback):
        def on_validation_end(self, trainer, pl_module):
            assert decode(pl_module.model, [[5, 6]], max_new=4, sampling=Sampling())

        def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
            self.on_validation_end(trainer, pl_module)  # where nobody would set the mode right again

    callbacks.register("samples")(Samples)
    often = ("model.dropout=0.5", "trainer.max_steps=3", "trainer.val_check_interval=1")
    one, other = (fitted(tmp_path, *often, f"trainer.callbacks=[{c}]").model for c in ("", "samples"))
    assert_equal(one.state_dict(), other.state_dict())


# ---------------------------------------------------------------------------------------------------------------------
# Decay


CHOICES = {
    "norm": slots.norms,
    "position": slots.positions,
    "feedforward": slots.feedforwards,
    "residual": slots.residuals,
    "embedding": slots.embeddings,
    "mixer": slots.mixers,
    "head": slots.heads,
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_trainable_parameter_is_in_one_group_and_tables_and_vectors_do_not_decay(layout):
    """OPT-01."""
    for slot, every in CHOICES.items():
        for choice in every.choices:
            model = small(layout, bias=True, **{slot: choice})
            groups = parameter_groups(model, 0.1)
            grouped = [id(p) for group in groups for p in group["params"]]
            assert sorted(grouped) == sorted(id(p) for p in model.parameters())
            before = {name: p.detach().clone() for name, p in model.named_parameters()}
            for parameter in model.parameters():
                parameter.grad = torch.zeros_like(parameter)
            optimisers.build({"name": "adamw", "lr": 0.1})(groups).step()
            for name, parameter in model.named_parameters():
                kept = parameter.ndim < 2 or ".positions." in name
                torch.testing.assert_close(parameter.detach(), before[name] * (1.0 if kept else 0.99))
            compiled = parameter_groups(torch.compile(model, backend="eager"), 0.1)
            assert [group["names"] for group in compiled] == [group["names"] for group in groups]


# ---------------------------------------------------------------------------------------------------------------------
# Saved weights


@pytest.fixture
def one_process(tmp_path):
    """A process group of this process alone."""
    store = f"file://{tmp_path}/store"
    torch.distributed.init_process_group("gloo", init_method=store, rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


WRAPPED = {
    "plain": lambda model: model,
    "compiled": lambda model: torch.compile(model, backend="eager"),
    "ddp": torch.nn.parallel.DistributedDataParallel,
    "compiled ddp": lambda m: torch.compile(torch.nn.parallel.DistributedDataParallel(m), backend="eager"),
    "ddp of compiled": lambda m: torch.nn.parallel.DistributedDataParallel(torch.compile(m, backend="eager")),
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_weights_load_whatever_was_wrapped_around_the_model_then_or_now(tmp_path, one_process):
    """CKPT-04."""

    def wrapped(kind, seed):
        config = tiny(tmp_path, f"seed={seed}")
        task = task_of(config, *related(config)[:2])
        names = set(task.model.state_dict())
        task.model = WRAPPED[kind](task.model)
        task.trainer = MagicMock(spec=Trainer, global_step=0, accumulate_grad_batches=1, max_steps=1)
        task.trainer.fit_loop, task.trainer.should_stop = MagicMock(), False
        return task, names

    for saver in WRAPPED:
        old, names = wrapped(saver, 1)
        checkpoint = {"state_dict": old.state_dict(), "global_step": 0}
        old.on_save_checkpoint(checkpoint)
        assert set(checkpoint["state_dict"]) == names
        for loader in WRAPPED:
            new, _ = wrapped(loader, 2)
            assert not torch.equal(next(new.parameters()), next(old.parameters()))
            loaded = {**checkpoint}
            new.on_load_checkpoint(loaded)
            new.load_state_dict(loaded["state_dict"])
            for one, other in zip(new.parameters(), old.parameters(), strict=True):
                assert torch.equal(one, other)


def test_a_name_that_is_missing_from_a_checkpoint_is_an_error(tmp_path):
    """CKPT-04."""
    train(tiny(tmp_path / "run", "trainer.max_steps=1", "schedule=constant"), notify=str)
    path = tmp_path / "run" / "checkpoints" / "last.ckpt"
    saved = read_checkpoint(path)
    saved["state_dict"]["renamed"] = saved["state_dict"].pop("embedding.table.weight")
    torch.save(saved, path)
    with pytest.raises(RuntimeError, match=r"(?s)embedding.table.weight.*renamed"):
        train(tiny(tmp_path / "run", "trainer.max_steps=2", "schedule=constant"), resume=True, notify=str)
