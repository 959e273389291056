"""The commands of studies: ``variants sweep``, ``compare``, ``report``, ``bench`` and ``new``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from variants.errors import ConfigError, attempt
from variants.reading import read_yaml

if TYPE_CHECKING:
    from variants.ablation.plan import Plan
    from variants.ablation.study import Study


def add(commands: Any, common: argparse.ArgumentParser) -> None:
    """Add the commands to the command line.

    Args:
        commands: Of argparse.
        common: A parser of what all commands take.
    """
    command = commands.add_parser("sweep", parents=[common], help="carry out a study, or go on with it")
    command.add_argument("study", help="a folder with a study.yaml")
    command.add_argument("--dry-run", action="store_true", help="show arms, runs, costs and time, and train nothing")
    command.add_argument("--only", action="append", metavar="ARM", help="run this arm alone (several times: these)")
    command.add_argument("--slots", type=int, metavar="N", help="runs at a time")
    command.add_argument("--launcher", metavar="NODE", help="local, slurm or '{name: slurm, partition: gpu}'")
    command.add_argument(
        "--limit-hours", type=float, metavar="H", help="start no run after so long, and cut the others"
    )
    command.add_argument("--retry", action="store_true", help="try the runs again that failed")
    command.add_argument("--config-dir", metavar="FOLDER", help="your config files, before the packaged ones (conf/)")
    command.set_defaults(run=_sweep)

    command = commands.add_parser("compare", parents=[common], help="a study's verdicts, from its folder alone")
    command.add_argument("study", help="a folder with a study.yaml")
    command.add_argument("--metric", metavar="NAME", help="what to compare (the study's)")
    command.add_argument("--baseline", metavar="ARM", help="with which arm (the study's)")
    command.add_argument("--by", choices=("tokens", "flops", "seconds"), help="at as much of this as all runs had")
    command.add_argument("--format", choices=("markdown", "latex", "csv"), help="for a document (a table here)")
    command.add_argument("--config-dir", metavar="FOLDER", help="your config files, before the packaged ones (conf/)")
    command.set_defaults(run=_compare, shows=True)

    command = commands.add_parser("report", parents=[common], help="a study as one page, and its figures")
    command.add_argument("study", help="a folder with a study.yaml")
    command.add_argument("--out", metavar="FOLDER", help="where to (report/ in the study's folder)")
    command.add_argument("--track", action="store_true", help="log verdicts and figures to wandb as well")
    command.add_argument("--config-dir", metavar="FOLDER", help="your config files, before the packaged ones (conf/)")
    command.set_defaults(run=_report)

    command = commands.add_parser("bench", parents=[common], help="time and memory of each arm's training step")
    command.add_argument("study", help="a folder with a study.yaml")
    command.add_argument("--rounds", type=int, default=20, metavar="N", help="steps of each arm that count (20)")
    command.add_argument("--over", metavar="FIELD=N,N", help="how they grow with a field, as data.length=128,256,512")
    command.add_argument("--config-dir", metavar="FOLDER", help="your config files, before the packaged ones (conf/)")
    command.set_defaults(run=_bench)

    command = commands.add_parser("new", parents=[common], help="begin a study")
    kinds = command.add_subparsers(required=True, metavar="kind")
    command = kinds.add_parser("study", parents=[common], help="a folder with a study that runs as it is")
    command.add_argument("name", help="of the study")
    command.add_argument(
        "--axis", action="append", required=True, metavar="FIELD=VALUE,VALUE", help="what is varied, the baseline first"
    )
    command.add_argument("--base", nargs="+", default=[], metavar="override", help="what all arms share")
    command.add_argument("--into", default="experiments", metavar="FOLDER", help="where studies are (experiments/)")
    command.add_argument("--config-dir", metavar="FOLDER", help="your config files, before the packaged ones (conf/)")
    command.set_defaults(run=_new)


def _sweep(options: argparse.Namespace) -> int:
    from rich.console import Console

    from variants.ablation import study as studies
    from variants.ablation.plan import plan
    from variants.ablation.sweep import Sweep, is_done, sweep

    study = studies.load(options.study)
    node, launch = _launcher(study, options.launcher, options.slots)
    planned = plan(study, only=options.only, config_dir=options.config_dir)
    if options.dry_run:
        from variants.ablation import forecast

        runs = [] if planned.problems else [*planned.tune_runs(), *planned.main_runs()]
        todo = [run for run in runs if not is_done(run, study.evaluate)]
        forecast.show(planned, todo, node.get("slots") or 1, Console())
        planned.check()
        return 0
    stages = Sweep(
        planned,
        launch,
        imports=options.imports,
        config_dir=options.config_dir,
        retry=options.retry,
        limit_hours=options.limit_hours,
        console=Console(),
        after=lambda: _write_results(planned),
    )
    before = _stored(study)
    undone = sweep(planned, stages)
    _show_verdict(planned)
    if not undone and _stored(study) != before:
        _conclude(planned)
    if undone:
        why = f"stopped, since {stages.stopped}: " if stages.stopped else ""
        print(f"{why}{undone} runs are not done; `variants sweep {options.study}` goes on")
    return int(undone > 0)


def _launcher(study: Study, given: str | None, at_once: int | None) -> tuple[dict[str, Any], Any]:
    """The launcher, and its node: the study's, with what the command line names over it."""
    from variants import slots
    from variants.registry import merge

    node: Any = study.launcher
    if given is not None:
        node = merge(node, read_yaml(f"value: {given}")["value"])
    if at_once is not None:
        node = merge(node, {"slots": at_once})
    try:
        node = slots.launchers.check(node)
    except ConfigError as error:
        raise ConfigError(error.under("launcher")) from None
    problems: list[str] = []
    built = attempt(problems, f"launcher {node['name']}", lambda: slots.launchers.build(node))
    if problems:
        raise ConfigError(problems)
    return node, built


