"""Carry out one run of a study: ``python -m variants.ablation.worker FILE``, as launchers do.

Trains the run or goes on with it, then evaluates it on what the study names. The exit status is 0 where the run
finished or diverged, 1 where it failed, 3 where a signal stopped it.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

from variants.ablation.launch.base import FAILED, FINISHED, STOPPED, Job
from variants.errors import ConfigError
from variants.imports import uncollected
from variants.reading import read_yaml
from variants.training.folder import Folder

RANKS = ("RANK", "LOCAL_RANK", "SLURM_PROCID")  # of a process among those that share a run
PATIENCE = 60  # seconds to wait for a process that is leaving the run's folder


def main(file: Path) -> int:
    """Carry out the run that a file describes."""
    if os.environ.pop("VARIANTS_TIED", None):
        _die_with_parent()
    order = read_yaml(file.read_text("utf-8"))
    job = Job(file.name.partition(".")[0], Path(order["config"]["folder"]), order["config"]["trainer"]["max_steps"])
    print(f"--- {time.strftime('%Y-%m-%d %H:%M:%S')} {job.folder}", flush=True)
    try:
        return _run(job.folder, order)
    except Exception as error:
        if not isinstance(error, ConfigError):
            traceback.print_exc()
        reason = str(error).strip() if isinstance(error, ConfigError) else f"{type(error).__name__}: {error}"
        print(f"error: {reason}", flush=True)
        if not (job.folder / "config.yaml").is_file():
            job.fail(reason)
        return FAILED


def _run(folder: Path, order: dict[str, Any]) -> int:
    from variants.components import import_component

    for module in order["imports"]:
        import_component(module)

    with uncollected():
        from variants.training.run import train

    main_process = is_main()
    there = (folder / "config.yaml").is_file()
    if main_process and there:
        _wait_for(folder)
    elif main_process:
        (folder / "status.json").unlink(missing_ok=True)  # of an attempt that failed before there was a run
    result = train(order["config"], resume=there)
    if result.status == "stopped":
        return STOPPED
    if main_process and result.status == "finished" and order["evaluate"]:
        from variants.ablation.evaluate import evaluate

        evaluate(folder, order["evaluate"])
    return FINISHED


def is_main() -> bool:
    """Whether this is the main process among those that share a run."""
    return not any(int(os.environ.get(name) or 0) for name in RANKS)


def _wait_for(folder: Path) -> None:
    """Wait for a process that is still saving the run, as one does whose sweep was killed."""
    for _ in range(PATIENCE):
        held = Folder(folder)
        try:
            held.hold()
        except ValueError:
            time.sleep(1)
        else:
            held.release()
            return


def _die_with_parent() -> None:
    """Stop, as a signal would, once the other end of standard input is closed: whoever started this has died."""

    def watch() -> None:
        os.read(0, 1)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
