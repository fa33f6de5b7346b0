"""A campaign's report in any format."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from bench.compare.select import grouped
from bench.reports.campaign import Campaign
from bench.reports.doubts import with_doubts
from bench.reports.formats import latex
from bench.reports.formats.render import as_json, frame_csv, render_grids
from bench.reports.records import long_frame
from bench.reports.sections import SECTIONS, table_grids
from bench.reports.tables.ablation import ablation_grids
from bench.reports.tables.leaderboard import leaderboards

if TYPE_CHECKING:
    from bench.reports.figures.figure import Figure
    from bench.reports.grid import Grid


def report(campaign: Campaign, form: str, table: str | None = None, *, standalone: bool = False) -> str:
    """Return the whole report, or one table of it.

    Args:
        campaign: What to report on.
        form: "text", "markdown", "csv", "json", "latex" or "html". csv has the records' values, from which
            all tables can be made again.
        table: Name of the only table, see :mod:`bench.reports.sections`.
        standalone: True for a LaTeX document, not tables for one.

    Raises:
        InputError: no such table, or nothing to show.
        DataError: a damaged file of another command in the campaign's folder.
    """
    if form == "html":
        return _page(campaign, table)
    if table is not None:
        grids = table_grids(replace(campaign, pairs=form in ("csv", "json")), table)
        return render_grids(with_doubts(grids, campaign, form), form, standalone=standalone)
    if form == "csv":
        return frame_csv(long_frame(campaign.records, campaign.name))
    if form == "json":
        return as_json([*leaderboards(campaign), *ablation_grids(campaign)])
    grids = [grid for section in SECTIONS if section.printed for grid in section.grids(campaign)]
    return _latex(campaign, grids, standalone) if form == "latex" else render_grids(grids, form)


def _latex(campaign: Campaign, grids: Sequence[Grid], standalone: bool) -> str:
    """The tables, and the diagrams of the groups."""
    from bench.reports.figures.of_records import group_figures
    from bench.reports.formats.picture import critical_difference

    body = "\n".join([latex.tables(grids), *map(critical_difference, group_figures(campaign))])
    return latex.document(body) if standalone else body


def all_figures(campaign: Campaign) -> list[Figure]:
    """Return every figure of a campaign; raises DataError for a damaged file in its folder."""
    from bench.reports.figures.of_files import extra_figures
    from bench.reports.figures.of_records import figures
    from bench.reports.figures.of_sweeps import sweep_figures

    return [*figures(campaign), *sweep_figures(campaign), *extra_figures(campaign)]


def _page(campaign: Campaign, table: str | None) -> str:
    from bench.reports.formats.html import Part, html

    parts, missing = [], []
    if table is not None:
        grids = tuple(with_doubts(table_grids(campaign, table), campaign, "html"))
        parts.append(Part("table", table, grids=grids))
    else:
        from bench.reports.tables.boards import boards

        drawn = grouped(all_figures(campaign), lambda figure: figure.section)
        for section in SECTIONS:
            rich = tuple(boards(campaign)) if section.name == "leaderboard" else ()  # it can be filtered
            grids = () if rich else tuple(section.grids(campaign))
            figures = tuple(drawn.get(section.name, ()))
            if rich or grids or figures:
                parts.append(Part(section.name, section.title, rich, grids, figures))
            else:
                missing.append(f"{section.title}: {section.missing} ({section.hint}).")
    return html(campaign, parts, missing)