def _write_results(planned: Plan) -> None:
    from variants.ablation import results

    results.save(results.load(planned.study, planned))


def _stored(study: Study) -> str | None:
    from variants.ablation.results import FILE

    file = study.folder / FILE
    return file.read_text("utf-8") if file.is_file() else None


def _conclude(planned: Plan) -> None:
    """Write the report of a study whose runs are all done, and log it beside them."""
    from variants.ablation.report import report

    print(f"report: {report(planned.study.folder, planned=planned, track=True)}")


def _show_verdict(planned: Plan) -> None:
    """Show what the runs that are there come to, where there are enough of them."""
    from variants.ablation import compare, results, table

    try:
        table.show(compare.compare(planned.study, results=results.load(planned.study, planned)))
    except ConfigError as error:
        for problem in error.problems:
            print(problem)


def _compare(options: argparse.Namespace) -> int:
    from variants.ablation import compare, results, table

    found = results.load(options.study, config_dir=options.config_dir)
    made = compare.compare(found.study, options.metric, options.baseline, options.by, results=found)
    if options.format:
        print(table.text(made, options.format), end="")
    else:
        table.show(made)
    return 0


def _report(options: argparse.Namespace) -> int:
    from variants.ablation.report import report

    print(report(options.study, options.out, config_dir=options.config_dir, track=options.track))
    return 0


def _bench(options: argparse.Namespace) -> int:
    from variants.ablation import bench
    from variants.ablation import study as studies
    from variants.ablation.plan import plan

    study = studies.load(options.study)
    if options.over is not None:
        from variants.ablation import scaling

        made = scaling.over(study, *scaling.axis(options.over), options.rounds, config_dir=options.config_dir)
        shown = scaling.shown(made)
    else:
        shown = bench.shown(bench.bench(plan(study, config_dir=options.config_dir), options.rounds).set_index("arm"))
    print(shown.to_string(index=False))
    return 0


def _new(options: argparse.Namespace) -> int:
    from variants.ablation.new import new

    folder = Path(options.into) / options.name
    for file in new(folder, options.axis, options.base, options.config_dir):
        print(file)
    print(f"write down your question and your prediction there; then: variants sweep {folder}")
    return 0
