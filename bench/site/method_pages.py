"""The page of each method: its card, rows, curves, ablations and published averages."""

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
"""Drawings on a page; further ones are on the pages of their campaigns."""
Curves = Mapping[str, Mapping[str, Sequence[Sequence[str]]]]
"""Titles and drawings of curves, by campaign and registered name."""


@dataclass(frozen=True)
class MethodPage:
    """A method of the site.

    Args:
        file: File name below ``methods/``.
        card: Of bench's own methods.
        curves: Campaign, title and svg.
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
    """Return the file name of a method's page; index.html is the list of methods."""
    return f"{safe_name(name if name.lower() != 'index' else 'index of a method')}.html"


def build_method_pages(entries: Sequence[CampaignEntry], curves: Curves) -> Iterator[MethodPage]:
    """Yield the campaigns' methods by name."""
    methods = own_methods()
    rows: dict[str, list[tuple[CampaignEntry, LeaderboardLine]]] = {}
    for entry in entries:
        for line in entry.lines:
            rows.setdefault(line.name, []).append((entry, line))
    published: dict[str, list[tuple[str, str, str]]] = {}
    for row in published_rows("sts7"):
        if (figure := row.figures.get("avg")) is not None:
            average = (row.first.source, row.first.backbone, figure.text)
            published.setdefault(row.first.method, []).append(average)
    for name in sorted(rows):
        card = methods[name].card if name in methods else None
        drawings = []
        for campaign, drawn in curves.items():
            drawings += [(campaign, str(title), str(svg)) for title, svg in drawn.get(name, ())]
        sweeps = [(entry.campaign, table) for entry in entries for of, table in entry.sweeps if of == name]
        yield MethodPage(
            name,
            method_file(name),
            card,
            split_links(card.paper) if card else (),
            split_links(card.code, repository=True) if card else (),
            tuple(rows[name]),
            tuple(drawings[:MOST_CURVES]),
            tuple(sweeps),
            tuple(published.get(name, ())),
        )
