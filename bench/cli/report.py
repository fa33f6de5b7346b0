"""``bench report``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bench.cli import completion
from bench.cli.commands import bench_command
from bench.cli.options import (
    PATH,
    POSITIVE_POINTS,
    combine_options,
    data_option,
    details_option,
    filter_options,
    format_option,
    print_stderr,
    results_option,
)
from bench.cli.strict_options import Panel, strict_option
from bench.errors import BenchError, DataError, InputError
from bench.reports.sections import TABLES

if TYPE_CHECKING:
    from bench.reports.campaign import Campaign

_row_options = combine_options(
    strict_option(
        "--methods",
        metavar="IDS",
        shell_complete=completion.recorded_methods,
        panel=Panel.ROWS,
        help="Only these methods, comma-separated.",
    ),
    strict_option(
        "--order",
        type=click.Choice(["score", "given"]),
        default="score",
        panel=Panel.ROWS,
        help="Order of rows; given: as in --methods.",
    ),
    strict_option(
        "--names",
        metavar="FILE",
        panel=Panel.ROWS,
        help='File with lines METHOD = "name", or published: the papers\' names.',
    ),
    strict_option("--columns", metavar="NAMES", panel=Panel.ROWS, help="Only these columns, in this order."),
    strict_option(
        "--width",
        type=click.IntRange(40),
        panel=Panel.OUTPUT,
        rare=True,
        help="Characters of text; default: the terminal's.",
    ),
)
_latex_options = combine_options(
    strict_option(
        "--standalone", is_flag=True, panel=Panel.LATEX, rare=True, help="Write a complete LaTeX document."
    ),
    strict_option(
        "--sd",
        type=click.Choice(["avg", "all", "none"]),
        panel=Panel.LATEX,
        rare=True,
        help="LaTeX columns with standard deviations; default: avg.",
    ),
)
_paper_options = combine_options(
    strict_option(
        "--style", type=click.Choice(["booktabs", "acl"]), panel=Panel.LATEX, help="LaTeX table for a paper."
    ),
    strict_option(
        "--caption",
        metavar="LATEX",
        panel=Panel.LATEX,
        rare=True,
        help="Its caption, in place of the default one.",
    ),
    strict_option("--label", panel=Panel.LATEX, rare=True, help="Its label, such as tab:main."),
    strict_option(
        "--cite",
        "cites",
        metavar="METHOD=KEY,...",
        panel=Panel.LATEX,
        rare=True,
        help="Papers to cite next to the names.",
    ),
)


@bench_command()
@format_option("text", "markdown", "csv", "json", "latex", "html")
@strict_option("--table", metavar="NAME", panel=Panel.MAIN, help=f"Only this table: {', '.join(TABLES)}.")
@filter_options
@_row_options
@strict_option(
    "--baseline",
    metavar="METHOD",
    shell_complete=completion.recorded_method,
    panel=Panel.TESTS,
    help="Row that the others are compared with; default: the sealed plan's, otherwise simcse, if it has two "
    "seeds.",
)
@strict_option(
    "--family",
    "family_kind",
    type=click.Choice(["baseline", "all"]),
    panel=Panel.TESTS,
    rare=True,
    help="Tests of the leaderboard: rows against the baseline (default where there is one), or all pairs, "
    "for ranks alone.",
)
@strict_option(
    "--margin",
    type=POSITIVE_POINTS,
    panel=Panel.TESTS,
    help="Points within which a row counts as equal to the baseline; default: the sealed plan's, otherwise "
    "0.5.",
)
@strict_option(
    "--all-rows",
    is_flag=True,
    panel=Panel.ROWS,
    help="List rows that are set aside too: variants, single seeds.",
)
@strict_option(
    "--senteval-rounding",
    "rounded",
    is_flag=True,
    panel=Panel.ROWS,
    rare=True,
    help="Average rounded scores, as SimCSE does.",
)
@strict_option(
    "--checkpoint",
    type=click.Choice(["selected", "last"]),
    default="selected",
    panel=Panel.ROWS,
    rare=True,
    help="Scores of the checkpoint that the dev set selected, or of the last one.",
)
@strict_option(
    "--rank-supervised",
    is_flag=True,
    panel=Panel.ROWS,
    rare=True,
    help="Rank supervised rows among the others instead of listing them below.",
)
@details_option
@_paper_options
@_latex_options
@strict_option(
    "--figures", type=PATH, panel=Panel.OUTPUT, help="Draw every figure into DIR, as PDF, PNG and SVG."
)
@data_option("Evaluation data, to recompute scores from predictions; default BENCH_DATA.")
@results_option
@strict_option(
    "--campaign",
    metavar="NAME[,NAME...]",
    default="local",
    shell_complete=completion.campaigns,
    panel=Panel.MAIN,
    help="Folders of records below --results, merged into one report; contradictions are an error.",
)
def report_command(
    form: str,
    table: str | None,
    columns: str | None,
    width: int | None,
    standalone: bool,
    sd: str | None,
    details: bool,
    figures: Path | None,
    **chosen: Any,
) -> None:
    """Print leaderboards and other tables of campaigns.

    Text has the answers first, then the tables and at most three notes; other formats have everything.

    Scores are recomputed from predictions first, where the evaluation data are there. html is one
    self-contained file for a browser, with all tables and figures.
    """
    from bench.cli.terminal import get_screen
    from bench.render.formats import parse_columns
    from bench.reports.formats.paper_latex import parse_style
    from bench.reports.report import TableOptions, all_figures, render_report
    from bench.reports.short_report import render_short_report

    paper = {name: chosen.pop(name) for name in ("style", "caption", "label", "cites")}
    if given := [f"--{name.removesuffix('s')}" for name, value in paper.items() if value is not None]:
        form = _check_latex_format(form, table, given[0])
    _check_form_options(form, {"--standalone": standalone, "--sd": sd is not None}, "latex", "LaTeX")
    _check_form_options(form, {"--width": width is not None, "--details": details}, "text", "text")
    source, damaged = _load_campaign(**chosen)
    try:
        cites = paper["cites"]
        style = parse_style(paper["style"], paper["caption"], paper["label"], cites, source.records)
        look = TableOptions(parse_columns(columns), get_screen(width), style, sd or "avg")
        if form == "text":
            tables = render_short_report(source, look, table, details=details)
        else:
            tables = render_report(source, form, table, look, standalone=standalone)
    except BenchError:
        for error in damaged:  # a possible cause
            print_stderr(str(error))
        raise
    click.echo(tables, nl=False)
    if figures is not None:
        from bench.render.figure_files import draw_figures

        for path in draw_figures(all_figures(source), figures):
            print_stderr(f"figure: {path}")
    _raise_damaged(damaged)


def _check_form_options(form: str, options: Mapping[str, bool], needed: str, title: str) -> None:
    """Raise InputError for an option of another format than the chosen one."""
    for option, asked in options.items():
        if asked and form != needed:
            hint = f"add --format {needed}" if needed == "latex" else "leave it out"
            raise InputError(f"{option} is for {title}", where="bench report", hint=hint)


def _check_latex_format(form: str, table: str | None, option: str) -> str:
    """Return the format of a paper's table; raises InputError for another format or table."""
    asked = click.get_current_context().get_parameter_source("form")
    if form != "latex" and asked is not click.core.ParameterSource.DEFAULT:
        raise InputError(f"{option} is for LaTeX", where=f"--format {form}", hint="leave out --format")
    if table not in (None, "leaderboard"):
        what = f"{option} is for the leaderboard"
        raise InputError(what, where=f"--table {table}", hint="leave out --table")
    return "latex"


