"""Cards of a campaign's methods, with the options of its records."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from bench.card import MethodCard
from bench.comparison.selection import group_by
from bench.records.record import RunRecord
from bench.registry import own_methods
from bench.render.grid import DASH, Grid
from bench.reports.campaign import Campaign
from bench.reports.record_groups import UNREADABLE
from bench.reports.tables.runs import card_anchor

_ADDRESS = re.compile(r"https?://[^\s<>\"']+[^\s<>\"'.,;)\]]")
_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+(?![\w./:-])")
Pieces = tuple[tuple[str, str], ...]
"""A text in pieces, each with its link or ""."""


@dataclass(frozen=True)
class Card:
    """A method of a campaign.

    Args:
        name: Registered name.
        anchor: On the page.
        methods: Printed names of its rows.
        card: Its card; None for a plug-in's method, so that a report depends only on the records.
        paper: The card's paper.
        code: The code that its author read.
        versions: Of the records.
        options: Option, default, values in the records, help.
    """

    name: str
    anchor: str
    methods: tuple[str, ...]
    card: MethodCard | None
    paper: Pieces
    code: Pieces
    versions: tuple[int, ...]
    options: tuple[tuple[str, str, str, str], ...]


def campaign_cards(campaign: Campaign) -> list[Card]:
    """Return the card of every method in the records, by name."""
    own, cards = own_methods(), []
    readable = (record for record in campaign.records if record.status != UNREADABLE)
    for name, records in sorted(group_by(readable, lambda record: record.name).items()):
        card = own[name].card if name in own else None
        methods = dict.fromkeys(campaign.shown(record.method) for record in records)
        versions = sorted({record.version for record in records})
        paper = split_links(card.paper) if card else ()
        code = split_links(card.code, repository=True) if card else ()
        options = _option_rows(card, records)
        cards.append(
            Card(name, card_anchor(name), tuple(methods), card, paper, code, tuple(versions), options)
        )
    return cards


def card_grids(campaign: Campaign) -> list[Grid]:
    """Return the methods of the records in one table."""
    rows = []
    for one in campaign_cards(campaign):
        facts = ("a plug-in's", DASH, DASH)
        if one.card:
            facts = (one.card.summary, one.card.paper or DASH, one.card.code or DASH)
        rows.append((one.name, *facts, ", ".join(map(str, one.versions))))
    header = ("method", "what it is", "paper", "code", "version")
    return [Grid("Methods", header, tuple(rows), ())] if rows else []


def _option_rows(
    card: MethodCard | None, records: Sequence[RunRecord]
) -> tuple[tuple[str, str, str, str], ...]:
    known = {}
    values: dict[str, dict[str, None]] = {}
    for option in card.options if card else ():
        known[option.name], values[option.name] = option, {}
    for record in records:
        for name, value in record.options.items():
            values.setdefault(name, {})[_value_text(value)] = None
    rows = []
    for name, texts in values.items():
        default, description = DASH, ""
        if name in known:
            default, description = _value_text(known[name].default), known[name].help
        rows.append((name, default, ", ".join(texts) or DASH, description))
    return tuple(rows)


def _value_text(value: object) -> str:
    return DASH if value in ("", None) else str(value)


def split_links(text: str, *, repository: bool = False) -> Pieces:
    """Split a card's text at its http(s) links; with ``repository`` it may begin with one of GitHub.

    >>> split_links("a/b 123", repository=True)
    (('a/b', 'https://github.com/a/b'), (' 123', ''))
    >>> split_links("see https://x.org/y. javascript:z")
    (('see ', ''), ('https://x.org/y', 'https://x.org/y'), ('. javascript:z', ''))
    """
    pieces, rest = [], 0
    if repository and (named := _REPOSITORY.match(text)):
        pieces.append((named[0], f"https://github.com/{named[0]}"))
        rest = named.end()
    for address in _ADDRESS.finditer(text, rest):
        pieces += [(text[rest : address.start()], ""), (address[0], address[0])]
        rest = address.end()
    pieces.append((text[rest:], ""))
    return tuple(piece for piece in pieces if piece[0])
