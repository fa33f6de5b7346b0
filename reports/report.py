"""Render a campaign's report in any format."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING

from bench.comparison.selection import group_by
from bench.errors import InputError
from bench.render import formats, latex
from bench.render.formats import FILE, Screen, frame_csv, render_grids, render_json
from bench.render.row_names import mark_rows
from bench.reports.campaign import Campaign
from bench.reports.formats.paper_latex import PaperStyle, render_paper_tables
from bench.reports.merge_campaigns import append_doubts
from bench.reports.method_choice import name_rows_in_full, use_published_names, use_short_ids
from bench.reports.planned_runs import add_planned_column
from bench.reports.record_groups import finished_records, long_frame
from bench.reports.sections import SECTIONS, TABLES, table_grids
from bench.reports.tables.leaderboard import all_leaderboards
from bench.reports.tables.paper_tables import paper_tables

if TYPE_CHECKING:
    from bench.render.figure import Figure
    from bench.render.grid import Grid
    from bench.reports.formats.report_page import PagePart


@dataclass(frozen=True)
class TableOptions:
    """How tables look: columns in order (empty for all), a text's screen, a paper's style, if any.

    ``sd`` says which columns of LaTeX print deviations: one of :data:`bench.render.latex.DEVIATIONS`.
    """

    columns: tuple[str, ...] = ()
    screen: Screen = FILE
    style: PaperStyle | None = None
    sd: str = latex.DEVIATIONS[0]


def render_report(
    campaign: Campaign,
    form: str,
    table: str | None = None,
    look: TableOptions = TableOptions(),
    *,
    standalone: bool = False,
) -> str:
    """Return the whole report, or one table of it.

    Args:
        form: One of ``FORMATS`` or "html"; csv has the records' values, which determine all tables.
        table: Name of the only table, see :mod:`bench.reports.sections`.
        standalone: True for a whole LaTeX document.

    Raises:
        InputError: an unknown table or column, or an empty table.
        DataError: a damaged file of another command in the campaign's folder.
    """
    campaign = _name_rows(campaign, "latex" if look.style is not None else form)
    if look.style is not None:
        tables = paper_tables(campaign, look.columns, look.sd)
        return render_paper_tables(tables, look.style, standalone=standalone)
    if form == "html":
        _refuse_columns(look, "the page has its own switches for columns")
        return _report_page(campaign, table)
    if table is not None:
        data = form in ("csv", "json")
        grids = table_grids(replace(campaign, pairs=data, all_rows=campaign.all_rows or data), table)
        grids = append_doubts(formats.select_columns(grids, look.columns), campaign, form)
        grids = _finish_grids(grids, form, look, campaign)
        return render_grids(grids, form, standalone=standalone, screen=look.screen)
    if form == "csv":
        return _long_csv(campaign, look)
    if form == "json":
        _refuse_columns(look, "name a table: --table leaderboard")
        boards = all_leaderboards(replace(campaign, all_rows=True))
        return render_json([*boards, *TABLES["ablation:SWEEP"].grids(campaign)])
    printed = (section.grids(campaign) for section in SECTIONS if section.printed)
    grids = formats.select_columns(list(chain.from_iterable(printed)), look.columns)
    grids = _finish_grids(grids, form, look, campaign)
    if form != "latex":
        return render_grids(grids, form, screen=look.screen)
    from bench.render.critical_difference import ranking_picture
    from bench.reports.figures.suite_plots import group_figures

    body = "\n".join([latex.latex_tables(grids), *map(ranking_picture, group_figures(campaign))])
    return latex.latex_document(body) if standalone else body


def _name_rows(campaign: Campaign, form: str) -> Campaign:
    """Return a campaign with a format's names: published ones, short ids, or for data whole ids."""
    if form in ("csv", "json"):
        return name_rows_in_full(campaign)
    return use_published_names(campaign) if form in ("latex", "html") else use_short_ids(campaign)


def _finish_grids(grids: Sequence[Grid], form: str, look: TableOptions, campaign: Campaign) -> list[Grid]:
    """Return tables with footnotes on their rows' names; in LaTeX with the deviations that are asked for."""
    marked = [mark_rows(grid, campaign.footnotes) for grid in grids]
    return [latex.limit_deviations(grid, look.sd) for grid in marked] if form == "latex" else marked


def _refuse_columns(look: TableOptions, hint: str) -> None:
    if look.columns:
        raise InputError("columns can't be chosen here", where="--columns", hint=hint)


def _long_csv(campaign: Campaign, look: TableOptions) -> str:
    """The records' values, a row each."""
    frame = long_frame(campaign.records, lambda record: campaign.home(record).campaign)
    if campaign.plans:
        frame = add_planned_column(frame, campaign)
    frame["method"] = frame["method"].map(campaign.shown)
    formats.check_columns(look.columns, list(frame.columns))
    wanted = formats.column_positions(list(frame.columns), look.columns) or range(len(frame.columns))
    return frame_csv(frame.iloc[:, list(wanted)])


def all_figures(campaign: Campaign) -> list[Figure]:
    """Return every figure of a campaign; raises DataError for a damaged file in its folder."""
    from bench.reports.figures.campaign_files import file_figures
    from bench.reports.figures.forest import forest_figures
    from bench.reports.figures.suite_plots import order_figures, suite_figures, sweep_figures

    makers = (forest_figures, suite_figures, order_figures, sweep_figures, file_figures)
    return [figure for make in makers for figure in make(campaign)]


def page_figures(campaign: Campaign) -> list[Figure]:
    """Return the figures of a page; the forest plot, seeds and tasks are tables there."""
    from bench.reports.figures.campaign_files import file_figures
    from bench.reports.figures.suite_plots import order_figures, page_suite_figures, sweep_figures

    makers = (page_suite_figures, order_figures, sweep_figures, file_figures)
    return [figure for make in makers for figure in make(campaign)]


def _report_page(campaign: Campaign, table: str | None) -> str:
    from bench.reports.formats.report_page import PagePart, render_campaign_page

    if table is None:
        return render_campaign_page(campaign, *page_parts(campaign))
    grids = append_doubts(table_grids(campaign, table), campaign, "html")
    marked = tuple(mark_rows(grid, campaign.footnotes) for grid in grids)
    return render_campaign_page(campaign, [PagePart("table", table, grids=marked)], [])


def page_parts(campaign: Campaign) -> tuple[list[PagePart], list[str]]:
    """Return the parts of a campaign's page, and a line with reason and command for each empty one."""
    from bench.reports.formats.report_page import PagePart
    from bench.reports.tables.leaderboard_page import page_boards

    parts, missing = [], []
    figures = group_by(page_figures(campaign), lambda figure: figure.section)
    for section in (section for section in SECTIONS if section.tab):
        boards = page_boards(campaign) if section.name == "leaderboard" else []  # tables with filters
        grids = [] if boards else section.grids(campaign)
        grids = [mark_rows(grid, campaign.footnotes) for grid in grids]
        drawn = tuple(figures.get(section.name, ()))
        has_runs = section.name == "seeds" and bool(finished_records(campaign.records))
        if boards or grids or drawn or has_runs:
            head = section.name, section.title, section.tab
            parts.append(PagePart(*head, tuple(boards), tuple(grids), drawn))
        else:
            missing.append("{}: {} ({}).".format(section.title, *section.lacks(campaign)))
    return parts, missing
