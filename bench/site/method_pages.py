"""A page for each method: what it is, every row in every campaign, its curves, costs and ablations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from bench.card import MethodCard
from bench.data.published_tables import published_rows
from bench.records.record import safe_name
from bench.registry import own_methods
from bench.reports.tables.cards import Pieces, split_links
from bench.site.campaign_entry import CampaignEntry, LeaderboardLine, SweepTable

MOST_CURVES = 6
"""Drawings on a page; the others are on their campaigns' pages."""


@dataclass(frozen=True)
class MethodPage:
    """A method of the site.

    Args:
        name: Registered name.
        file: Of its page, below ``methods/``.
        card: Its card; None for a method that isn't bench's own.
        paper: Its paper, with addresses.
        code: The code that was read for it, with addresses.
        rows: Campaign and row, in the order of the campaigns.
        curves: Campaign, title and svg.
        sweeps: Campaign and table.
        published: Paper and table, backbone, average.
    """

    name: str
    file: str
    card: MethodCard | None
    paper: Pieces
    code: Pieces
    rows: tuple[tuple[CampaignEntry, LeaderboardLine], ...]
    curves: tuple[tuple[str, str, str], ...]
    sweeps: tuple[tuple[str, SweepTable], ...]
    published: tuple[tuple[str, str, str], ...]


def method_file(name: str) -> str:
    """Return the file of a method's page; index.html is the list of methods."""
    return f"{safe_name(name if name.lower() != 'index' else 'index of a method')}.html"


def build_method_pages(
    entries: Sequence[CampaignEntry], curves: Mapping[str, Mapping[str, Sequence[Sequence[str]]]]
) -> Iterator[MethodPage]:
    """Yield every method of the campaigns by name, one at a time.

    Args:
        entries: The campaigns.
        curves: By campaign and registered name the titles and drawings of its curves.
    """
    own = own_methods()
    rows: dict[str, list[tuple[CampaignEntry, LeaderboardLine]]] = {}
    for entry in entries:
        for line in entry.lines:
            rows.setdefault(line.name, []).append((entry, line))
    printed = _published_averages()
    for name in sorted(rows):
        card = own[name].card if name in own else None
        yield MethodPage(
            name,
            method_file(name),
            card,
            split_links(card.paper) if card else (),
            split_links(card.code, repository=True) if card else (),
            tuple(rows[name]),
            _select_curves(curves, name),
            tuple((entry.campaign, table) for entry in entries for of, table in entry.sweeps if of == name),
            tuple(printed.get(name, ())),
        )


def _select_curves(
    curves: Mapping[str, Mapping[str, Sequence[Sequence[str]]]], name: str
) -> tuple[tuple[str, str, str], ...]:
    """Campaign, title and svg of a method's first curves."""
    found = [
        (campaign, str(title), str(drawn))
        for campaign, own in curves.items()
        for title, drawn in own.get(name, ())
    ]
    return tuple(found[:MOST_CURVES])


def _published_averages() -> dict[str, list[tuple[str, str, str]]]:
    """What papers print on the seven STS tasks, by method."""
    found: dict[str, list[tuple[str, str, str]]] = {}
    for line in published_rows("sts7"):
        if (figure := line.figures.get("avg")) is not None:
            first = line.first
            found.setdefault(first.method, []).append((first.source, first.backbone, figure.text))
    return found
