"""The command line. Only click and the standard library load here; each command imports what it needs."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

import bench
from bench.cli_check import check
from bench.cli_compare import compare
from bench.cli_data import data
from bench.cli_diff import diff
from bench.cli_encode import encode
from bench.cli_export import export
from bench.cli_gradient import gradient
from bench.cli_options import loaded_plugins, plugin_option
from bench.cli_probe import probe
from bench.cli_report import report
from bench.cli_run import run
from bench.cli_stats import stats
from bench.cli_sweep import sweep
from bench.cli_train import pretrain, tune
from bench.errors import BenchError, InputError, printable, storage_reason


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(bench.__version__, prog_name="bench")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def cli(debug: bool) -> None:
    """Benchmark unsupervised sentence encoders: run, report, compare.

    Exit codes: 0 done, 1 a failed cell or a regression, 2 bad input, 3 not comparable, 130 interrupted.
    """


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; every expected error is one line on stderr."""
    argv = sys.argv[1:] if arguments is None else arguments
    for stream in (sys.stdout, sys.stderr):  # a terminal that lacks a character gets a replacement
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        with _own_environment(argv):
            code = cli.main(args=argv, prog_name="bench", standalone_mode=False)
        if sys.stdout is not None:  # closed by who started us
            sys.stdout.flush()
    except Exception as error:
        if "--debug" in argv and not isinstance(error, click.Abort | BrokenPipeError):
            raise
        code = _explain(error)
    except KeyboardInterrupt:
        code = _explain(click.Abort())
    sys.exit(code)


@contextmanager
def _own_environment(arguments: list[str]) -> Iterator[None]:
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


def _explain(error: Exception) -> int:
    """Print an error as one line; return its exit code."""
    if isinstance(error, BrokenPipeError):  # the reader of our stdout has gone, as with `bench report | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    if isinstance(error, click.Abort):
        click.echo("interrupted; finished cells are kept, the same command goes on from them", err=True)
        return 130
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


@cli.command()
@click.argument("record", type=click.Path(path_type=Path))
@click.option(
    "--data", "data_dir", type=click.Path(path_type=Path), help="Evaluation data; default BENCH_DATA."
)
@click.option("--model", help="Model folder or file, where the record's profile doesn't name it.")
@click.option(
    "--corpus", type=click.Path(path_type=Path), help="Training text, where it isn't the profile's."
)
@click.option("--copy", "copies", multiple=True, metavar="NAME=FILE", help="As given to bench run.")
@plugin_option
def rerun(
    record: Path,
    data_dir: Path | None,
    model: str | None,
    corpus: Path | None,
    copies: tuple[str, ...],
    plugins: tuple[str, ...],
) -> None:
    """Repeat a RECORD.json, training included, and say equal, or which digits differ (exit code 1).

    Other versions or another CPU can change digits: where they differ too, that is said.
    """
    from bench.comparable import machine_warnings
    from bench.record import from_json
    from bench.rerun import rerun as repeat
    from bench.spec import parse_copies

    try:
        text = record.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"the record can't be read: {error}", where="bench rerun") from error
    loaded_plugins(plugins)
    then = from_json(text, str(record))
    found, now = repeat(then, data=data_dir, model=model, corpus=corpus, copies=parse_copies(copies))
    if not found:
        click.echo("equal: every score is the same to the last digit")
        return
    for difference in found:
        name = f"{difference.task} {difference.subset} {difference.metric}"
        click.echo(f"{printable(name)}: then {difference.then!r}, now {difference.now!r}")
    if other := machine_warnings([then], [now]):
        click.echo(f"not on equal versions and CPU, which may change digits: {printable('; '.join(other))}")
    sys.exit(1)


@cli.command("list")
@click.argument("what", type=click.Choice(["methods", "suites", "profiles", "sweeps", "probes"]))
def list_(what: str) -> None:
    """List methods, suites, profiles, sweeps or probes."""
    rows: list[tuple[str, str]]
    if what == "methods":
        from bench.registry import discover

        rows = [(name, method.card.summary) for name, method in discover()]
    elif what == "suites":
        from bench.data.suites import SUITES

        rows = [(name, suite.summary) for name, suite in SUITES]
        rows += [
            ("mteb:TASK,TASK", "any tasks of mteb, each NAME, NAME[SUBSET+SUBSET] or NAME[SUBSET]@SPLIT"),
            (
                "local:FILE.toml",
                "sts, classification, retrieval, reranking and bitext tasks from files (mteb)",
            ),
        ]
    elif what == "profiles":
        from bench import profiles

        rows = [(name, profiles.load(name).summary) for name in profiles.names()]
    elif what == "sweeps":
        from bench.sweeps import SWEEPS

        rows = [(sweep.name, f"{sweep.question} ({sweep.source})") for sweep in SWEEPS.values()]
    else:
        from bench.probes import PROBES

        rows = [
            *PROBES.items(),
            ("overlap", "training text against test sets: bench data overlap TEXT"),
            ("gradient", "what the gradient paradigm's figures draw: bench gradient"),
        ]
    width = max(len(name) for name, _ in rows)
    for name, summary in rows:
        click.echo(f"{name:{width}}  {summary}")


@cli.command()
@click.argument("method")
@plugin_option
def show(method: str, plugins: tuple[str, ...]) -> None:
    """Show a method's card: sources, equations, options, deviations."""
    from bench.registry import discover

    loaded_plugins(plugins)
    card = discover().get(method, where="bench show").card
    click.echo(f"{card.name} ({card.kind}, version {card.version}): {card.summary}")
    click.echo("one run, no seed" if card.deterministic else "seeded")
    for title, lines in (
        ("paper", (card.paper,)),
        ("code", (card.code,)),
        ("computes", card.equations),
        ("deviations", card.deviations),
        ("published as", tuple(f"{name} ({options})" for name, options in card.published_names)),
    ):
        for line in filter(None, lines):
            click.echo(f"{title + ':':14}{line}")
    for option in card.options:
        choices = f" [{', '.join(option.choices)}]" if option.choices else ""
        click.echo(f"option        {option.name}={option.default}{choices}  {option.help}")


cli.add_command(check)
cli.add_command(compare)
cli.add_command(data)
cli.add_command(diff)
cli.add_command(encode)
cli.add_command(export)
cli.add_command(gradient)
cli.add_command(pretrain)
cli.add_command(probe)
cli.add_command(report)
cli.add_command(run)
cli.add_command(stats)
cli.add_command(sweep)
cli.add_command(tune)
