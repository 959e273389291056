"""Runs on this machine."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections import deque
from collections.abc import Sequence

from variants.ablation.launch.base import Job, Watch
from variants.slots import launchers

TICK = 0.1  # seconds between two looks at the processes


@launchers.register("local")
class Local:
    """Run each job in a process of its own on this machine, ``slots`` at a time.

    The slots share the CPUs evenly, and take the GPUs in turn, where there are any. Sums over another number of
    threads round otherwise, so numbers are the same to the last bit only for the same number of slots.

    Args:
        slots: Runs at a time.

    Raises:
        ValueError: ``slots`` is below 1.
    """

    def __init__(self, *, slots: int = 1) -> None:
        if slots < 1:
            raise ValueError(f"slots={slots}: must be at least 1")
        self.slots = slots

    def __call__(self, jobs: Sequence[Job], watch: Watch) -> None:
        """Carry out all jobs, in their order."""
        waiting = deque(jobs)
        free = deque(range(self.slots))
        running: dict[int, tuple[Job, subprocess.Popen[bytes]]] = {}
        going = True
        try:
            while waiting or running:
                if going and not watch():
                    going = False
                    waiting.clear()
                    for _, process in running.values():
                        process.terminate()
                elif not going:
                    watch()
                while waiting and free:
                    slot, job = free.popleft(), waiting.popleft()
                    running[slot] = job, self._start(job, slot)
                time.sleep(TICK)
                for slot, (job, process) in list(running.items()):
                    if process.poll() is not None:
                        _let_go(process)
                        job.close(_how(process.returncode))
                        del running[slot]
                        free.append(slot)
        finally:
            for job, process in running.values():
                process.kill()
                _let_go(process)
                job.close("killed")

    def _start(self, job: Job, slot: int) -> subprocess.Popen[bytes]:
        threads = max(1, _cpus() // self.slots)
        environment = {**os.environ, "VARIANTS_TIED": "1"}
        environment.setdefault("OMP_NUM_THREADS", str(threads))
        if self.slots > 1 and (devices := _gpus()):
            environment["CUDA_VISIBLE_DEVICES"] = devices[slot % len(devices)]
        with job.log.open("ab") as log:
            # In a session of its own, so that Ctrl-C reaches it only through us; on a pipe of ours, so that it learns
            # of our death.
            return subprocess.Popen(
                job.command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )


def _let_go(process: subprocess.Popen[bytes]) -> None:
    """Wait for a process that ends, and close our end of its pipe."""
    process.wait()
    assert process.stdin is not None
    process.stdin.close()


def _cpus() -> int:
    """The CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _gpus() -> list[str]:
    """The GPUs that this process may use, by the names that CUDA_VISIBLE_DEVICES takes."""
    import torch

    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [name for name in named.split(",") if name.strip()]
    return [str(index) for index in range(torch.cuda.device_count())]


def _how(status: int) -> str:
    """How a process ended."""
    if status >= 0:
        return f"its process ended with status {status}"
    names = {number.value: number.name for number in signal.Signals}
    return f"its process was killed by {names.get(-status, f'signal {-status}')}"
