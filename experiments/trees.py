"""Copies of the repository with faults in them, and what their tests say."""

from __future__ import annotations

import multiprocessing
import os
import resource
import shutil
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from queue import Queue

ROOT = Path(__file__).parent.parent
NEEDED = ("variants", "tests", "conf", "experiments", "docs", "pyproject.toml", "README.md")
MEMORY = 16 * 2**30  # bytes of addresses; what wants more has failed
BROKEN = 70  # the exit code where pytest has not come to an end
PRELOADED = ["torch", "torch.export", "torch._dynamo", "lightning.pytorch", "beartype", "pytest", "scipy.stats"]
OPTIONS = ("-p", "no:cacheprovider", "-p", "no:xdist")
OPTIONS += ("-W", "ignore::pytest.PytestAssertRewriteWarning")  # plugins that are imported before the fork

server = multiprocessing.get_context("forkserver")
Calls = tuple[tuple[str, ...], ...]  # what pytest is asked, one call after the other


def start(*preloaded: str) -> None:
    """Import what takes seconds once, for all processes that will run tests."""
    os.environ["OMP_NUM_THREADS"] = "1"
    server.set_forkserver_preload([*PRELOADED, *preloaded])


def plant(n: int, folder: Path) -> Queue[Path]:
    """Copies of the repository, one a worker."""
    trees: Queue[Path] = Queue()
    for number in range(n):
        tree = folder / str(number)
        tree.mkdir()
        for name in NEEDED:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__", "runs"))
            else:
                shutil.copy(ROOT / name, tree / name)
        trees.put(tree)
    return trees


@contextmanager
def changed(tree: Path, files: Mapping[Path, str]) -> Iterator[None]:
    """Give files of a tree other texts, and then their own back."""
    before = {path: (tree / path).read_text("utf-8") for path in files}
    try:
        write(tree, files.items())
        yield
    finally:
        write(tree, before.items())


def write(tree: Path, files: Iterable[tuple[Path, str]]) -> None:
    """Write texts. What was compiled of a file may be of the same second, and is taken away."""
    for path, text in files:
        for compiled in (tree / path).parent.glob(f"__pycache__/{path.stem}.*"):
            compiled.unlink()
        (tree / path).write_text(text, "utf-8")


def run_tests(tree: Path, calls: Calls) -> None:
    """In a process of its own: exit with 0 if all tests pass. What they print is in the tree, in ``output.txt``."""
    import pytest

    code = BROKEN
    try:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        os.chdir(tree)
        os.environ["PYTHONPATH"] = str(tree)  # for the processes that tests start
        sys.path.insert(0, str(tree))
        with (tree / "output.txt").open("w") as output, redirect_stdout(output), redirect_stderr(output):
            code = next((code for call in calls if (code := pytest.main([*call, *OPTIONS]))), 0)
    finally:
        os._exit(int(code))


def verdict(tree: Path, calls: Calls, timeout: float) -> int | None:
    """The exit code of the tests; None: they took too long."""
    process = server.Process(target=run_tests, args=(tree, calls))
    process.start()
    process.join(timeout)
    if process.is_alive():
        process.kill()
        process.join()
        return None
    return process.exitcode


def timeouts(trees: Queue[Path], selections: Iterable[Calls]) -> dict[Calls, float]:
    """Several times what each selection of tests takes without a fault, where all must pass."""
    limits = {}
    tree = trees.get()
    for calls in sorted(set(selections)):
        began = time.perf_counter()
        if code := verdict(tree, calls, 600):
            print((tree / "output.txt").read_text()[-5000:])
            raise SystemExit(f"without a fault, pytest exits with {code}: {calls}")
        limits[calls] = 20 + 5 * (time.perf_counter() - began)
    trees.put(tree)
    return limits
