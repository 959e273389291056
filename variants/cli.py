"""The command line. Lightning is imported by the commands that train, nothing heavier than torch by the others."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from variants import __version__
from variants.ablation import commands as ablation
from variants.components import import_component
from variants.errors import ConfigError, unknown
from variants.imports import uncollected
from variants.registry import SLOTS

if TYPE_CHECKING:
    from variants.explain import Explanation

STOPPED = 130  # the exit status of what Ctrl-C ends, for shells and for whoever starts runs
OVERRIDES = "group=name takes a preset, group.field=value sets a value: model=llama_tiny model.norm=layernorm"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Returns:
        The exit status: 0 done, 1 it failed, diverged or is not done, 2 the request was wrong, 130 it was stopped.
    """
    # Before torch is imported: threads that spin while they wait take the cores from whatever else runs here.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        for module in options.imports:
            import_component(module)
        status: int = options.run(options)
        sys.stdout.flush()
    except ConfigError as error:
        for problem in str(error).splitlines():
            print(f"error: {problem}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return STOPPED
    except (BrokenPipeError, SystemExit) as error:  # `variants list | head`; rich exits there
        if not isinstance(error, BrokenPipeError) and not isinstance(error.__context__, BrokenPipeError):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # which Python flushes at its end
        return 0 if options.shows else 1
    return status


class Command(argparse.ArgumentParser):
    """A command whose lists, such as overrides, may go on behind an option: ``train a.b=1 --resume c.d=2``."""

    _within = False

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse, options and the others in any order, as argparse does on request for a parser without subcommands."""
        if self._within or self._subparsers is not None:
            return super().parse_known_args(args, namespace)
        self._within = True  # the intermixed parser calls this one
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self._within = False


def _parser() -> argparse.ArgumentParser:
    common = Command(add_help=False)
    common.add_argument(
        "--import",
        dest="imports",
        action="append",
        default=[],
        metavar="MODULE",
        help="import a module or a .py file first, which registers components",
    )
    composed = Command(add_help=False)
    composed.add_argument("overrides", nargs="*", default=[], metavar="override", help=OVERRIDES)
    composed.add_argument("--config-dir", metavar="FOLDER", help="your config files, before the packaged ones (conf/)")

    parser = argparse.ArgumentParser(prog="variants", description="Transformer variants, trained and compared fairly.")
    parser.add_argument("--version", action="version", version=__version__)
    parser.set_defaults(shows=False)  # whether all that a command does is done once nobody reads on
    commands = parser.add_subparsers(required=True, metavar="command", parser_class=Command)

    command = commands.add_parser("list", parents=[common], help="every slot, its promise and its choices")
    command.add_argument("slot", nargs="?", help="one slot alone, with the fields of its choices")
    command.add_argument("--markdown", action="store_true", help="a table for a document")
    command.set_defaults(run=_list, shows=True)

    command = commands.add_parser(
        "explain", parents=[common, composed], help="what a config would be: size, cost, memory, kernel"
    )
    command.set_defaults(run=_explain, shows=True)

    command = commands.add_parser("train", parents=[common, composed], help="train, validate, checkpoint")
    command.add_argument("--resume", action="store_true", help="go on where the run was cut")
    command.add_argument("--folder", metavar="FOLDER", help="the run's folder (runs/<model>-<data>-<identity>)")
    command.set_defaults(run=_train)

    command = commands.add_parser("generate", parents=[common], help="continue or translate text with a trained run")
    command.add_argument("folder", help="a run's folder")
    command.add_argument("prompt", nargs="*", default=[], help="texts; none: an empty one")
    command.add_argument("--max-new", type=int, default=100, metavar="N", help="tokens at most (100)")
    command.add_argument("--temperature", type=float, help="0 is greedy (0; 1 with --top-k or --top-p)")
    command.add_argument("--top-k", type=int, metavar="K", help="sample among the K likeliest")
    command.add_argument("--top-p", type=float, metavar="P", help="sample among the likeliest that have P together")
    command.add_argument("--seed", type=int, default=0, help="of the sampling (0)")
    command.add_argument("--beam", type=int, metavar="N", help="search with a beam of N instead of sampling")
    command.set_defaults(run=_generate)

    command = commands.add_parser("check", parents=[common], help="test choices against the promises of their slot")
    command.add_argument(
        "target", help="slot.choice, a slot for all its choices, a choice's name, or a module or .py file"
    )
    command.add_argument("fields", nargs="*", default=[], metavar="field", help="set a field of the choice: d_ff=64")
    command.set_defaults(run=_check)

    command = commands.add_parser("export", parents=[common], help="a decoder-only run as a transformers checkpoint")
    command.add_argument("folder", help="a run's folder")
    command.add_argument("out", help="a new folder; needs the extra variants[interop]")
    command.set_defaults(run=_export)

    ablation.add(commands, common)
    return parser


def _list(options: argparse.Namespace) -> int:
    from variants import slots as _slots  # noqa: F401  # fills SLOTS

    if options.slot is not None and options.slot not in SLOTS:
        raise ConfigError([unknown("slot", options.slot, SLOTS)])
    from variants import listing

    wanted = [SLOTS[options.slot]] if options.slot else list(SLOTS.values())
    if options.markdown:
        print(listing.markdown(wanted))
    else:
        listing.show(wanted, fields=options.slot is not None)
    return 0


def _explain(options: argparse.Namespace) -> int:
    from variants.explain import explain

    show_explanation(explain(options.overrides, options.config_dir))
    return 0


def show_explanation(explanation: Explanation) -> None:
    """Print what a config would be."""
    from variants import config as configs
    from variants.explain import modules_by_value

    e = explanation
    print(configs.to_text(e.config))
    print("departs from the presets" + (":" if e.departures else ": nowhere"))
    for name, (old, new) in e.departures.items():
        print(f"  {name}: {old} -> {new}")
    print(f"\nparameters: {e.parameters.total:,} total, {e.parameters.non_embedding:,} non-embedding")
    for part, count in e.parameters.parts.items():
        print(f"  {part:12} {count:>14,}  {count / e.parameters.total:6.1%}")
    print(f"FLOPs per token, forward and backward: {e.flops_per_token:,}")
    tokens = f"{e.batch_size} sequences of {e.length} tokens"
    print(f"peak memory in training, estimated: {e.peak_bytes / 2**20:,.0f} MiB (a micro-batch of {tokens})")
    asked = e.config["model"]["kernel"]["name"]
    runs = ", ".join(f"{kernel} in {count} modules" for kernel, count in modules_by_value(e.kernels).items())
    print(f"kernel: {asked} asked for; {runs or 'none'} would run here")
    for line in e.reasons:
        print(f"  {line}")
    for line in (*e.without_effect, *e.untrainable):
        print(f"note: {line}")


def _train(options: argparse.Namespace) -> int:
    with uncollected():
        from variants import config as configs
        from variants.errors import is_wrong
        from variants.relations import related
        from variants.training.refusals import others

    own = {"folder": options.folder} if options.folder else {}
    try:
        config = configs.compose(options.overrides, options.config_dir) | own
        related(config)  # before the seconds that Lightning's import takes
    except ConfigError as error:
        more = [] if is_wrong(error.rest) else others(error.rest | own, resume=options.resume)
        raise ConfigError([*error.problems, *more]) from None

    with uncollected():
        from variants.ablation.worker import is_main
        from variants.training.run import train

    result = train(config, resume=options.resume)
    if result.status == "stopped":  # a child's failure would end the main process, which is still saving
        return STOPPED if is_main() else 0
    return 0 if result.status == "finished" else 1


def _generate(options: argparse.Namespace) -> int:
    from variants.generation.text import generate_text

    samples = options.top_k is not None or options.top_p is not None
    temperature = options.temperature if options.temperature is not None else float(samples)
    if samples and temperature == 0:
        raise ConfigError(["--temperature: 0 is greedy, so --top-k and --top-p would have no effect"])
    texts = generate_text(
        Path(options.folder),
        options.prompt or [""],
        max_new=options.max_new,
        temperature=temperature,
        top_k=options.top_k,
        top_p=options.top_p,
        seed=options.seed,
        beam=options.beam,
    )
    for text in texts:
        print(text)
    return 0


def _export(options: argparse.Namespace) -> int:
    from variants.interop.export import export_run

    export_run(Path(options.folder), Path(options.out))
    return 0


def _check(options: argparse.Namespace) -> int:
    from variants.config import fields
    from variants.testing import PROMISES, check

    slot, targets, values = options.target, [options.target], fields(options.fields)
    if slot in PROMISES and values:
        raise ConfigError([f"{', '.join(values)}: a field is of one choice, and {slot} is a slot"])
    if slot in PROMISES:
        targets = [f"{slot}.{choice}" for choice in SLOTS[slot].choices]
    elif slot in SLOTS:
        raise ConfigError([f"{slot}: a slot whose choices promise nothing that could be tried"])
    broken = 0
    for verdict in (verdict for target in targets for verdict in check(target, **values)):
        print(verdict, flush=True)
        broken += not verdict.holds
    return 1 if broken else 0
