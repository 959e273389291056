"""Put the cause of each reported fault back, one at a time: the tests of that behaviour must fail, each of them.

The causes are in ``tests/behaviours/causes/``, a file a behaviour: what is wrong, the code that would be so, and the
tests that must fail by it. Name behaviours to try those alone; ``--workers`` says how many causes at once.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from queue import Queue
from xml.etree import ElementTree

import yaml

from experiments.trees import ROOT, changed, plant, start, verdict

FOLDER = ROOT / "tests/behaviours/causes"
LIMIT = 300  # seconds for the tests of one cause; what hangs has not failed as it should


@dataclass(frozen=True)
class Edit:
    """Text of a file, which is there once, and what stands there instead."""

    file: str
    old: str
    new: str


@dataclass(frozen=True)
class Cause:
    """One way to get a behaviour wrong.

    Args:
        behaviour: Its identity.
        says: What is wrong, in a sentence.
        edits: The code that is wrong so.
        fails: The tests that must fail, as ``file::function`` below ``tests/``; ``file::function[case]`` for one case.
    """

    behaviour: str
    says: str
    edits: tuple[Edit, ...]
    fails: tuple[str, ...]

    def files(self) -> dict[Path, str]:
        """The files that differ, with the fault in them.

        Raises:
            ValueError: What an edit replaces is not there once; the code has moved on.
        """
        texts: dict[Path, str] = {}
        for edit in self.edits:
            path = Path(edit.file)
            text = texts.get(path) or (ROOT / path).read_text("utf-8")
            if (n := text.count(edit.old)) != 1:
                raise ValueError(f"{self.behaviour}: {edit.file} has {n} times, not once:\n{edit.old}")
            texts[path] = text.replace(edit.old, edit.new)
        return texts


def causes() -> dict[str, list[Cause]]:
    """All causes by behaviour."""
    return {path.stem: _read(path) for path in sorted(FOLDER.glob("*.yaml"))}


def _read(path: Path) -> list[Cause]:
    return [
        Cause(path.stem, item["cause"], tuple(Edit(**edit) for edit in item["edits"]), tuple(item["fails"]))
        for item in yaml.safe_load(path.read_text("utf-8"))
    ]


def passed(trees: Queue[Path], cause: Cause) -> list[str]:
    """Those of a cause's tests that do not fail, though the cause is there."""
    tree = trees.get()
    report = tree / "report.xml"
    report.unlink(missing_ok=True)
    try:
        with changed(tree, cause.files()):
            verdict(tree, ((*(f"tests/{test}" for test in cause.fails), "--junit-xml", "report.xml"),), LIMIT)
        failed = failed_of(report) if report.exists() else set()
    finally:
        trees.put(tree)
    return [test for test in cause.fails if test.partition("[")[0] not in failed]


def failed_of(report: Path) -> set[str]:
    """The functions, of which a case failed: not where the file could not be imported, nor where pytest had no case."""
    failed = set()
    for case in ElementTree.parse(report).iter("testcase"):
        if case.find("failure") is not None:
            file = case.attrib["classname"].removeprefix("tests.").replace(".", "/")
            failed.add(f"{file}.py::{case.attrib['name'].partition('[')[0]}")
    return failed


def main(arguments: Sequence[str] | None = None) -> None:
    """Try causes, and exit with 1 if a test passed where it must fail."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("behaviours", nargs="*", metavar="BEHAVIOUR", help="such as ATT-02; none: all")
    parser.add_argument("--workers", type=int, default=2, help="how many are tried at once")
    args = parser.parse_args(arguments)
    known = causes()
    if strange := set(args.behaviours) - set(known):
        parser.error(f"no causes of {', '.join(sorted(strange))}; there are: {', '.join(known)}")
    chosen = [cause for name, its in known.items() if name in args.behaviours or not args.behaviours for cause in its]
    start()
    os.chdir(ROOT)
    wrong: dict[str, list[str]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(args.workers) as pool:
        trees = plant(args.workers, Path(folder))
        jobs = {pool.submit(passed, trees, cause): cause for cause in chosen}
        for number, future in enumerate(as_completed(jobs), 1):
            cause, missed = jobs[future], future.result()
            wrong[cause.behaviour] += missed
            found = f"{len(cause.fails) - len(missed)} of {len(cause.fails)} tests fail"
            print(f"{number}/{len(jobs)} {cause.behaviour}: {found}: {cause.says}", flush=True)
            for test in missed:
                print(f"    passes all the same: {test}", flush=True)
    behaviours = {cause.behaviour for cause in chosen}
    tests = {test.partition("[")[0] for cause in chosen for test in cause.fails}
    bad = sum(map(bool, wrong.values()))
    print(f"{len(chosen)} causes of {len(behaviours)} behaviours, {len(tests)} tests: {bad} behaviours not guarded")
    raise SystemExit(bool(bad))


if __name__ == "__main__":
    main()
