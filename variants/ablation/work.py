"""What Slurm runs of ours. Apart from the launcher, so that it is there at once, without torch."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any


class Work:
    """What a Slurm job does: a worker as a process of its own, which is asked to save itself when time is short.

    Args:
        command: The worker's.
        log: Where its output goes.
    """

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self.command, self.log = list(command), log

    def __call__(self) -> int:
        """Carry out the run; gives the worker's exit status."""
        threads = os.environ.get("SLURM_CPUS_PER_TASK", "1")
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={"OMP_NUM_THREADS": threads, **os.environ},
                preexec_fn=partial(signal.signal, signal.SIGUSR2, signal.SIG_IGN),  # Slurm sends it to all of a job
            )
        # `checkpoint` interrupts this thread, so that it must not hold the process's lock.
        self._waiting = threading.Thread(target=self._process.wait)
        self._waiting.start()
        self._waiting.join()
        return self._process.returncode

    def checkpoint(self) -> Any:
        """Let the run save itself; it goes on when the job is requeued."""
        import submitit

        self._process.send_signal(signal.SIGTERM)
        self._waiting.join()
        return submitit.helpers.DelayedSubmission(Work(self.command, self.log))
