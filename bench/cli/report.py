"""``bench report``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bench.cli import completion
from bench.cli.config import option_once
from bench.cli.options import PATH, filter_options, format_option, results_option, together
from bench.errors import BenchError, DataError, InputError, not_one_of
from bench.reports.sections import TABLES

if TYPE_CHECKING:
    from bench.records.record import RunRecord
    from bench.reports.campaign import Campaign
    from bench.reports.formats.paper import Style

_rows = together(
    option_once(
        "--methods",
        metavar="IDS",
        shell_complete=completion.recorded_methods,
        help="Only these methods, with commas between them.",
    ),
    option_once(
        "--order",
        type=click.Choice(["score", "given"]),
        default="score",
        help="given: as --methods has them.",
    ),
    option_once(
        "--names", metavar="FILE", help="Names to print: lines METHOD = \"name\"; 'published': the papers'."
    ),
    option_once("--columns", metavar="NAMES", help="Only these columns, in this order."),
    option_once("--width", type=click.IntRange(40), help="Characters of text; default: the terminal's."),
)
_paper = together(
    option_once("--style", type=click.Choice(["booktabs", "acl"]), help="LaTeX that a paper can print."),
    option_once("--caption", metavar="LATEX", help="Its caption, in the place of what was measured."),
    option_once("--label", help="Its label, such as tab:main."),
    option_once("--cite", "cites", metavar="METHOD=KEY,...", help="Papers to cite beside the names."),
)


@click.command()
@format_option("text", "markdown", "csv", "json", "latex", "html")
@option_once("--table", metavar="NAME", help=f"Only this table: {', '.join(TABLES)}.")
@filter_options
@_rows
@option_once(
    "--baseline",
    metavar="METHOD",
    shell_complete=completion.recorded_method,
    help="Mark what differs from this method with daggers.",
)
@option_once(
    "--senteval-rounding", "rounded", is_flag=True, help="Average rounded scores, as SimCSE prints them."
)
@option_once(
    "--checkpoint",
    type=click.Choice(["selected", "last"]),
    default="selected",
    help="Scores of the checkpoint that the dev set chose, or of the training's last.",
)
@option_once(
    "--rank-supervised",
    is_flag=True,
    help="Rank supervised rows among the others; else they stand below them.",
)
@_paper
@option_once("--standalone", is_flag=True, help="A LaTeX document, not tables for one.")
@option_once("--figures", type=PATH, help="Draw every figure into DIR, as PDF, PNG and SVG.")
@results_option
@option_once(
    "--campaign",
    metavar="NAME[,NAME...]",
    default="local",
    shell_complete=completion.campaigns,
    help="Folders of records below --results; several are one report, refused where they contradict.",
)
def report(
    form: str,
    table: str | None,
    columns: str | None,
    width: int | None,
    standalone: bool,
    figures: Path | None,
    **chosen: Any,
) -> None:
    """Print the tables of campaigns from their records alone: leaderboards and sweeps, or one by name.

    html is one file for a browser, without a network: everything that the records hold.
    """
    from bench.cli.terminal import screen
    from bench.render.formats import wanted
    from bench.reports.report import Look, all_figures
    from bench.reports.report import report as make

    paper = {name: chosen.pop(name) for name in ("style", "caption", "label", "cites")}
    if given := [f"--{name.removesuffix('s')}" for name, value in paper.items() if value is not None]:
        form = _latex(form, table, given[0])
    if standalone and form != "latex":
        raise InputError("--standalone is for LaTeX", where="bench report", hint="add --format latex")
    if width is not None and form != "text":
        raise InputError("--width is for text", where="bench report", hint="leave it out")
    source, damaged = _campaign(**chosen, published=bool(given))
    try:
        look = Look(wanted(columns), screen(width), _style(source, **paper))
        made = make(source, form, table, look, standalone=standalone)
    except BenchError:
        for error in damaged:  # it may be why
            click.echo(str(error), err=True)
        raise
    click.echo(made, nl=False)
    if figures is not None:
        from bench.render.draw import draw

        for path in draw(all_figures(source), figures):
            click.echo(f"figure: {path}", err=True)
    _leave_if_damaged(damaged)


def _latex(form: str, table: str | None, option: str) -> str:
    """The format of a paper's table; raises InputError where another one, or another table, is asked for."""
    asked = click.get_current_context().get_parameter_source("form")
    if form != "latex" and asked is not click.core.ParameterSource.DEFAULT:
        raise InputError(f"{option} is for LaTeX", where=f"--format {form}", hint="leave out --format")
    if table not in (None, "leaderboard"):
        raise InputError(
            f"{option} is for the leaderboard", where=f"--table {table}", hint="leave out --table"
        )
    return "latex"


def _style(source: Campaign, **asked: str | None) -> Style | None:
    from bench.reports.formats.paper import style

    methods = list(dict.fromkeys(record.method for record in source.records))
    return style(asked["style"], asked["caption"], asked["label"], asked["cites"], methods)


def _leave_if_damaged(errors: Sequence[DataError]) -> None:
    """Say which records couldn't be read, the last line an error that exits with 1."""
    if len(errors) == 1:
        raise BenchError(errors[0].what, where=errors[0].where, hint=errors[0].hint)
    for error in errors:
        click.echo(str(error), err=True)
    if errors:
        raise BenchError(f"{len(errors)} records can't be read", hint="the lines above say why")


def _campaign(
    results: Path,
    campaign: str,
    profile: str | None,
    suite: str | None,
    baseline: str | None,
    rounded: bool,
    checkpoint: str,
    methods: str | None,
    order: str,
    names: str | None,
    published: bool,
    rank_supervised: bool,
) -> tuple[Campaign, list[DataError]]:
    """Return the chosen part of a campaign or several, and why records of them can't be read."""
    from bench.reports import choice, joined
    from bench.reports.campaign import Campaign, ready
    from bench.reports.records import last_checkpoints

    stores = joined.stores_of(results, campaign)
    every = joined.gathered(stores)
    found = [
        one for one in every if profile in (None, one.record.profile) and suite in (None, one.record.suite)
    ]
    if not found:
        raise InputError("no record matches", where=f"campaign {campaign}", hint="bench run makes records")
    known = [one.record for one in found]
    rows = choice.listed(methods, known)
    found = joined.joined([one for one in found if not rows or one.record.method in rows])
    records = tuple(one.record for one in found)
    if checkpoint == "last":
        records = tuple(last_checkpoints(records))
    baseline = _known_baseline(baseline, records)
    sweeps = tuple(joined.joined_sweeps(stores, profile, suite))
    homes = joined.homes_of(found)
    source = ready(
        Campaign(
            *(stores, records, sweeps, baseline, rounded),
            homes=homes,
            rank_supervised=rank_supervised,
            last=checkpoint == "last",
        )
    )
    source = choice.chosen(source, rows, known, given=order == "given")
    names = choice.PUBLISHED if names is None and published else names
    source = choice.named(source, names, {one.record.method for one in every})
    return source, [error for one in found for error in one.errors]


def _known_baseline(baseline: str | None, records: Sequence[RunRecord]) -> str | None:
    from bench.comparison.select import row_meant

    if baseline is None:
        return None
    names = {record.method for record in records}
    found = row_meant(baseline, names, records)
    if found not in names:
        raise not_one_of(f"no record of '{baseline}'", baseline, sorted(names), where="--baseline")
    return found
