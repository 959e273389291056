"""What objectives, optimisers and schedules promise."""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
from torch import Tensor

from variants import slots
from variants.blocks.heads.base import IGNORED
from variants.testing.base import Broken, distance, finite, gradients, same
from variants.testing.examples import Example
from variants.testing.probes import ids_of

# ---------------------------------------------------------------------------------------------------------------------
# Objectives


def loss_is_a_sum_over_targets(example: Example) -> None:
    """The loss of a batch is the sum of its rows' losses, and so is the number of targets."""
    objective, model, batch = _objective(example)
    whole = objective(model, batch)
    rows = [objective(model, {name: t[row : row + 1] for name, t in batch.items()}) for row in range(2)]
    same(whole.loss, rows[0].loss + rows[1].loss, "the loss of a batch, and of its rows")
    same(whole.nll, rows[0].nll + rows[1].nll, "the unsmoothed loss of a batch, and of its rows")
    expected = int((batch["targets"] != IGNORED).sum())
    if int(whole.count) != expected or int(rows[0].count + rows[1].count) != expected:
        raise Broken(f"{int(whole.count)} targets are counted in a batch of {expected}")


def no_target_no_loss(example: Example) -> None:
    """A batch without targets has a loss of 0, no count, and gradients of 0."""
    objective, model, batch = _objective(example)
    batch["targets"] = torch.full_like(batch["targets"], IGNORED)
    loss = objective(model, batch)
    if loss.loss.item() or loss.count.item():
        raise Broken(f"without a target the loss is {loss.loss.item():g} of {loss.count.item()}")
    for name, slope in gradients(model, loss.loss).items():
        if not slope.isfinite().all() or slope.any():
            raise Broken(f"without a target the gradient of {name} is not 0")


def every_parameter_learns(example: Example) -> None:
    """Every parameter of a model gets a finite gradient."""
    objective, model, batch = _objective(example)
    for name, slope in gradients(model, objective(model, batch).loss).items():
        finite(slope, f"the gradient of {name}")
        if not slope.any():
            raise Broken(f"{name} gets no gradient")


def _objective(example: Example) -> tuple[Any, Any, dict[str, Tensor]]:
    objective = example.plain()
    layout = next((name for name in getattr(objective, "layouts", ()) if name in slots.layouts.choices), "decoder_only")
    model = Example(slots.layouts, layout)().eval()
    keep = torch.ones(2, 6, dtype=torch.bool)
    keep[0, 4:] = False
    targets = ids_of(2, 6, seed=1).masked_fill(~keep, IGNORED)
    if getattr(objective, "kind", "language") == "pairs":
        source_keep = torch.ones(2, 5, dtype=torch.bool)
        source_keep[1, 3:] = False
        pair = {"source": ids_of(2, 5, seed=2), "source_keep": source_keep, "target": ids_of(2, 6), "target_keep": keep}
        return objective, model, {**pair, "targets": targets}
    return objective, model, {"ids": ids_of(2, 6), "targets": targets}


# ---------------------------------------------------------------------------------------------------------------------
# Optimisers


def every_parameter_moves(example: Example) -> None:
    """One update moves every parameter that has a gradient by a finite amount, and no other."""
    parameters = _parameters()
    before = [p.detach().clone() for p in parameters]
    optimiser = _optimiser(example, parameters)
    for p in parameters[:-1]:
        p.grad = torch.ones_like(p)
    optimiser.step()
    for p, old in zip(parameters[:-1], before, strict=False):
        finite(p, f"a parameter of shape {tuple(p.shape)} after one update")
        if torch.equal(p, old):
            raise Broken(f"a parameter of shape {tuple(p.shape)} did not move in one update")
    if distance(parameters[-1], before[-1]):
        raise Broken("a parameter without a gradient moved")


