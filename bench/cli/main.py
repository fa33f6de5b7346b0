"""``bench``: the commands, and an example at the end of each one's help."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import click

from bench.cli import completion
from bench.cli.commands import BenchGroup, HelpPanels, MissingInputError
from bench.cli.environment import set_environment
from bench.cli.interrupts import describe_interrupt
from bench.cli.signals import handle_sigterm
from bench.cli.strict_options import strict_option
from bench.errors import BenchError, InputError, TerminatedError, printable, storage_reason
from bench.version import __version__

COMMANDS = {
    "Run": (
        "bench.cli.run.run_command",
        "bench.cli.train.tune_command",
        "bench.cli.sweep.sweep_command",
        "bench.cli.watch.watch_command",
    ),
    "Read": (
        "bench.cli.report.report_command",
        "bench.cli.compare.compare_command",
        "bench.site.command.site_command",
    ),
    "Look up": (
        "bench.cli.catalogue.list_command",
        "bench.cli.catalogue.show_command",
        "bench.cli.item_draws.stats_command",
        "bench.cli.data.data_command",
        "bench.cli.cache.cache_command",
        "bench.cli.campaign.campaign_command",
    ),
    "Guard": ("bench.gate.command.check_command", "bench.verify.command.verify_command"),
    "Share": (
        "bench.imports.command.import_command",
        "bench.exchange.export_command.export_command",
        "bench.exchange.command.bundle_command",
        "bench.exchange.command.merge_command",
        "bench.exchange.command.pack_command",
    ),
    "Extend": (
        "bench.cli.method_skeleton.init_command",
        "bench.conformance.command.conformance_command",
        "bench.cli.train.pretrain_command",
    ),
    "Papers": (
        "bench.papers.command.reproduce_command",
        "bench.cli.probe.probe_command",
        "bench.gradient.command.gradient_command",
    ),
}
"""Sections of the help, and the place of each command: a feature's in its folder, the others here."""
RENAMED = {
    "diff": "compare A B --show-items",
    "encode": "export METHOD --vectors FILE --out FILE.npy",
    "history": "check --history FOLDER",
    "rerun": "verify RECORD.json --rerun",
    "unpack": "bundle --extract FILE --into FOLDER",
}
"""Commands that became options of others, with what to type."""
EXAMPLES: dict[str, tuple[str, ...]] = {
    "": ("bench run --methods untrained,simcse --seeds 1-3",),
    "bundle": (
        "bench bundle local --plugin method.py --out local.bench.zip",
        "bench bundle --extract local.bench.zip --into co-author",
    ),
    "cache": ("bench cache list --results results",),
    "cache clear": ("bench cache clear checkpoints --dry-run",),
    "cache list": ("bench cache list stages --results results",),
    "campaign": ("bench campaign rename local baselines",),
    "campaign copy": ("bench campaign copy local before-cleaning",),
    "campaign remove": ('bench campaign remove local --methods "simcse[batch_size=32]" --dry-run',),
    "campaign rename": ("bench campaign rename local baselines",),
    "check": (
        "bench check --reference results/local --methods untrained,word_overlap",
        "bench check --history verdicts --format html > history.html",
    ),
    "compare": (
        "bench compare simcse untrained --campaign local",
        "bench compare simcse untrained --suite mini --show-items",
    ),
    "conformance": ("bench conformance method.py",),
    "data": ("bench data verify --data data",),
    "data fetch": ("bench data fetch sts7 --data data",),
    "data overlap": ("bench data overlap train.txt --suite sts7 --data data",),
    "data rtt": ("bench data rtt --pivots fr,ru --profile minilm --data data --out copies",),
    "data verify": ("bench data verify --data data",),
    "export": (
        "bench export simcse --seed 1 --out simcse-1",
        "bench export simcse --seed 1 --vectors train.txt --out vectors.npy",
        "bench export --layout csv --campaign local --suite mini --out scores.csv",
    ),
    "gradient": ("bench gradient simcse --seed 1 --out gradient-simcse",),
    "import": (
        'bench import mteb:mteb-results --benchmark "MTEB(eng, v2)" --into board',
        "bench import csv:table.csv --into paper",
    ),
    "init": ("bench init my-method",),
    "list": ("bench list campaigns",),
    "merge": ("bench merge local.bench.zip --into results",),
    "pack": ("bench pack --methods simcse --out packed",),
    "pretrain": ("bench pretrain --profile minilm-mlm --data data --out minilm-mlm",),
    "probe": ("bench probe simcse untrained --seeds 1",),
    "report": ("bench report --campaign local --format html > report.html",),
    "reproduce": ("bench reproduce tncse:table4 --profile mini --seeds 1-2",),
    "run": ('bench run --methods "untrained,simcse[batch_size=32]" --seeds 1-3 --set simcse.lr=5e-5',),
    "show": ('bench show "simcse[batch_size=32]" --profile mini',),
    "site": ("bench site --results results --out site",),
    "stats": ("bench stats --campaign local --suite mini",),
    "sweep": ("bench sweep caels --seeds 1 --dry-run",),
    "tune": ("bench tune simcse --option lr --values 5e-5,1e-4",),
    "verify": (
        "bench verify results/local --rerun 1",
        "bench verify results/local/mini/simcse/seed-1/mini.json --rerun",
    ),
    "watch": ("bench watch --results results",),
}
"""By a command's name, with its group's for a subcommand; "" for ``bench`` itself."""


