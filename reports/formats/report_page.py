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
from bench.render.grid import (
    DASH,
    SCALE,
    Grid,
    Quoted,
    ScoreCell,
    format_difference,
    format_interval,
    format_p_value,
    format_score,
)
from bench.render.row_names import join_names
from bench.render.template import own_file, page_environment
from bench.reports.campaign import Campaign
from bench.reports.merge_campaigns import list_unreadable
from bench.reports.record_groups import describe_provenance, readable_records, record_notes
from bench.reports.sections import TABS
from bench.reports.tables.answers import Answers
from bench.reports.tables.differences import PAIR_HEADER, Differences, method_differences
from bench.reports.tables.leaderboard_page import Board
from bench.reports.tables.method_cards import campaign_cards, run_tables
from bench.reports.tables.pairwise_tests import LEVEL
from bench.version import __version__

_MOST_DATA = 40  # points that a figure repeats as a table
MOST_PAIRED = 15
"""Rows of a table of all pairs of methods."""


@dataclass(frozen=True)
class PagePart:
    """Tables and figures under a heading."""

    id: str
    title: str
    tab: str = "table"
    boards: tuple[Board, ...] = ()
    grids: tuple[Grid, ...] = ()
    figures: tuple[Figure, ...] = ()


def render_campaign_page(campaign: Campaign, parts: Sequence[PagePart], missing: Sequence[str]) -> str:
    """Return a campaign's page as one file; ``missing`` lists its empty parts.

    A whole page (one with leaderboards) has every run below the seeds, and all pairs of methods and the
    methods' cards in place of tables.
    """
    context = page_context(campaign, parts, missing) | own_file("style", *STYLES)
    context |= own_file("script", *SCRIPTS)
    return report_environment().get_template("report.html").render(context).strip() + "\n"


STYLES = ("report.css", "figure.css", "first_screen.css")
SCRIPTS = ("report.js", "first_screen.js", "figures.js")
"""Files of a page's script, in order: the first opens what the last closes."""


@cache
def report_environment() -> Environment:
    """Return the template environment of pages with tables and figures."""
    environment = page_environment()
    environment.policies["json.dumps_kwargs"] = {"sort_keys": True, "separators": (",", ":")}
    environment.filters |= {
        "names": join_names,
        "drawn": Markup,  # our own marks
        "svg": _svg_markup,
        "legend": _legend_markup,
        "number": format_score,
        "difference": format_difference,
        "data": _figure_data,
        "interval": _interval_text,
        "p_value": format_p_value,
        "ends": lambda against: format_interval(*(against.interval or (None, None))) if against else DASH,
    }
    environment.tests |= {
        "cell": lambda value: isinstance(value, ScoreCell),
        "quoted": lambda value: isinstance(value, Quoted),
    }
    return environment


def page_context(campaign: Campaign, parts: Sequence[PagePart], missing: Sequence[str]) -> dict[str, Any]:
    """Return the template variables of a campaign's page, see :func:`render_campaign_page`."""
    whole = any(part.boards for part in parts)
    remarks = _list_remarks(campaign)
    answers = [board.answers for part in parts for board in part.boards]
    return {
        "campaign": campaign,
        "tabs": _list_tabs(parts),
        "answers": answers,
        "places": _place_figures(parts, answers),
        "missing": missing,
        "remarks": remarks,
        "count": len(readable_records(campaign.records)),
        "facts": describe_provenance(campaign.records, campaign.name),
        "level": f"{100 * LEVEL:g}%",
        "version": __version__,
        "scale": SCALE,
        "runs": run_tables(campaign) if whole else {},
        "has_runs": any(part.id == "seeds" for part in parts),
        "differences": _small_differences(campaign) if whole else [],
        "pair_header": PAIR_HEADER,
        "few": MOST_PAIRED,
        "cards": campaign_cards(campaign) if whole else [],
        "beyond": BEYOND,
    }


def _place_figures(parts: Sequence[PagePart], answers: Sequence[Answers]) -> dict[str, int]:
    """Return the number of the place of every figure that is of one profile and suite, by its name."""
    longest = sorted(answers, key=lambda one: -len(one.place))
    places = {}
    for figure in (figure for part in parts for figure in part.figures):
        numbers = [one.number for one in longest if figure.name.startswith(one.place)]
        if numbers:
            places[figure.name] = numbers[0]
    return places


def _list_tabs(parts: Sequence[PagePart]) -> list[tuple[str, str, list[PagePart]]]:
    """Return id, title and parts of every tab that shows something, parts with figures first."""
    answered = [board.answers for part in parts for board in part.boards]
    has_heat = any(one.tasks and one.choices for one in answered)
    tabs = []
    for tab, title in TABS.items():
        own = sorted((part for part in parts if part.tab == tab), key=lambda part: not part.figures)
        if own or (answered and tab == "differences") or (has_heat and tab == "tasks"):
            tabs.append((tab, title, own))
    return tabs


def _small_differences(campaign: Campaign) -> list[Differences]:
    """Return the differences of all pairs of few methods; of more, a reader picks a baseline."""
    return [one for one in method_differences(campaign) if len(one.names) <= MOST_PAIRED]


def _list_remarks(campaign: Campaign) -> list[str]:
    """Return notes on unreadable records, on all records, and on unsealed files, in this order."""
    unsealed = campaign.unsealed_note()
    return [*list_unreadable(campaign), *record_notes(campaign.records), *[unsealed] * bool(unsealed)]


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
