"""The command line. Only click and the standard library load here; each command imports what it needs."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

import bench
from bench.cli_compare import compare
from bench.cli_data import data
from bench.cli_export import export
from bench.cli_sweep import sweep
from bench.cli_train import pretrain, tune
from bench.errors import BenchError, InputError

if TYPE_CHECKING:
    from bench.plan import Plan
    from bench.record import RunRecord
    from bench.runner import Outcome
    from bench.spec import RunSpec
    from bench.sweeps import Manifest

F = TypeVar("F", bound=Callable[..., Any])
COPY_HELP = "Round-trip translation of the training text, for stages that learn from copy NAME. Repeatable."
FORMATS = ("text", "markdown", "csv", "json", "latex")


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
        code = cli.main(args=argv, prog_name="bench", standalone_mode=False)
        sys.stdout.flush()
    except Exception as error:
        if "--debug" in argv and not isinstance(error, click.Abort | BrokenPipeError):
            raise
        code = _explain(error)
    except KeyboardInterrupt:
        code = _explain(click.Abort())
    sys.exit(code)


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
    elif isinstance(error, OSError) and error.filename is None:
        text, code = f"the output can't be written: {error.strerror}", 1
    else:
        hint = "run again with --debug before the command for the traceback"
        text, code = f"internal error, {type(error).__name__}: {error}; {hint}", 1
    click.echo(f"error: {' '.join(text.split())}", err=True)
    return code


def results_options(function: F) -> F:
    """Add --results and --campaign."""
    function = click.option(
        "--campaign", default="local", show_default=True, help="Folder of records below --results."
    )(function)
    return click.option(
        "--results",
        type=click.Path(path_type=Path),
        default=Path("results"),
        show_default=True,
        help="Where the campaigns are.",
    )(function)


@contextmanager
def progress_bar(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar over sentences on stderr, nothing where that is no terminal."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        counter = bar.add_task(what, total=total)
        yield lambda n: bar.advance(counter, n)


@cli.command()
@click.option(
    "--methods",
    required=True,
    help="Comma-separated: NAME, NAME:POOLING, NAME[option=value], hf:PATH[:POOLING], [ALIAS=]st:PATH.",
)
@click.option("--seeds", default="1-5", show_default=True, help="Such as 1-5 or 1,3,7-9.")
@click.option("--profile", default=None, help="See `bench list profiles`; default mini.")
@click.option("--suite", "suites", default=None, help="Comma-separated; default is the profile's.")
@click.option(
    "--data", "data_dir", type=click.Path(path_type=Path), help="Evaluation data; default BENCH_DATA."
)
@click.option("--accept-data", is_flag=True, help="Evaluate data that differ from the reference version.")
@click.option("--backbone", help="Model folder (or cached hub name) instead of the profile's.")
@click.option("--set", "overrides", multiple=True, metavar="METHOD[.STAGE].OPTION=VALUE", help="Repeatable.")
@click.option("--corpus", type=click.Path(path_type=Path), help="Training text instead of the profile's.")
@click.option("--copy", "copies", multiple=True, metavar="NAME=FILE", help=COPY_HELP)
@click.option("--dev", help="Suite of one task to select checkpoints on, instead of the profile's.")
@click.option("--world-seed", type=click.IntRange(0), help="World of the mini suites and text; default 1.")
@click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True)
@click.option(
    "--workers", type=click.IntRange(1, 256), default=1, show_default=True, help="Cells side by side."
)
@click.option(
    "--threads", type=click.IntRange(1, 256), default=1, show_default=True, help="Torch threads of each."
)
@results_options
@click.option("--dry-run", is_flag=True, help="Show the cells, what is done and an estimate; run nothing.")
@click.option("--force", is_flag=True, help="Run finished cells again and replace their records.")
def run(dry_run: bool, **options: Any) -> None:
    """Evaluate methods over seeds and suites; finished cells are never computed twice.

    Progress goes to stderr, the leaderboard of this run to stdout.
    """
    from bench.plan import make_plan

    plan = make_plan(make_spec(options))
    check_device(plan.spec.device)
    if dry_run:
        show_plan(plan)
        return
    failed = execute(plan)
    records = [record for job in plan.jobs if (record := plan.store.read(job.place)) is not None]
    _print_report(records, plan.store.campaign, "text")
    if failed:
        click.echo(f"error: {failed} cell(s) failed; the lines above and their records say why", err=True)
        sys.exit(1)


def make_spec(options: dict[str, Any]) -> RunSpec:
    """Return the specification that the options of `bench run` give."""
    from bench.profiles import DEFAULT
    from bench.spec import RunSpec, parse_copies, parse_methods, parse_override, parse_seeds

    suites = options["suites"]
    names = tuple(name.strip() for name in suites.split(",")) if suites is not None else ()
    if len(set(names)) < len(names):
        raise InputError(f"'{suites}' names a suite twice", where="--suite")
    return RunSpec(
        methods=parse_methods(options["methods"]),
        seeds=parse_seeds(options["seeds"]),
        profile=DEFAULT if options["profile"] is None else options["profile"],
        suites=names,
        backbone=options["backbone"],
        overrides=tuple(parse_override(text) for text in options["overrides"]),
        device=options["device"],
        threads=options["threads"],
        corpus=options["corpus"],
        copies=parse_copies(options["copies"]),
        dev=options["dev"],
        world_seed=options["world_seed"],
        data=options["data_dir"],
        accept_data=options["accept_data"],
        results=options["results"],
        campaign=options["campaign"],
        workers=options["workers"],
        force=options["force"],
    )


def check_device(device: str) -> None:
    """Raise InputError for cuda where torch sees none."""
    if device == "cpu":
        return
    import torch

    if not torch.cuda.is_available():
        raise InputError("torch sees no CUDA device", where="--device cuda", hint="use --device cpu")


def show_plan(plan: Plan) -> None:
    """Print the cells, what is done and an estimate."""
    from bench.estimate import estimate_seconds
    from bench.stages import StageCache

    states = [(job, "run again" if plan.spec.force else plan.status(job)) for job in plan.jobs]
    for job, state in states:
        click.echo(f"{job.cell.describe():40} {job.suite:12} {state}")
    pending = [job for job, state in states if state != "done"]
    stages = {stage.key: stage for job in pending for stage in job.cell.all_stages}
    cache = StageCache(plan.spec.results / ".stages")
    done = sum(cache.find(stage) is not None for stage in stages.values())
    uses = {(job.cell.method, job.cell.seed, stage.key) for job in pending for stage in job.cell.all_stages}
    click.echo(
        f"{len(pending)} of {len(states)} cells to run; {len(stages)} training stages "
        f"({done} done already, {len(uses) - len(stages)} uses shared)"
    )
    if pending:
        seconds = estimate_seconds(plan, pending)
        workers = min(plan.spec.workers, len(pending))
        click.echo(f"about {seconds / workers:.0f} s with {workers} worker(s), start-up not counted")


def execute(plan: Plan) -> int:
    """Run the plan with progress on stderr; return the number of failed cells."""
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from bench.runner import run_plan

    pending = len(plan.pending())
    if pending < len(plan.jobs):
        click.echo(f"{len(plan.jobs) - pending} of {len(plan.jobs)} cells are done already", err=True)
    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.completed:,.0f} sentences"), TimeElapsedColumn())
    finished = 0
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        counter = bar.add_task("encode", total=None)

        def report(outcome: Outcome) -> None:
            nonlocal finished
            finished += 1
            bar.console.print(
                f"[{finished}/{pending}] {_describe(outcome)}", markup=False, highlight=False, soft_wrap=True
            )

        outcomes = run_plan(plan, on_outcome=report, progress=lambda n: bar.advance(counter, n))
    return sum(outcome.state == "failed" for outcome in outcomes)


def _describe(outcome: Outcome) -> str:
    what = f"{outcome.job.cell.describe()} on {outcome.job.suite}"
    record = outcome.record
    if record is None or outcome.state == "done":
        return f"{what}: done by another process"
    if record.status == "failed":
        return f"{what}: FAILED, {record.reason}"
    average = record.score("avg")
    return f"{what}: avg {100 * (average or 0):.2f} in {record.timing['wall_seconds']:.1f} s"


@cli.command()
@click.option("--format", "form", type=click.Choice(FORMATS), default="text", show_default=True)
@click.option("--profile", help="Only this profile.")
@click.option("--suite", help="Only this suite.")
@click.option("--figures", type=click.Path(path_type=Path), help="Draw the sweeps' figures (SVG) into DIR.")
@results_options
def report(
    form: str, profile: str | None, suite: str | None, figures: Path | None, results: Path, campaign: str
) -> None:
    """Print the leaderboards of a campaign and the tables of its sweeps, from its records alone."""
    from bench.store import ResultStore

    records = [
        record
        for record in ResultStore(results, campaign).records()
        if (profile is None or record.profile == profile) and (suite is None or record.suite == suite)
    ]
    if not records:
        raise InputError("no record matches", where=f"campaign {campaign}", hint="bench run makes records")
    from bench.sweeps import load_all

    sweeps = [
        manifest
        for manifest in load_all(results / campaign)
        if (profile is None or manifest.profile == profile)
    ]
    _print_report(records, campaign, form, sweeps)
    if figures is not None:
        from bench.reports.figures import draw

        for path in draw(sweeps, records, figures):
            click.echo(f"figure: {path}", err=True)


def _print_report(
    records: list[RunRecord], campaign: str, form: str, sweeps: Sequence[Manifest] = ()
) -> None:
    from bench.reports.render import render

    click.echo(render(records, campaign, form, sweeps), nl=False)


@cli.command()
@click.argument("record", type=click.Path(path_type=Path))
@click.option(
    "--data", "data_dir", type=click.Path(path_type=Path), help="Evaluation data; default BENCH_DATA."
)
@click.option("--model", help="Model folder, where the record's profile doesn't name it.")
@click.option(
    "--corpus", type=click.Path(path_type=Path), help="Training text, where it isn't the profile's."
)
@click.option("--copy", "copies", multiple=True, metavar="NAME=FILE", help="As given to bench run.")
def rerun(
    record: Path, data_dir: Path | None, model: str | None, corpus: Path | None, copies: tuple[str, ...]
) -> None:
    """Repeat a RECORD.json, training included, and say equal, or which digits differ (exit code 1)."""
    from bench.record import from_json
    from bench.rerun import rerun as repeat
    from bench.spec import parse_copies

    try:
        text = record.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"the record can't be read: {error}", where="bench rerun") from error
    found = repeat(
        from_json(text, str(record)), data=data_dir, model=model, corpus=corpus, copies=parse_copies(copies)
    )
    if not found:
        click.echo("equal: every score is the same to the last digit")
        return
    for difference in found:
        name = f"{difference.task} {difference.subset} {difference.metric}"
        click.echo(f"{name}: then {difference.then!r}, now {difference.now!r}")
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
    elif what == "profiles":
        from bench import profiles

        rows = [(name, profiles.load(name).summary) for name in profiles.names()]
    elif what == "sweeps":
        from bench.sweeps import SWEEPS

        rows = [(sweep.name, f"{sweep.question} ({sweep.source})") for sweep in SWEEPS.values()]
    else:
        rows = [("overlap", "training text against test sets: bench data overlap TEXT")]
    width = max(len(name) for name, _ in rows)
    for name, summary in rows:
        click.echo(f"{name:{width}}  {summary}")


@cli.command()
@click.argument("method")
def show(method: str) -> None:
    """Show a method's card: sources, equations, options, deviations."""
    from bench.registry import discover

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


cli.add_command(compare)
cli.add_command(data)
cli.add_command(export)
cli.add_command(pretrain)
cli.add_command(sweep)
cli.add_command(tune)
