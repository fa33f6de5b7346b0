"""``bench import``: results that were made elsewhere, as records of a campaign."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bench.cli import completion
from bench.cli.commands import bench_command
from bench.cli.modes import given_parameters
from bench.cli.options import results_option
from bench.cli.strict_options import Panel, strict_option
from bench.cli.terminal import progress_bar
from bench.errors import InputError, printable
from bench.records.imported import IMPORTED

if TYPE_CHECKING:
    from bench.imports.import_records import ImportOutcome
    from bench.imports.mteb_choice import MtebChoice
    from bench.imports.published import PublishedResults

KINDS = {
    "mteb": ("benchmark", "models", "revisions", "data_revisions", "metric", "external"),
    "csv": ("suite", "metric", "scale"),
    "items": ("suite", "metric"),
}
"""Options of each kind of source."""
_MOST_LINES, _MOST_TASKS = 10, 12
_SOURCE = "mteb:FOLDER, csv:FILE or items:FILE"


@bench_command()
@click.argument("source", metavar="SOURCE")
@strict_option(
    "--into",
    required=True,
    panel=Panel.MAIN,
    help="Campaign that gets the records.",
    shell_complete=completion.campaign,
)
@strict_option(
    "--benchmark",
    metavar="NAME",
    panel=Panel.MAIN,
    help='mteb: a benchmark, such as "MTEB(eng, v2)", or tasks as mteb:STS12,STS17[en-en].',
)
@strict_option(
    "--models", metavar="NAMES", panel=Panel.MAIN, help="mteb: models with commas between them; default all."
)
@strict_option(
    "--revisions",
    type=click.Choice(["newest", "joined", "all"]),
    default="newest",
    panel=Panel.MAIN,
    help="mteb: the newest complete revision of a model, its scores over revisions, or a row a revision.",
)
@strict_option(
    "--data-revisions",
    type=click.Choice(["one", "any"]),
    default="one",
    panel=Panel.MAIN,
    help="mteb: rows on the most common data revisions alone, or all rows as on mteb's own board.",
)
@strict_option(
    "--external", is_flag=True, panel=Panel.MAIN, help="mteb: also what model cards claim (external/)."
)
@strict_option(
    "--suite",
    metavar="NAME",
    panel=Panel.MAIN,
    shell_complete=completion.suite,
    help="csv, items: name; default the file's.",
)
@strict_option(
    "--metric", metavar="NAME", default="", panel=Panel.MAIN, help="Metric; mteb: default each main score."
)
@strict_option(
    "--scale",
    type=click.Choice(["unit", "points"]),
    panel=Panel.MAIN,
    help="csv: scores from -1 to 1 (unit), or times 100 (points); default: unit, and scores beyond 1 are an "
    "error.",
)
@strict_option(
    "--beside",
    metavar="PROFILE",
    default=IMPORTED,
    panel=Panel.MAIN,
    help="Profile whose rows of the suite they stand beside; default: one of their own.",
)
@strict_option("--dry-run", is_flag=True, panel=Panel.MAIN, help="Only say what would be imported.")
@strict_option(
    "--details", is_flag=True, panel=Panel.OUTPUT, help="List every row that is left out, and every change."
)
@results_option
def import_command(
    source: str,
    into: str,
    benchmark: str | None,
    models: str | None,
    revisions: str,
    data_revisions: str,
    external: bool,
    suite: str | None,
    metric: str,
    scale: str | None,
    beside: str,
    dry_run: bool,
    details: bool,
    results: Path,
) -> None:
    """Import results that other programs made, as records.

    SOURCE is mteb:FOLDER (a folder of mteb.ResultCache, or of the repository of published results),
    csv:FILE (columns method, seed, task, score) or items:FILE (method, seed, task, item, gold, prediction).
    Imported scores are as published: reports mark them, and bench verify doesn't call them verified.
    Importing again says what changed. docs/results-made-elsewhere.md has the forms.
    """
    kind, path = _parse_source(source)
    _check_options(kind)
    if kind == "mteb" and not benchmark:
        expected = 'a benchmark of mteb such as "MTEB(eng, v2)", or tasks: mteb:STS12,STS13'
        raise InputError("mteb's results need --benchmark", where="bench import", expected=expected)
    from bench.imports.import_records import import_results
    from bench.records.store import ResultStore

    if kind == "mteb":
        from bench.imports.mteb_choice import MtebChoice

        names = tuple(name.strip() for name in models.split(",")) if models else ()
        choice = MtebChoice(benchmark or "", names, revisions, data_revisions, metric, external)
        published = _read_mteb(path, choice)
    elif kind == "csv":
        from bench.imports.score_table import read_score_table

        published = read_score_table(path, suite=suite or "", metric=metric, scale=scale or "")
    else:
        from bench.imports.item_table import read_item_table

        published = read_item_table(path, suite=suite or "", metric=metric)
    store = ResultStore(results, into)
    with progress_bar("records", len(published.runs)) as advance:
        outcome = import_results(store, published, beside, advance, dry=dry_run)
    _print_outcome(published, outcome, into, dry=dry_run, most=None if details else _MOST_LINES)


def _read_mteb(folder: Path, choice: MtebChoice) -> PublishedResults:
    """Read a folder of mteb's results, with a progress bar."""
    from bench.imports.mteb_folder import read_mteb_folder

    with progress_bar("files", None) as advance:
        read = 0

        def report_files(count: int) -> None:
            nonlocal read
            advance(count - read)
            read = count

        return read_mteb_folder(folder, choice, report_files)


