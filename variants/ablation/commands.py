"""The commands of studies: ``variants sweep`` and ``variants new``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from variants.registry import ConfigError

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

    from variants import slots
    from variants.ablation import study as studies
    from variants.ablation.plan import plan
    from variants.ablation.sweep import Sweep, is_done, sweep

    study = studies.load(options.study)
    node = _launcher(study, options.launcher, options.slots)
    launch: Any = slots.launchers.build(node)
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
    undone = sweep(planned, stages)
    _show_verdict(planned)
    if undone:
        why = f"stopped, since {stages.stopped}: " if stages.stopped else ""
        print(f"{why}{undone} runs are not done; `variants sweep {options.study}` goes on")
    return int(undone > 0)


def _launcher(study: Study, given: str | None, at_once: int | None) -> dict[str, Any]:
    """The launcher's node: the study's, what the command line names over it."""
    from variants import config as configs
    from variants import slots
    from variants.registry import merge

    node: Any = study.launcher
    if given is not None:
        node = merge(node, configs.read_yaml(f"value: {given}")["value"])
    if at_once is not None:
        node = merge(node, {"slots": at_once})
    return slots.launchers.check(node)


def _write_results(planned: Plan) -> None:
    from variants.ablation import results

    results.save(results.load(planned.study, planned))


def _show_verdict(planned: Plan) -> None:
    """Show what the runs that are there come to, where there are enough of them."""
    from variants.ablation import compare, results, table

    try:
        table.show(compare.compare(planned.study, results=results.load(planned.study, planned)))
    except ConfigError as error:
        for problem in error.problems:
            print(problem)


def _new(options: argparse.Namespace) -> int:
    from variants.ablation.new import new

    folder = Path(options.into) / options.name
    for file in new(folder, options.axis, options.base, options.config_dir):
        print(file)
    print(f"write down your question and your prediction there; then: variants sweep {folder}")
    return 0