def add_examples(command: click.Command, name: str = "") -> None:
    """Give a command, and every command below it, the examples of its help."""
    if isinstance(command, HelpPanels):
        command.examples = EXAMPLES.get(name, ())
    for below in command.commands.values() if isinstance(command, click.Group) else ():
        add_examples(below, f"{name} {below.name}".strip())


class SectionedGroup(BenchGroup):
    """The group of all commands, which lists them by subject."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        for title, paths in COMMANDS.items():
            parts = (path.rpartition(".") for path in paths)
            self.sections[title] = [getattr(import_module(module), name) for module, _, name in parts]
            for command in self.sections[title]:
                self.add_command(command)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the arguments name; raises InputError for an old name."""
        if args[0] in RENAMED and not ctx.resilient_parsing:
            raise InputError(f"bench {args[0]} is now bench {RENAMED[args[0]]}")
        return super().resolve_command(ctx, args)


@click.group(
    cls=SectionedGroup, context_settings={"help_option_names": ["-h", "--help"], "show_default": True}
)
@click.version_option(__version__, prog_name="bench")
@strict_option("--debug", is_flag=True, help="Show the traceback of an error.")
def cli(debug: bool) -> None:
    """Benchmark unsupervised sentence encoders: run, report, compare.

    Exit codes: 0 done, 1 failed cell or regression, 2 bad input, 3 not comparable, 130 interrupted (Ctrl-C),
    143 terminated (SIGTERM).
    """


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; every expected error is one line on stderr."""
    argv = sys.argv[1:] if arguments is None else arguments
    for stream in (sys.stdout, sys.stderr):  # replace characters that a terminal lacks
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        with set_environment(offline=not _fetches_data(argv)), handle_sigterm():
            code = cli.main(args=argv, prog_name="bench", standalone_mode=False, obj=tuple(argv))
        if sys.stdout is not None:  # closed by who started us
            sys.stdout.flush()
    except Exception as error:
        if completion.is_completing():  # a key press prints no error
            sys.exit(1)
        if "--debug" in argv and not isinstance(error, click.Abort | BrokenPipeError):
            raise
        code = _print_error(error, argv)
    except KeyboardInterrupt as error:
        code = _print_error(click.Abort(), argv, error)
    sys.exit(code)


def _fetches_data(arguments: Sequence[str]) -> bool:
    """Return whether the command is ``bench data fetch``, the only one that uses the network."""
    return [text for text in arguments if not text.startswith("-")][:2] == ["data", "fetch"]


def _print_error(error: Exception, arguments: Sequence[str], cause: BaseException | None = None) -> int:
    """Print an error as one line; return its exit code."""
    if isinstance(error, BrokenPipeError):  # as with `bench report | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    if isinstance(error, click.Abort):
        cause = cause or error.__cause__
        notes = getattr(cause, "__notes__", [])
        click.echo(f"interrupted; {notes[0]}" if notes else describe_interrupt(arguments), err=True)
        return TerminatedError.exit_code if isinstance(cause, TerminatedError) else 130
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        click.echo(error.format_message(), err=True)
        return 2
    if isinstance(error, BenchError):
        text, code = str(error), error.exit_code
    elif isinstance(error, click.ClickException):
        where = f"{error.ctx.command_path}: " if isinstance(error, click.UsageError) and error.ctx else ""
        text, code = where + error.format_message(), 2
    elif isinstance(error, OSError) and (error.filename is None or storage_reason(error)):
        text, code = f"{error.filename or 'the output'} can't be written: {error.strerror}", 1
    elif isinstance(error, OSError) and error.strerror:  # an invalid file name, a folder without rights
        text, code = f"{error.filename}: {error.strerror}", 2
    else:
        hint = "run again with --debug before the command for the traceback"
        text, code = f"internal error, {type(error).__name__}: {error}; {hint}", 1
    click.echo(f"error: {printable(' '.join(text.split()))}", err=True)
    for example in error.examples if isinstance(error, MissingInputError) else ():
        click.echo(f"example: {example}", err=True)
    return code


add_examples(cli)