def _parse_source(source: str) -> tuple[str, Path]:
    kind, colon, path = source.partition(":")
    if kind not in KINDS or not colon or not path:
        raise InputError(f"'{source}' is not a source", where="bench import", expected=_SOURCE)
    return kind, Path(path).expanduser()


def _check_options(kind: str) -> None:
    """Refuse options of other kinds of source."""
    foreign = {name for names in KINDS.values() for name in names} - set(KINDS[kind])
    for parameter in given_parameters(click.get_current_context()):
        if parameter.name in foreign:
            kinds = " and ".join(each for each, names in KINDS.items() if parameter.name in names)
            where = f"bench import, {parameter.opts[0]}"
            raise InputError(f"it is for {kinds}, not for {kind}", where=where, hint="leave it out")


def _print_outcome(
    results: PublishedResults, outcome: ImportOutcome, campaign: str, *, dry: bool, most: int | None
) -> None:
    """Print what was imported, what was left out, and what changed, at most so many lines of each."""
    rows = len({run.method for run in results.runs})
    tasks = len(results.runs[0].tasks) if results.runs else 0
    verb = "would be imported" if dry else "imported"
    runs = _count(rows, "row")
    if len(results.runs) > rows:
        runs = f"{_count(len(results.runs), 'run')} of {runs}"
    text = f"{runs}, {_count(tasks, 'task')} of {results.suite}, {verb} into {campaign}"
    text += f": {outcome.added} new, {outcome.updated} updated, {outcome.unchanged} unchanged."
    click.echo(printable(text))
    if results.runs:
        named = list(results.runs[0].tasks)
        more = f" and {len(named) - _MOST_TASKS} more" if len(named) > _MOST_TASKS else ""
        click.echo(printable(f"Tasks: {', '.join(named[:_MOST_TASKS])}{more}."))
    for note in results.notes:
        click.echo(printable(note))
    left_out = [f"{row}: {why}" for row, why in results.left_out.items()]
    _print_list(f"Left out, {_count(len(left_out), 'row')}", left_out, most)
    changes = [f"{c.row} {c.task}: {c.then:.6g} then, {c.now:.6g} now" for c in outcome.changed]
    _print_list(f"Changed since the last import, {_count(len(changes), 'score')}", changes, most)
    gone = outcome.gone
    _print_list(f"No longer in the source, kept in the campaign, {_count(len(gone), 'run')}", gone, most)
    if outcome.others:
        click.echo(f"{_count(outcome.others, 'run')} of other sources stay in the campaign beside them.")
    if not dry:
        click.echo(f"bench report --campaign {campaign} prints the leaderboard.")


def _print_list(title: str, lines: Sequence[str], most: int | None) -> None:
    if not lines:
        return
    click.echo(f"{title}:")
    for line in lines[:most]:
        click.echo(printable(f"  {line}"))
    if most is not None and len(lines) > most:
        click.echo(f"  and {len(lines) - most:,} more (--details)")


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"
