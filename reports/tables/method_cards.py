"""Runs and cards of a campaign's methods as the page lists them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote

from bench.comparison.selection import group_by
from bench.method_card import MethodCard
from bench.records.imported import describe_source, import_facts, is_imported
from bench.records.record import RunRecord, safe_name
from bench.registry import own_methods
from bench.render.grid import DASH, Grid
from bench.reports.campaign import Campaign
from bench.reports.record_groups import UNREADABLE, by_method, by_profile_and_suite, task_list


@dataclass(frozen=True)
class PageRun:
    """One run: its seed or a dash, scores by task (with "avg"), the reason for missing scores, and its key.

    ``path`` is the record's, below the campaign's folder; of several campaigns below the results folder.
    """

    seed: str
    scores: dict[str, float | None]
    reason: str
    path: str
    key: str

    @property
    def link(self) -> str:
        """The record's address from a page in that folder."""
        return f"./{quote(self.path)}"


@dataclass(frozen=True)
class MethodRuns:
    """The runs of a method in one profile and suite, by seed.

    Args:
        method: Its printed name; ``name``: the registered one.
        anchor: Of its first row on the page.
        parameters: Of all its encoder's towers, if known.
        dim: Dimension of its vectors by the record, or a dash.
    """

    method: str
    name: str
    anchor: str
    runs: tuple[PageRun, ...]
    parameters: int | None
    dim: str

    def by_seed(self, seeds: Sequence[str]) -> list[PageRun | None]:
        """Return its run of each seed, None where there is none."""
        runs = {run.seed: run for run in self.runs}
        return [runs.get(seed) for seed in seeds]

    @property
    def card(self) -> str:
        """Anchor of its card on the page."""
        return card_anchor(self.name)

    @property
    def parameters_text(self) -> str:
        """Printed parameters, in millions."""
        text = format_millions(self.parameters)
        return text if text == DASH else f"{text}M"


@dataclass(frozen=True)
class RunTable:
    """All runs of one profile and suite: its tasks ("avg" the last), and methods by printed name."""

    profile: str
    suite: str
    tasks: tuple[str, ...]
    methods: dict[str, MethodRuns]

    @property
    def seeds(self) -> tuple[str, ...]:
        """All seeds, a dash for runs without one."""
        seeds = {run.seed for own in self.methods.values() for run in own.runs}
        return tuple(sorted(seeds, key=lambda seed: (seed == DASH, int(seed) if seed != DASH else 0)))


def card_anchor(name: str) -> str:
    """Return the anchor of a registered method's card."""
    return f"card-{safe_name(name)}"


def run_tables(campaign: Campaign) -> dict[tuple[str, str], RunTable]:
    """Return the runs of every profile and suite, by both."""
    tables = {}
    for records in by_profile_and_suite(campaign.records):
        tasks, methods = task_list(records), {}
        place = records[0].profile, records[0].suite
        for method, runs in by_method(records).items():
            methods[campaign.shown(method)] = _method_runs(campaign, method, runs, tasks)
        tables[place] = RunTable(*place, tasks, methods)
    return tables


def _method_runs(
    campaign: Campaign, method: str, records: Sequence[RunRecord], tasks: Sequence[str]
) -> MethodRuns:
    first = records[0]
    anchor = "-".join(["runs", *map(safe_name, (first.profile, first.suite, method))])
    by_seed = sorted(records, key=lambda record: -1 if record.seed is None else record.seed)
    runs = tuple(_page_run(campaign, record, tasks) for record in by_seed)
    sizes = (size for size in map(encoder_parameters, records) if size is not None)
    dims = (record.provenance.get("encoder", {}).get("dim") for record in records)
    dim = next((str(value) for value in dims if value is not None), DASH)
    return MethodRuns(campaign.shown(method), first.name, anchor, runs, next(sizes, None), dim)


def _page_run(campaign: Campaign, record: RunRecord, tasks: Sequence[str]) -> PageRun:
    seed = DASH if record.seed is None else str(record.seed)
    home = campaign.home(record)
    path = home.path(record.place).relative_to(home.root.parent if campaign.several else home.root).as_posix()
    scores = {task: record.score(task) for task in tasks}
    return PageRun(seed, scores, record.reason or "", path, record.key)


def format_millions(parameters: int | None) -> str:
    """Return a number of parameters in millions, or a dash.

    >>> format_millions(22_713_216), format_millions(431_000), format_millions(None)
    ('22.7', '0.43', '-')
    """
    if parameters is None:
        return DASH
    millions = parameters / 1e6
    return f"{millions:.1f}" if millions >= 1 else f"{millions:.2g}"


def encoder_parameters(record: RunRecord) -> int | None:
    """Return the parameters of all towers of a record's encoder, if known.

    The probe ``cost`` counts them, or an import's source; provenance has the number of each tower.
    """
    counted = import_facts(record).get("n_parameters") or record.probes.get("cost", {}).get("parameters")
    if counted is not None:
        return int(counted)
    facts = record.provenance.get("encoder", {})
    towers = str(facts.get("parameters", "")).split("+")
    if not all(text.isascii() and text.isdecimal() and len(text) < 16 for text in towers):
        return None
    return sum(map(int, towers)) * (facts.get("parts", 1) if len(towers) == 1 else 1)


_ADDRESS = re.compile(r"https?://[^\s<>\"']+[^\s<>\"'.,;)\]]")
_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+(?![\w./:-])")
Pieces = tuple[tuple[str, str], ...]
"""A text in pieces, each with its link or ""."""


@dataclass(frozen=True)
class Card:
    """A method of a campaign, with the printed names of its rows and the records' versions.

    Args:
        card: Of bench's own methods, so that a report depends only on the records.
        code: The code that its author read.
        options: Option, default, values in the records, help.
        source: Where an imported row comes from, or "".
    """

    name: str
    anchor: str
    methods: tuple[str, ...]
    card: MethodCard | None
    paper: Pieces
    code: Pieces
    versions: tuple[int, ...]
    options: tuple[tuple[str, str, str, str], ...]
    source: str = ""


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
        facts = (tuple(methods), card, paper, code, tuple(versions))
        if imported := [record for record in records if is_imported(record)]:
            cards.append(_imported_card(imported, tuple(methods)))
        else:
            cards.append(Card(name, card_anchor(name), *facts, options))
    return cards


def _imported_card(records: Sequence[RunRecord], methods: tuple[str, ...]) -> Card:
    """Return what the source says of an imported row."""
    first = records[0]
    said = []
    for name, value in import_facts(first).items():
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            said.append((name.replace("_", " "), DASH, _value_text(value), ""))
    anchor, source = card_anchor(first.name), describe_source(first)
    return Card(first.method, anchor, methods, None, (), (), (), tuple(said), source)


def card_grids(campaign: Campaign) -> list[Grid]:
    """Return the methods of the records in one table."""
    rows = []
    for one in campaign_cards(campaign):
        facts = ("a plug-in's", DASH, DASH)
        if one.source:
            facts = (f"imported, {one.source}", DASH, DASH)
        if one.card:
            facts = (one.card.summary, one.card.paper or DASH, one.card.code or DASH)
        rows.append((one.name, *facts, ", ".join(map(str, one.versions)) or DASH))
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
