"""Runs on a Slurm cluster."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from typing import Any

from variants.ablation.launch.base import Job, Watch
from variants.ablation.work import Work
from variants.errors import ConfigError, refuse
from variants.slots import launchers
from variants.training.files import write

TICK = 0.5  # seconds between two calls of `watch`
POLL = 5.0  # seconds between two questions to Slurm
TIMEOUTS = 1000  # how often a run may be requeued because its time is over


@launchers.register("slurm")
class Slurm:
    """Submit the jobs to Slurm as an array, through submitit, and wait for them.

    A run whose time is nearly over, or that is preempted, saves itself and is requeued. Jobs outlive this process: the
    same study started again waits for those that are queued or running, and submits the others.

    Args:
        slots: Runs at a time; None: as many as Slurm lets.
        partition: Slurm's partition; None: its default.
        minutes: Time limit of a job, after which it is requeued and goes on.
        cpus: CPUs of a run.
        gpus: GPUs of a run.
        memory: Memory of a run, as Slurm takes it (``16G``); None: Slurm's default.
        options: Any other options of ``sbatch``, by their long names.

    Raises:
        ValueError: ``minutes`` is below 3 (a job is told of its end 90 s before), or a number is below 1.
    """

    def __init__(
        self,
        *,
        slots: int | None = None,
        partition: str | None = None,
        minutes: int = 240,
        cpus: int = 1,
        gpus: int = 0,
        memory: str | None = None,
        options: dict[str, Any] | None = None,
    ) -> None:
        room = cpus > 0 and gpus >= 0 and (slots is None or slots > 0)
        refuse(
            minutes < 3 and f"minutes={minutes}: must be at least 3, since a job is told of its end 90 s before",
            not room and f"slots={slots}, cpus={cpus}, gpus={gpus}: a run needs a slot and a CPU",
        )
        self.parameters = {
            "time": minutes,
            "cpus_per_task": cpus,
            "array_parallelism": slots or 1000,
            "additional_parameters": {**(options or {}), **({"mem": memory} if memory else {})},
        }
        self.parameters |= {"partition": partition} if partition else {}
        self.parameters |= {"gpus_per_node": gpus} if gpus else {}

    def __call__(self, jobs: Sequence[Job], watch: Watch) -> None:
        """Submit what is not queued already, and wait for all."""
        queued = _queued()
        self._submit([job for job in jobs if _number(job) not in queued])
        waiting = list(jobs)
        going, asked = True, time.monotonic()
        while waiting:
            time.sleep(TICK)
            if going and not watch():
                going = False
                subprocess.run(["scancel", *map(_number, waiting)], check=False)  # which sends SIGTERM first
            elif not going:
                watch()
            if time.monotonic() - asked < POLL:
                continue
            queued, asked = _queued(unless_known=set(map(_number, waiting))), time.monotonic()
            for job in [job for job in waiting if _number(job) not in queued]:
                job.close(f"its Slurm job {_number(job)} is gone")
                waiting.remove(job)

    def _submit(self, jobs: Sequence[Job]) -> None:
        if not jobs:
            return
        try:
            import submitit
        except ImportError:
            raise ConfigError(["launcher slurm needs the package submitit: pip install 'variants[slurm]'"]) from None
        try:
            executor = submitit.SlurmExecutor(jobs[0].folder.parent.parent / ".slurm", max_num_timeout=TIMEOUTS)
            executor.update_parameters(job_name=jobs[0].name.partition("/")[0], **self.parameters)
            with executor.batch():
                submitted = [executor.submit(Work(job.command, job.log)) for job in jobs]
        except RuntimeError as error:  # no srun here, or sbatch refuses
            raise ConfigError([f"launcher slurm: {str(error).strip()}"]) from None
        for job, task in zip(jobs, submitted, strict=True):
            write(job.beside("slurm"), f"{task.job_id}\n")


def _number(job: Job) -> str:
    """The Slurm job that a run was submitted as; empty: none."""
    file = job.beside("slurm")
    return file.read_text().strip() if file.is_file() else ""


def _queued(unless_known: set[str] | None = None) -> set[str]:
    """The user's jobs that Slurm has not ended yet; where Slurm does not answer, those that were given.

    Raises:
        ConfigError: Slurm does not answer, and none were given.
    """
    command = ["squeue", "--noheader", "--array", "--me", "--format=%i"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    except FileNotFoundError:
        raise ConfigError(["launcher slurm: there is no squeue on this machine; is it part of a cluster?"]) from None
    except subprocess.SubprocessError as error:  # a controller may be restarted
        if unless_known is None:
            reason = getattr(error, "stderr", None) or error
            raise ConfigError([f"launcher slurm: Slurm does not answer: {str(reason).strip()}"]) from None
        return unless_known
    return set(answer.stdout.split())
