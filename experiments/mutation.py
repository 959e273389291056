"""Mutation testing: of small faults put into the blocks, the models and the loss, how many do their tests find?

A seeded sample of cosmic-ray's mutants, each run against the tests that mirror its file and the promises of its slot,
those marked slow left out. Strings, annotations and decorators are not mutated. Results are kept in ``.mutation/``
until the mutated files change, so that a run which was stopped goes on; ``--again`` tries the survivors once more,
after tests were written for them.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import os
import random
import tempfile
from concurrent.futures import ThreadPoolExecutor, as_completed
from difflib import unified_diff
from functools import cache
from itertools import islice
from pathlib import Path
from queue import Queue

from cosmic_ray.commands.init import init
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator
from cosmic_ray.work_db import WorkDB, use_db
from cosmic_ray.work_item import MutationSpec, TestOutcome, WorkerOutcome, WorkResult
from scipy.stats import binomtest

from experiments.trees import BROKEN, ROOT, Calls, changed, plant, start, timeouts, verdict

SOURCES = ("variants/blocks", "variants/models", "variants/training/objectives")
TASK = "variants/training/task.py"
LOSS = {"training_step", "on_before_optimizer_step", "configure_gradient_clipping", "validation_step"}  # of the task
LOSS |= {"on_validation_epoch_end", "_pair", "_total", "global_norm", "_whole"}
OPTIONS = ("-x", "-m", "not slow")


def sources() -> list[Path]:
    """The files whose code is mutated, relative to the repository."""
    found = [p for folder in SOURCES for p in (ROOT / folder).rglob("*.py") if p.name != "__init__.py"]
    return sorted(p.relative_to(ROOT) for p in (*found, ROOT / TASK))


def tests_of(source: Path) -> Calls:
    """What pytest is asked, one call after the other: the tests that mirror the file, then its slot's promises."""
    match source.parts[1:]:
        case ("blocks", slot, _):
            return ((f"tests/blocks/{slot}",), promises({"crosses": "cross"}.get(slot, slot[:-1])))
        case ("blocks", part):
            return ((f"tests/blocks/test_{part}",), promises("mixer", "cross"), promises("layout"))
        case ("models", _):
            return (("tests/models", "tests/science"), promises("layout"))
        case ("training", "objectives", _):
            return (("tests/training/test_objectives.py",), promises("objective"))
        case _:
            return (("tests/training/test_task.py",),)


def promises(*slots: str) -> tuple[str, ...]:
    """The promise tests of slots."""
    return ("tests/test_promises.py", "-k", " or ".join(f"{slot}." for slot in slots))


def asked(mutation: MutationSpec) -> Calls:
    """The same, up to the first test that fails."""
    return tuple((*call, *OPTIONS) for call in tests_of(mutation.module_path))


# ---------------------------------------------------------------------------------------------------------------------
# Which mutants


class Code(ast.NodeTransformer):
    """Leave of a file what a mutant counts in."""

    def visit(self, node: ast.AST) -> ast.AST:
        """Empty strings; take annotations and decorators away."""
        if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str)):
            return ast.Constant("")
        for field in ("annotation", "returns"):
            if getattr(node, field, None) is not None:
                setattr(node, field, ast.Constant(""))
        if hasattr(node, "decorator_list"):
            node.decorator_list = []
        return self.generic_visit(node)


def code(text: str) -> str:
    """A file's code alone."""
    return ast.dump(Code().visit(ast.parse(text)))


@cache
def original(path: Path) -> tuple[str, str]:
    """A file's text and its code."""
    text = (ROOT / path).read_text("utf-8")
    return text, code(text)


def counts(mutation: MutationSpec) -> bool:
    """Whether a mutant differs in code, and can be read."""
    if str(mutation.module_path) == TASK and mutation.definition_name not in LOSS:
        return False
    text, before = original(mutation.module_path)
    try:
        return code(mutated(mutation, text)) != before
    except SyntaxError:
        return False


def mutated(mutation: MutationSpec, text: str) -> str:
    """A file's text with the fault in it."""
    return mutate_code(text, get_operator(mutation.operator_name)(**mutation.operator_args), mutation.occurrence)


