"""Render a campaign as one self-contained HTML page, with escaped texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from jinja2 import Environment
from markupsafe import Markup

from bench.render import svg
from bench.render.figure import BEYOND, Figure
from bench.render.grid import SCALE, Grid, Quoted, ScoreCell, format_difference, format_score
from bench.render.template import own_file, page_environment
from bench.reports.campaign import Campaign
from bench.reports.merge_campaigns import list_unreadable
from bench.reports.record_groups import describe_provenance, readable_records, record_notes
from bench.reports.tables.differences import PAIR_HEADER, method_differences
from bench.reports.tables.leaderboard_page import Board
from bench.reports.tables.method_cards import campaign_cards, run_tables
from bench.reports.tables.pairwise_tests import LEVEL
from bench.version import __version__

_MOST_DATA = 300  # points that a figure repeats as a table
_MOST_RECORDS = 5  # links of a leaderboard's row; below the seeds are all


@dataclass(frozen=True)
class PagePart:
    """Tables and figures under a heading."""

    id: str
    title: str
    boards: tuple[Board, ...] = ()
    grids: tuple[Grid, ...] = ()
    figures: tuple[Figure, ...] = ()


def render_campaign_page(campaign: Campaign, parts: Sequence[PagePart], missing: Sequence[str]) -> str:
    """Return a campaign's page as one file; ``missing`` lists its empty parts.

    A whole page (one with leaderboards) has every run below the seeds, and all pairs of methods and the
    methods' cards in place of tables.
    """
    context = page_context(campaign, parts, missing) | own_file("style", "report.css", "figure.css")
    context |= own_file("script", "report.js", "figures.js")
    return report_environment().get_template("report.html").render(context).strip() + "\n"


@cache
def report_environment() -> Environment:
    """Return the template environment of pages with tables and figures."""
    environment = page_environment()
    environment.filters |= {
        "svg": _svg_markup,
        "legend": _legend_markup,
        "number": format_score,
        "difference": format_difference,
        "data": _figure_data,
        "interval": _interval_text,
    }
    environment.tests |= {
        "cell": lambda value: isinstance(value, ScoreCell),
        "quoted": lambda value: isinstance(value, Quoted),
    }
    return environment


def page_context(campaign: Campaign, parts: Sequence[PagePart], missing: Sequence[str]) -> dict[str, Any]:
    """Return the template variables of a campaign's page, see :func:`render_campaign_page`."""
    whole = any(part.boards for part in parts)
    return {
        "campaign": campaign,
        "parts": parts,
        "missing": missing,
        "remarks": _list_remarks(campaign),
        "count": len(readable_records(campaign.records)),
        "facts": describe_provenance(campaign.records, campaign.name),
        "level": f"{100 * LEVEL:g}%",
        "version": __version__,
        "scale": SCALE,
        "runs": run_tables(campaign) if whole else {},
        "has_runs": any(part.id == "seeds" for part in parts),
        "differences": method_differences(campaign) if whole else [],
        "pair_header": PAIR_HEADER,
        "cards": campaign_cards(campaign) if whole else [],
        "beyond": BEYOND,
        "most": _MOST_RECORDS,
    }


def _list_remarks(campaign: Campaign) -> list[str]:
    """Return the notes of records, of unreadable ones, and of files that no manifest seals."""
    unsealed = campaign.unsealed_note()
    return [*record_notes(campaign.records), *list_unreadable(campaign), *[unsealed] * bool(unsealed)]


def _svg_markup(figure: Figure) -> Markup:
    return Markup(svg.draw_svg(figure))  # noqa: S704 - it escapes every text


def _legend_markup(figure: Figure) -> list[tuple[Markup, str]]:
    return [(Markup(mark), name) for mark, name in svg.legend_entries(figure)]  # noqa: S704 - our own


def _interval_text(ends: tuple[float, float] | None) -> str:
    return "-" if ends is None else f"[{SCALE * ends[0]:.2f}, {SCALE * ends[1]:.2f}]"


def _figure_data(figure: Figure) -> list[tuple[str, ...]]:
    """A figure's points as rows (series or row, x, y, band), if they are few."""
    banded = any(series.band for series in figure.series)
    rows: list[tuple[str, ...]] = []
    for series in figure.series:
        bands = series.band or zip(series.y, series.y, strict=True)
        for x, y, (low, high) in zip(series.x, series.y, bands, strict=True):
            if figure.kind in ("strip", "ranking"):
                rows.append((figure.rows[int(y)], series.name, f"{x:.2f}"))
            else:
                band = (f"{low:.4g} to {high:.4g}",) if banded else ()
                rows.append((series.name, f"{x:.4g}", f"{y:.4g}", *band))
    return rows if len(rows) <= _MOST_DATA else []
