"""A campaign's report in any format."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bench.comparison.selection import group_by
from bench.errors import InputError
from bench.render import formats, latex
from bench.render.formats import FILE, Screen, frame_csv, render_grids, render_json
from bench.reports.campaign import Campaign
from bench.reports.formats.paper_latex import PaperStyle
from bench.reports.formats.paper_latex import render_paper_tables as printed_tables
from bench.reports.records import long_frame
from bench.reports.sections import SECTIONS, TABLES, table_grids
from bench.reports.tables.leaderboard import all_leaderboards
from bench.reports.tables.paper_tables import paper_tables
from bench.reports.unreadable_records import append_doubts

if TYPE_CHECKING:
    from bench.render.figure import Figure
    from bench.render.grid import Grid
    from bench.reports.formats.report_page import PagePart


@dataclass(frozen=True)
class TableOptions:
    """How tables are shown.

    Args:
        columns: Names of the columns, in their order; empty for all.
        screen: What text is for.
        style: For LaTeX that a paper can print; None for all that a report says.
    """

    columns: tuple[str, ...] = ()
    screen: Screen = FILE
    style: PaperStyle | None = None


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
        campaign: What to report on.
        form: "text", "markdown", "csv", "json", "latex" or "html". csv has the records' values, from which
            all tables can be made again.
        table: Name of the only table, see :mod:`bench.reports.sections`.
        look: How tables are shown.
        standalone: True for a LaTeX document, not tables for one.

    Raises:
        InputError: no such table or column, or nothing to show.
        DataError: a damaged file of another command in the campaign's folder.
    """
    if look.style is not None:
        found = paper_tables(campaign, look.columns)
        return printed_tables(found, look.style, standalone=standalone)
    if form == "html":
        _refuse_columns(look, "the page has its own switches for columns")
        return _report_page(campaign, table)
    if table is not None:
        grids = table_grids(replace(campaign, pairs=form in ("csv", "json")), table)
        grids = append_doubts(formats.select_columns(grids, look.columns), campaign, form)
        return render_grids(grids, form, standalone=standalone, screen=look.screen)
    if form == "csv":
        return _long_csv(campaign, look)
    if form == "json":
        _refuse_columns(look, "name a table: --table leaderboard")
        sweeps = TABLES["ablation:SWEEP"].grids(campaign)
        return render_json([*all_leaderboards(campaign), *sweeps])
    grids = [grid for section in SECTIONS if section.printed for grid in section.grids(campaign)]
    grids = formats.select_columns(grids, look.columns)
    if form == "latex":
        return _latex_report(campaign, grids, standalone)
    return render_grids(grids, form, screen=look.screen)


def _refuse_columns(look: TableOptions, hint: str) -> None:
    if look.columns:
        raise InputError("columns can't be chosen here", where="--columns", hint=hint)


def _long_csv(campaign: Campaign, look: TableOptions) -> str:
    """The records' values, a row each."""
    frame = long_frame(campaign.records, lambda record: campaign.home(record).campaign)
    frame["method"] = frame["method"].map(campaign.shown)
    formats.check_columns(look.columns, list(frame.columns))
    wanted = formats.column_positions(list(frame.columns), look.columns) or range(len(frame.columns))
    return frame_csv(frame.iloc[:, list(wanted)])


def _latex_report(campaign: Campaign, grids: Sequence[Grid], standalone: bool) -> str:
    """The tables, and the diagrams of the groups."""
    from bench.render.latex_picture import ranking_picture
    from bench.reports.figures.suite_plots import group_figures

    body = "\n".join([latex.latex_tables(grids), *map(ranking_picture, group_figures(campaign))])
    return latex.latex_document(body) if standalone else body


def all_figures(campaign: Campaign) -> list[Figure]:
    """Return every figure of a campaign; raises DataError for a damaged file in its folder."""
    from bench.reports.figures.campaign_files import file_figures
    from bench.reports.figures.setting_order_plots import order_figures
    from bench.reports.figures.suite_plots import suite_figures
    from bench.reports.figures.sweep_plots import sweep_figures

    return [
        *suite_figures(campaign),
        *order_figures(campaign),
        *sweep_figures(campaign),
        *file_figures(campaign),
    ]


def _report_page(campaign: Campaign, table: str | None) -> str:
    from bench.reports.formats.report_page import PagePart, render_campaign_page

    if table is None:
        return render_campaign_page(campaign, *page_parts(campaign))
    grids = tuple(append_doubts(table_grids(campaign, table), campaign, "html"))
    return render_campaign_page(campaign, [PagePart("table", table, grids=grids)], [])


def page_parts(campaign: Campaign) -> tuple[list[PagePart], list[str]]:
    """Return the parts of a campaign's page, and what it could show, why it doesn't, and what makes it."""
    from bench.reports.formats.report_page import PagePart
    from bench.reports.tables.boards import page_boards

    parts, missing = [], []
    drawn = group_by(all_figures(campaign), lambda figure: figure.section)
    for section in SECTIONS:
        rich = tuple(page_boards(campaign)) if section.name == "leaderboard" else ()  # it can be filtered
        grids = () if rich else tuple(section.grids(campaign))
        figures = tuple(drawn.get(section.name, ()))
        if rich or grids or figures:
            parts.append(PagePart(section.name, section.title, rich, grids, figures))
        else:
            missing.append("{}: {} ({}).".format(section.title, *section.lacks(campaign)))
    return parts, missing