def a_loss_falls(example: Example) -> None:
    """Fifty updates bring the squared distance to a point below where it was."""
    parameters = _parameters()[:2]
    optimiser = _optimiser(example, parameters)
    losses = []
    for _ in range(50):
        optimiser.zero_grad()
        loss = torch.stack([(p - 1).square().sum() for p in parameters]).sum()
        loss.backward()  # type: ignore[no-untyped-call]
        losses.append(loss.item())
        optimiser.step()
    if not losses[-1] < losses[0]:
        raise Broken(f"the loss went from {losses[0]:.3g} to {losses[-1]:.3g} in fifty updates")


def a_saved_state_goes_on(example: Example) -> None:
    """Saved after three updates and loaded into another one, it goes on to the same values."""
    parameters = _parameters()
    optimiser = _optimiser(example, parameters)
    _updates(optimiser, parameters, 3, 0)
    others = copy.deepcopy(parameters)
    other = _optimiser(example, others)
    other.load_state_dict(copy.deepcopy(optimiser.state_dict()))
    for own, which in ((optimiser, parameters), (other, others)):
        _updates(own, which, 3, 7)
    for p, q in zip(parameters, others, strict=True):
        same(q, p, "after three updates, saved, loaded and after three more", 0.0)


def decay_is_the_groups(example: Example) -> None:
    """Each group has its own weight decay: at 0 a parameter whose gradient is 0 stays where it is."""
    decayed, kept = (torch.nn.Parameter(torch.ones(4, 4)) for _ in range(2))
    groups = [{"params": [decayed], "weight_decay": 0.1}, {"params": [kept], "weight_decay": 0.0}]
    optimiser = example.plain()(groups)
    for p in (decayed, kept):
        p.grad = torch.zeros_like(p)
    optimiser.step()
    if distance(kept, torch.ones(4, 4)):
        raise Broken("a parameter without weight decay and with a gradient of 0 moved")
    if not (decayed < 1).all():
        raise Broken("a weight decay of 0.1 shrinks nothing")


def _parameters() -> list[torch.nn.Parameter]:
    shapes = ((4, 6), (5,), (2, 2))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return [torch.nn.Parameter(torch.randn(shape)) for shape in shapes]


def _optimiser(example: Example, parameters: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
    made: torch.optim.Optimizer = example.plain()([{"params": parameters, "weight_decay": 0.0}])
    return made


def _updates(optimiser: torch.optim.Optimizer, parameters: list[torch.nn.Parameter], n: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for _ in range(n):
        for p in parameters:
            p.grad = torch.randn(p.shape, generator=generator)
        optimiser.step()


# ---------------------------------------------------------------------------------------------------------------------
# Schedules


def the_first_update_counts(example: Example) -> None:
    """The first update has a positive learning rate, and no update a negative or an infinite one."""
    schedule = example.plain()
    for step in (1, 2, 3, 10, 50, 99, 100, 101, 1000, 10**6):
        rate = schedule(step)
        if not math.isfinite(rate) or rate < 0 or (step == 1 and rate == 0):
            raise Broken(f"the learning rate of update {step} is {rate}")


def a_rate_is_of_its_update(example: Example) -> None:
    """A learning rate is a function of the update alone, whatever was asked before."""
    schedule, other = example.plain(), example.plain()
    forwards = [schedule(step) for step in range(1, 130)]
    backwards = [other(step) for step in range(129, 0, -1)]
    for step, (first, second) in enumerate(zip(forwards, reversed(backwards), strict=True), 1):
        if first != second:
            raise Broken(
                f"the learning rate of update {step} is {first} or {second}, depending on what was asked before"
            )


def the_last_value_holds(example: Example) -> None:
    """One that is told the training's length holds its final value after it."""
    if not example.asks("max_steps"):
        return
    schedule = example.plain()
    if schedule(100) != schedule(101) or schedule(100) != schedule(10**6):
        raise Broken(f"after 100 updates the learning rate is {schedule(100)}, then {schedule(101)}, {schedule(10**6)}")


OBJECTIVE = (loss_is_a_sum_over_targets, no_target_no_loss, every_parameter_learns)
OPTIMISER = (every_parameter_moves, a_loss_falls, a_saved_state_goes_on, decay_is_the_groups)
SCHEDULE = (the_first_update_counts, a_rate_is_of_its_update, the_last_value_holds)
