"""``bench``: the commands, and an example at the end of each one's help."""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import FrameType

import click

from bench.cli import completion
from bench.cli.strict_option import strict_option
from bench.errors import BenchError, TerminatedError, printable, storage_reason
from bench.version import __version__

COMMANDS = (
    "bench.cli.compare.compare_command",
    "bench.cli.data.data_command",
    "bench.cli.diff.diff_command",
    "bench.cli.encode.encode_command",
    "bench.cli.export.export_command",
    "bench.cli.init.init_command",
    "bench.cli.probe.probe_command",
    "bench.cli.report.report_command",
    "bench.cli.rerun.rerun_command",
    "bench.cli.run.run_command",
    "bench.cli.show.list_command",
    "bench.cli.show.show_command",
    "bench.cli.stats.stats_command",
    "bench.cli.sweep.sweep_command",
    "bench.cli.train.pretrain_command",
    "bench.cli.train.tune_command",
    "bench.cli.watch.watch_command",
    "bench.conformance.command.conformance_command",
    "bench.exchange.command.bundle_command",
    "bench.exchange.command.merge_command",
    "bench.exchange.command.pack_command",
    "bench.exchange.command.unpack_command",
    "bench.gate.command.check_command",
    "bench.gate.command.history_command",
    "bench.gradient.command.gradient_command",
    "bench.papers.command.reproduce_command",
    "bench.site.command.site_command",
    "bench.verify.command.verify_command",
)
"""Where each command is: a feature's in its folder, the others here."""
EXAMPLES = {
    "": "bench run --methods untrained,simcse --seeds 1-3",
    "bundle": "bench bundle local --plugin method.py --out local.bench.zip",
    "check": "bench check --reference results/local --methods untrained,word_overlap",
    "compare": "bench compare simcse untrained --campaign local",
    "conformance": "bench conformance method.py",
    "data": "bench data verify --data data",
    "data fetch": "bench data fetch sts7 --data data",
    "data overlap": "bench data overlap train.txt --suite sts7 --data data",
    "data rtt": "bench data rtt --pivots fr,ru --profile minilm --data data --out copies",
    "data verify": "bench data verify --data data",
    "diff": "bench diff simcse untrained --suite mini",
    "encode": "bench encode simcse --seed 1 --input train.txt --out vectors.npy",
    "export": "bench export simcse --seed 1 --out simcse-1",
    "gradient": "bench gradient simcse --seed 1 --out gradient-simcse",
    "history": "bench history verdicts --format html > history.html",
    "init": "bench init my-method",
    "list": "bench list campaigns",
    "merge": "bench merge local.bench.zip --into results",
    "pack": "bench pack --methods simcse --out packed",
    "pretrain": "bench pretrain --profile minilm-mlm --data data --out minilm-mlm",
    "probe": "bench probe simcse untrained --seeds 1",
    "report": "bench report --campaign local --format html > report.html",
    "reproduce": "bench reproduce tncse:table4 --profile mini --seeds 1-2",
    "rerun": "bench rerun results/local/mini/simcse/seed-1/mini.json",
    "run": 'bench run --methods "untrained,simcse[batch_size=32]" --seeds 1-3 --set simcse.lr=5e-5',
    "show": 'bench show "simcse[batch_size=32]" --profile mini',
    "site": "bench site --results results --out site",
    "stats": "bench stats --campaign local --suite mini",
    "sweep": "bench sweep caels --seeds 1 --dry-run",
    "tune": "bench tune simcse --option lr --values 5e-5,1e-4",
    "unpack": "bench unpack local.bench.zip --into co-author",
    "verify": "bench verify results/local --rerun 1",
    "watch": "bench watch --results results",
}
"""By a command's name, a subcommand's with its group's, "" for ``bench`` itself."""


def add_examples(command: click.Command, name: str = "") -> None:
    """Let a command's help, and that of every command below it, end with its example."""
    if name in EXAMPLES:
        command.epilog = f"\b\nExample:\n  {EXAMPLES[name]}"
    for below in command.commands.values() if isinstance(command, click.Group) else ():
        add_examples(below, f"{name} {below.name}".strip())


@click.group(context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.version_option(__version__, prog_name="bench")
@strict_option("--debug", is_flag=True, help="Show the traceback of an error.")
def cli(debug: bool) -> None:
    """Benchmark unsupervised sentence encoders: run, report, compare.

    Exit codes: 0 done, 1 a failed cell or a regression, 2 bad input, 3 not comparable, 130 interrupted, 143
    ended by SIGTERM.
    """


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; every expected error is one line on stderr."""
    argv = sys.argv[1:] if arguments is None else arguments
    for stream in (sys.stdout, sys.stderr):  # a terminal that lacks a character gets a replacement
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        with _set_environment(argv), _handle_sigterm():
            code = cli.main(args=argv, prog_name="bench", standalone_mode=False, obj=tuple(argv))
        if sys.stdout is not None:  # closed by who started us
            sys.stdout.flush()
    except Exception as error:
        if completion.is_completing():  # a key press prints no error
            sys.exit(1)
        if "--debug" in argv and not isinstance(error, click.Abort | BrokenPipeError):
            raise
        code = _print_error(error)
    except KeyboardInterrupt as error:
        code = _print_error(click.Abort(), error)
    sys.exit(code)


@contextmanager
def _handle_sigterm() -> Iterator[None]:
    """Let SIGTERM, as of a scheduler whose time is up, end the block as Ctrl-C does; others are ignored."""

    def end(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise TerminatedError

    default = threading.current_thread() is threading.main_thread()
    default = default and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if default:
        signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        if default:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


@contextmanager
def _set_environment(arguments: list[str]) -> Iterator[None]:
    """What holds in this process and its workers unless the user's environment says otherwise.

    The hub's libraries ask the network for nothing, but for ``bench data fetch``, and workers import nothing
    from the current folder, which may be a results folder that came with somebody's records.
    """
    ours = {"PYTHONSAFEPATH": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
    if [text for text in arguments if not text.startswith("-")][:2] != ["data", "fetch"]:
        ours["HF_HUB_OFFLINE"] = "1"
    before = {name: os.environ.get(name) for name in ours}
    os.environ.update({name: value for name, value in ours.items() if not before[name]})
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _print_error(error: Exception, cause: BaseException | None = None) -> int:
    """Print an error as one line; return its exit code."""
    if isinstance(error, BrokenPipeError):  # the reader of our stdout has gone, as with `bench report | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    if isinstance(error, click.Abort):
        click.echo("interrupted; finished cells are kept, the same command goes on from them", err=True)
        return TerminatedError.exit_code if isinstance(cause or error.__cause__, TerminatedError) else 130
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
    elif (
        isinstance(error, OSError) and error.strerror
    ):  # a name that no file can have, a folder without rights
        text, code = f"{error.filename}: {error.strerror}", 2
    else:
        hint = "run again with --debug before the command for the traceback"
        text, code = f"internal error, {type(error).__name__}: {error}; {hint}", 1
    click.echo(f"error: {printable(' '.join(text.split()))}", err=True)
    return code


for path in COMMANDS:
    module, _, name = path.rpartition(".")
    cli.add_command(getattr(import_module(module), name))
add_examples(cli)