def sample(db: WorkDB, n: int, seed: int) -> dict[str, MutationSpec]:
    """Mutants of the first n places, of all in a seeded order; a larger sample begins with the smaller one.

    One a place, for an arithmetic operator has a dozen, most of them absurd and easily found.
    """
    items = {item.job_id: item.mutations[0] for item in db.work_items}
    places: dict[tuple[str, tuple[int, int]], list[str]] = {}
    for job in sorted(items, key=lambda i: (str(items[i].module_path), items[i].operator_name, items[i].occurrence)):
        places.setdefault((str(items[job].module_path), items[job].start_pos), []).append(job)
    chance = random.Random(seed)
    order = [chance.choice(jobs) for jobs in places.values()]
    chance.shuffle(order)
    return {job: items[job] for job in islice((job for job in order if counts(items[job])), n)}


# ---------------------------------------------------------------------------------------------------------------------
# What becomes of one


def judged(trees: Queue[Path], mutation: MutationSpec, timeout: float) -> WorkResult:
    """Run a mutant's tests in a free tree."""
    tree = trees.get()
    try:
        text = mutated(mutation, original(mutation.module_path)[0])
        with changed(tree, {mutation.module_path: text}):
            code = verdict(tree, asked(mutation), timeout)
    finally:
        trees.put(tree)
    if code == BROKEN:
        raise RuntimeError(f"pytest has not come to an end: {place(mutation)}")
    outcome = TestOutcome.SURVIVED if code == 0 else TestOutcome.KILLED
    return WorkResult(WorkerOutcome.NORMAL, "timeout" if code is None else f"exit {code}", outcome, diff(mutation))


def diff(mutation: MutationSpec) -> str:
    """The lines that a fault changes."""
    text = original(mutation.module_path)[0]
    lines = unified_diff(text.splitlines(), mutated(mutation, text).splitlines(), lineterm="", n=0)
    return "\n".join(line for line in lines if not line.startswith(("---", "+++", "@@")))


# ---------------------------------------------------------------------------------------------------------------------
# All of them


def run(db: WorkDB, todo: dict[str, MutationSpec], workers: int) -> None:
    """Judge mutants, and keep each result as soon as it is there."""
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(workers) as pool:
        trees = plant(workers, Path(folder))
        limits = timeouts(trees, map(asked, todo.values()))
        jobs = {pool.submit(judged, trees, m, limits[asked(m)]): job for job, m in todo.items()}
        for number, future in enumerate(as_completed(jobs), 1):
            result, mutation = future.result(), todo[jobs[future]]
            db.set_result(jobs[future], result)
            print(f"{number}/{len(jobs)} {result.test_outcome} {result.output} {place(mutation)}", flush=True)
            if result.test_outcome == TestOutcome.SURVIVED:
                print(result.diff, flush=True)


def place(mutation: MutationSpec) -> str:
    """Where a fault is."""
    return f"{mutation.module_path}:{mutation.start_pos[0]} in {mutation.definition_name}"


def summary(chosen: dict[str, MutationSpec], results: dict[str, WorkResult], seed: int) -> str:
    """The figure with its interval, and the survivors."""
    of_sample = {job: results[job] for job in chosen if job in results}
    survivors = [job for job, result in of_sample.items() if not result.is_killed]
    killed, late = len(of_sample) - len(survivors), sum(r.output == "timeout" for r in of_sample.values())
    low, high = binomtest(killed, len(of_sample)).proportion_ci(0.95, method="exact")
    lines = [
        f"\n{place(chosen[job])}\n{results[job].diff}" for job in sorted(survivors, key=lambda j: place(chosen[j]))
    ]
    lines.append(
        f"\nseed {seed}: of {len(of_sample)} mutants {killed} killed ({late} by timeout), {len(survivors)} survived: "
        f"{killed / len(of_sample):.1%} killed, 95% interval {low:.1%} to {high:.1%} (Clopper and Pearson)"
    )
    return "\n".join(lines)


def main() -> None:
    """Sample, run what has no result yet, and sum up."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=400, help="how many mutants")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--workers", type=int, default=2, help="how many are tried at once")
    parser.add_argument("--again", action="store_true", help="try the survivors once more")
    args = parser.parse_args()
    start("cosmic_ray.commands.init")
    os.chdir(ROOT)
    files = sources()
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:12]
    Path(".mutation").mkdir(exist_ok=True)
    with use_db(f".mutation/{digest}.sqlite") as db:
        if not db.num_work_items:
            init(files, db, {})
        chosen = sample(db, args.n, args.seed)
        results = dict(db.results)
        print(f"seed {args.seed}: {len(chosen)} mutants of {len(files)} files", flush=True)
        todo = {j: m for j, m in chosen.items() if j not in results or (args.again and not results[j].is_killed)}
        if todo:
            run(db, todo, args.workers)
        print(summary(chosen, dict(db.results), args.seed))


if __name__ == "__main__":
    main()
