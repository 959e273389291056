"""What a training step of each arm costs: all arms in one process, in turn, so that they meet the same machine."""

from __future__ import annotations

import gc
import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from variants.ablation.plan import Arm, Plan
from variants.errors import ConfigError
from variants.training.files import write

FILE = "benchmark.csv"
COLUMNS = [
    *("device", "threads", "rounds", "step_seconds", "step_ratio", "step_ratio_low", "step_ratio_high"),
    *("tokens_per_second", "peak_bytes", "memory_ratio"),
]
NOISY = 0.2  # between the quartiles of a ratio
WARM_UP = 3  # rounds that are not counted


def read(folder: Path) -> pd.DataFrame | None:
    """A study's benchmark, a row an arm; None: it was not made, or cannot be read."""
    try:
        table = pd.read_csv(folder / FILE, dtype={"arm": str}).set_index("arm")
    except (OSError, ValueError):
        return None
    return table if set(COLUMNS) <= set(table.columns) else None


def bench(plan: Plan, rounds: int = 20, notify: Callable[[str], None] = print) -> pd.DataFrame:
    """Measure the arms in turn, and write ``benchmark.csv``; arguments, table and errors as of `measure`.

    Raises:
        ConfigError: The folder cannot be written.
    """
    table = measure(plan, rounds, notify)
    save(plan.study.folder / FILE, table)
    return table


def save(file: Path, table: pd.DataFrame) -> None:
    """Write a table of measurements.

    Raises:
        ConfigError: The folder cannot be written.
    """
    try:
        write(file, table.to_csv(index=False, lineterminator="\n"))
    except OSError as error:
        raise ConfigError([f"{file.parent} cannot be written: {error.strerror}"]) from None


def measure(plan: Plan, rounds: int = 20, notify: Callable[[str], None] = print) -> pd.DataFrame:
    """Measure the arms in turn, a training step each a round.

    All arms are in memory at once. A ratio is the median over rounds of an arm's time over the baseline's in the same
    round. The order turns from round to round, so that no arm always follows the same one.

    Args:
        plan: Of the study.
        rounds: How often each arm makes a step that counts.
        notify: Hears what is being done.

    Returns:
        A row an arm: arm, device, threads, rounds, step_seconds (median), step_ratio with its
        quartiles step_ratio_low and step_ratio_high, tokens_per_second, peak_bytes (of weights, optimiser state,
        gradients and activations), memory_ratio.

    Raises:
        ConfigError: The plan cannot run.
    """
    plan.check()
    if rounds < 1:
        raise ConfigError([f"rounds: {rounds} must be at least 1"])
    notify(f"{len(plan.arms)} arms, {WARM_UP} rounds to warm up and {rounds} that count")
    steps = [_Step(arm, notify) for arm in plan.arms]
    for k in range(WARM_UP):
        for step in steps:
            step(k)
    peaks = [step.peak(WARM_UP) for step in steps]
    times = np.empty((rounds, len(steps)))
    for k in range(rounds):
        for i in range(len(steps)):
            place = (i + k) % len(steps)
            times[k, place] = steps[place](WARM_UP + 1 + k)
    table = _table(plan, steps, times, np.array(peaks, dtype=float))
    if float((table["step_ratio_high"] - table["step_ratio_low"]).max()) > NOISY:
        notify("the ratios vary from round to round: other work keeps the machine busy, or steps are short")
    return table


def shown(benchmark: pd.DataFrame) -> pd.DataFrame:
    """A benchmark, by arm, as text."""
    return pd.DataFrame(
        {
            "arm": benchmark.index,
            "step time": [f"{v * 1000:.3g} ms" for v in benchmark["step_seconds"]],
            "over the baseline's (quartiles)": [
                f"x{row.step_ratio:.2f} ({row.step_ratio_low:.2f} to {row.step_ratio_high:.2f})"
                for row in benchmark.itertuples()
            ],
            "tokens/s": [f"{v:,.0f}" for v in benchmark["tokens_per_second"]],
            "peak memory": ["" if pd.isna(v) else f"{v / 2**20:.3g} MiB" for v in benchmark["peak_bytes"]],
            "device": [f"{row.device}, {row.threads} threads" for row in benchmark.itertuples()],
        }
    )