def _raise_damaged(errors: Sequence[DataError]) -> None:
    if len(errors) == 1:
        raise BenchError(errors[0].what, where=errors[0].where, hint=errors[0].hint)
    for error in errors:
        print_stderr(str(error))
    if errors:
        raise BenchError(f"{len(errors)} records can't be read", hint="the lines above say why")


def _check_baseline(source: Campaign) -> None:
    """Raise InputError for a baseline that is set aside in every profile and suite."""
    from bench.reports.method_family import SUPERVISED, VARIANT
    from bench.reports.record_groups import by_profile_and_suite

    families = [source.family(records) for records in by_profile_and_suite(source.records)]
    reasons = [family.aside.get(source.baseline or "") for family in families]
    if source.baseline is not None and reasons and all(reasons):
        what = f"'{source.baseline}' is set aside ({reasons[0]}), so nothing is compared with it"
        hints = {VARIANT: "name it and the other rows in --methods", SUPERVISED: "--rank-supervised ranks it"}
        raise InputError(what, where="--baseline", hint=hints.get(str(reasons[0]), "choose another row"))


def _load_campaign(
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
    rank_supervised: bool,
    family_kind: str | None,
    margin: float | None,
    all_rows: bool,
    data_dir: Path | None,
) -> tuple[Campaign, list[DataError]]:
    """Return the chosen part of one or several campaigns, and the errors of unreadable records."""
    from bench.cli.terminal import progress_bar
    from bench.comparison.row_lookup import find_row
    from bench.eval.recomputation import split_contradictions
    from bench.records.sealed_plan import FILE as PLAN
    from bench.reports import merge_campaigns, method_choice
    from bench.reports.campaign import Campaign, choose_test, prepare_campaign
    from bench.reports.record_groups import last_checkpoints

    stores = merge_campaigns.parse_campaigns(results, campaign)
    collected = merge_campaigns.collect_records(stores)
    matching = [entry for entry in collected if profile in (None, entry.record.profile)]
    matching = [entry for entry in matching if suite in (None, entry.record.suite)]
    if not collected and any((store.root / PLAN).is_file() for store in stores):
        what = "no run of the sealed plan is done yet"
        raise InputError(what, where=f"campaign {campaign}", hint="bench run makes records")
    if not matching:
        raise InputError("no record matches", where=f"campaign {campaign}", hint="bench run makes records")
    known = [entry.record for entry in matching]
    rows = method_choice.parse_method_list(methods, known)
    chosen = [entry for entry in matching if not rows or entry.record.method in rows]
    with progress_bar("scores", len(chosen)) as advance:
        check = partial(split_contradictions, data=data_dir, progress=advance)
        chosen = merge_campaigns.refuse_contradictions(chosen, check)
    merged = merge_campaigns.merge_records(chosen)
    records = tuple(entry.record for entry in merged)
    if checkpoint == "last":
        records = tuple(last_checkpoints(records))
    if baseline is not None:
        row_names = {record.method for record in records}
        baseline = find_row(baseline, row_names, records, where="--baseline")
    named_baseline = baseline is not None
    given = None if margin is None else margin / 100
    planned, family_kind, difference = choose_test(stores, baseline, family_kind, given)
    present = {record.method for record in records}
    baseline = planned if planned in present else baseline  # --methods may leave out the planned one
    sweeps = tuple(merge_campaigns.merge_sweeps(stores, profile, suite))
    source = prepare_campaign(
        Campaign(
            *(stores, records, sweeps, baseline, rounded),
            homes=merge_campaigns.record_stores(merged),
            rank_supervised=rank_supervised,
            family_kind=family_kind,
            margin=difference,
            all_rows=all_rows,
            chosen=(profile, suite),
            last=checkpoint == "last",
        )
    )
    source = method_choice.restrict_campaign(source, rows, known, given=order == "given")
    if named_baseline:
        _check_baseline(source)
    source = method_choice.name_methods(source, names, [entry.record for entry in collected])
    return source, [error for entry in merged for error in entry.errors]
