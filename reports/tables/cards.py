"""What the methods of a campaign are: their cards, with the options that the records have."""

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
from bench.reports.records import UNREADABLE
from bench.reports.tables.runs import card_anchor

_ADDRESS = re.compile(r"https?://[^\s<>\"']+[^\s<>\"'.,;)\]]")
_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+(?![\w./:-])")
Pieces = tuple[tuple[str, str], ...]
"""A text in pieces, each with the address that it leads to or ""."""


@dataclass(frozen=True)
class Card:
    """A method of a campaign.

    Args:
        name: Registered name.
        anchor: On the page.
        methods: What its rows are called.
        card: Its card; None for a method that isn't bench's own. A plug-in may say anything of itself, and a
            report of the same records is the same whether it is installed or not.
        paper: The card's paper.
        code: The code that was read for it.
        versions: Of the records.
        options: Option, default, values in the records, what it is.
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
    own = own_methods()
    there = group_by((r for r in campaign.records if r.status != UNREADABLE), lambda record: record.name)
    return [
        _method_card(campaign, name, own[name].card if name in own else None, records)
        for name, records in sorted(there.items())
    ]


def card_grids(campaign: Campaign) -> list[Grid]:
    """Return what the methods of the records are, one table for all."""
    rows = []
    for one in campaign_cards(campaign):
        card = one.card
        said = (card.summary, card.paper or DASH, card.code or DASH) if card else ("a plug-in's", DASH, DASH)
        rows.append((one.name, *said, ", ".join(map(str, one.versions))))
    header = ("method", "what it is", "paper", "code", "version")
    return [Grid("Methods", header, tuple(rows), ())] if rows else []


def _method_card(
    campaign: Campaign, name: str, card: MethodCard | None, records: Sequence[RunRecord]
) -> Card:
    versions = sorted({record.version for record in records})
    return Card(
        name,
        card_anchor(name),
        tuple(dict.fromkeys(campaign.shown(record.method) for record in records)),
        card,
        split_links(card.paper) if card else (),
        split_links(card.code, repository=True) if card else (),
        tuple(versions),
        _option_rows(card, records),
    )


def _option_rows(
    card: MethodCard | None, records: Sequence[RunRecord]
) -> tuple[tuple[str, str, str, str], ...]:
    known = {option.name: option for option in card.options} if card else {}
    rows = []
    for name in dict.fromkeys([*known, *(name for record in records for name in record.options)]):
        values = dict.fromkeys(_value_text(r.options[name]) for r in records if name in r.options)
        option = known.get(name)
        default = _value_text(option.default) if option else DASH
        rows.append((name, default, ", ".join(values) or DASH, option.help if option else ""))
    return tuple(rows)


def _value_text(value: object) -> str:
    return DASH if value in ("", None) else str(value)


def split_links(text: str, *, repository: bool = False) -> Pieces:
    """Split a text at the addresses in it; only ``http`` and ``https`` lead anywhere.

    Args:
        text: Of a card.
        repository: True if it may begin with a repository of GitHub, as the cards of bench's own methods do.

    >>> split_links("a/b 123", repository=True)
    (('a/b', 'https://github.com/a/b'), (' 123', ''))
    >>> split_links("see https://x.org/y. javascript:z")
    (('see ', ''), ('https://x.org/y', 'https://x.org/y'), ('. javascript:z', ''))
    """
    found, rest = [], 0
    if repository and (named := _REPOSITORY.match(text)):
        found.append((named[0], f"https://github.com/{named[0]}"))
        rest = named.end()
    for address in _ADDRESS.finditer(text, rest):
        found += [(text[rest : address.start()], ""), (address[0], address[0])]
        rest = address.end()
    found.append((text[rest:], ""))
    return tuple(piece for piece in found if piece[0])