def _table(plan: Plan, steps: list[_Step], times: Any, peaks: Any) -> pd.DataFrame:
    import torch

    seconds, ratios = np.median(times, axis=0), times / times[:, :1]
    return pd.DataFrame(
        {
            "arm": [arm.name for arm in plan.arms],
            "device": [step.device_name for step in steps],
            "threads": torch.get_num_threads(),
            "rounds": len(times),
            "step_seconds": seconds,
            "step_ratio": np.median(ratios, axis=0),
            "step_ratio_low": np.quantile(ratios, 0.25, axis=0),
            "step_ratio_high": np.quantile(ratios, 0.75, axis=0),
            "tokens_per_second": np.array([step.tokens for step in steps]) / seconds,
            "peak_bytes": peaks,
            "memory_ratio": peaks / peaks[0],
        }
    )


class _Step:
    """Makes training steps of an arm, as a run does, on one device."""

    def __init__(self, arm: Arm, notify: Callable[[str], None]) -> None:
        import torch

        from variants.data.loader import Batches
        from variants.relations import device_of, related
        from variants.training.folder import Folder
        from variants.training.run import quiet, task_of, trainer_of

        assert arm.config is not None
        config, fields = arm.config, arm.config["trainer"]
        data, known, _ = related(config)
        data.prepare()
        self.batches = Batches(data.train, config["seed"], data.batch_size)
        self.micro_batches = fields["accumulate_grad_batches"]
        alone = {
            "devices": 1,
            "strategy": "auto",
            "num_nodes": 1,
            "callbacks": [],
            "loggers": [],
            "early_stopping": None,
            "enable_progress_bar": False,
        }
        with quiet():
            trainer: Any = trainer_of({**config, "trainer": {**fields, **alone}}, Folder(Path()), [], notify)
        self.precision = trainer.precision_plugin
        self.device = torch.device(device_of(fields["accelerator"]))
        task = task_of(config, data, known)
        self.model, self.objective = self.precision.convert_module(task.model).to(self.device), task.objective
        self.optimiser = task.configure_optimizers()
        self.clip = fields["gradient_clip_val"]
        self.tokens = 0

    @property
    def device_name(self) -> str:
        """What it runs on."""
        import torch

        return torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else self.device.type

    def __call__(self, number: int) -> float:
        """Make a step, and say how many seconds it took; fetching its batches is not counted."""
        import torch

        batches = [self._batch(number * self.micro_batches + i) for i in range(self.micro_batches)]
        self.tokens = sum(int((batch["targets"] != -100).sum()) for batch in batches)
        self._wait()
        began = time.perf_counter()
        for batch in batches:
            with self.precision.train_step_context():
                loss = self.objective(self.model, batch)
            torch.autograd.backward(loss.loss / self.tokens)
        if self.clip:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        self._wait()
        return time.perf_counter() - began

    def peak(self, number: int) -> float:
        """The bytes that a step holds at its peak, the weights and the optimiser's state included."""
        import torch

        held = [*self.model.parameters(), *(v for state in self.optimiser.state.values() for v in state.values())]
        kept = float(sum(t.numel() * t.element_size() for t in held if isinstance(t, torch.Tensor)))
        if self.device.type == "cuda":
            before = torch.cuda.memory_allocated(self.device)
            torch.cuda.reset_peak_memory_stats(self.device)
            self(number)
            return kept + torch.cuda.max_memory_allocated(self.device) - before
        if self.device.type != "cpu":
            return math.nan
        gc.collect()  # so that nothing old is freed while it is measured
        return kept + _peak_of_allocations(lambda: self(number))

    def _batch(self, number: int) -> dict[str, Any]:
        batch = self.batches[number]
        return {k: v.to(self.device) if hasattr(v, "to") else v for k, v in batch.items()}

    def _wait(self) -> None:
        import torch

        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def _peak_of_allocations(action: Callable[[], Any]) -> float:
    """The most bytes that torch held on the CPU for an action, by the profiler: the CPU's allocator keeps no count."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # else the profiler says when it starts and stops
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        action()
    recorded = profiler.profiler.kineto_results.events()
    memory = sorted((e for e in recorded if e.name() == "[memory]"), key=lambda e: e.start_ns())
    changes = [e.nbytes() for e in memory]
    return float(max(np.cumsum(changes), default=0)) if changes else math.nan
