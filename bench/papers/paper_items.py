"""Tables and figures of the papers, as data."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any

from bench.data.published_tables import PAPERS, PublishedFigure, load_figures
from bench.errors import DataError, unknown_name
from bench.schema import Block, ListOf, MapOf, find_fault, is_label, is_text

_LABELS, _TEXTS = ListOf(is_label), MapOf(is_label)
_ITEM = Block(
    {"title": is_label},
    {
        **dict.fromkeys(("says", "note", "nothing", "seeds", "sweep", "set", "formula"), is_text),
        **dict.fromkeys(("backbones", "suites", "probes", "sections", "tables", "rows", "columns"), _LABELS),
        **dict.fromkeys(("draws", "keep", "gradient"), _LABELS),
        **dict.fromkeys(("names", "methods", "tasks", "metrics"), _TEXTS),
        **dict.fromkeys(("shows", "settings", "differs", "texts"), _TEXTS),
    },
    closed=True,
)


@dataclass(frozen=True, eq=False)
class Item:
    """A table or figure of a paper: what is run for it, how it is laid out, which figures stand beside.

    Args:
        paper: Key of :data:`bench.data.published_tables.PAPERS`.
        name: Its name in ``bench reproduce PAPER:NAME``, such as "table4".
        title: The paper's name of it, and what it shows.
        says: What the paper concludes from it, or "".
        note: What differs here, or what the paper leaves open.
        nothing: Why there is nothing to compute, or "".
        backbones: Profiles of the paper's backbones.
        seeds: Seeds that the paper states, or "".
        suites: What the methods are measured on.
        probes: What is measured besides.
        sections: Sections of stored figures that stand in it.
        tables: Only these tables of them; empty for all.
        rows: Fields of a figure that name its row: method, task, metric or a key of its setting.
        columns: Those that name its column.
        names: What is printed for a value of such a field.
        methods: Method here by printed method ("NAME" or "NAME KEY=VALUE,..."), "" where there is none; for
            an item without stored figures by the label of its row.
        tasks: Quantity here by printed task, where it isn't the same name in the one suite.
        metrics: Quantity here by printed metric, where it isn't the suite's.
        shows: Quantities by the label of their column, for an item without stored figures.
        draws: Sections of the report whose figures draw it; "SECTION/PART": those whose name ends so.
        sweep: The sweep whose grid it is, or "".
        set: Options that each of the grid's methods gets in addition.
        keep: Columns of the grid that belong to it; empty for all.
        gradient: Methods for which ``bench gradient`` measures it; "" for the sampled angles.
        formula: The sweep whose surface it is, or "".
        texts: Training text that the paper states where a figure's setting doesn't, by printed method or,
            without stored figures, by row ("*": all).
        settings: Option here by printed hyperparameter; "= ..." says what holds where no option has it.
        differs: Why an option has another value here, by printed hyperparameter.
    """

    paper: str
    name: str
    title: str
    says: str = ""
    note: str = ""
    nothing: str = ""
    backbones: tuple[str, ...] = ("bert-base",)
    seeds: str = ""
    suites: tuple[str, ...] = ()
    probes: tuple[str, ...] = ()
    sections: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()
    rows: tuple[str, ...] = ("method",)
    columns: tuple[str, ...] = ("task",)
    names: Mapping[str, str] = field(default_factory=dict)
    methods: Mapping[str, str] = field(default_factory=dict)
    tasks: Mapping[str, str] = field(default_factory=dict)
    metrics: Mapping[str, str] = field(default_factory=dict)
    shows: Mapping[str, str] = field(default_factory=dict)
    draws: tuple[str, ...] = ()
    sweep: str = ""
    set: str = ""
    keep: tuple[str, ...] = ()
    gradient: tuple[str, ...] = ()
    formula: str = ""
    texts: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    differs: Mapping[str, str] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """Paper and name, as on the command line."""
        return f"{self.paper}:{self.name}"

    def draws_it(self, section: str, name: str) -> bool:
        """True if a figure of a section and a name belongs to it."""
        wanted = (each.partition("/") for each in self.draws)
        return any(section == own and (not part or name.endswith(f"-{part}")) for own, _, part in wanted)

    @property
    def runs(self) -> bool:
        """True if cells have to be run for it."""
        return bool(self.suites) and bool(self.sweep or any(self.methods.values()))

    @property
    def figures(self) -> tuple[PublishedFigure, ...]:
        """The stored figures that stand in it, in the paper's order."""
        own = (figure for figure in load_figures() if figure.paper == self.paper)
        return tuple(
            figure
            for figure in own
            if figure.section in self.sections and (not self.tables or figure.table in self.tables)
        )


@cache
def load_items() -> Mapping[str, Item]:
    """Return every item by its id, in the papers' order; raises DataError for a damaged file."""
    return {item.id: item for paper in PAPERS for item in _read_paper(paper)}


def select_items(names: str) -> tuple[Item, ...]:
    """Return the items of "PAPER" or "PAPER:ITEM", several with commas, each once; raises InputError."""
    return tuple(dict.fromkeys(item for name in names.split(",") for item in _find_items(name.strip())))


def _find_items(name: str) -> tuple[Item, ...]:
    paper, colon, _ = name.partition(":")
    if paper not in PAPERS:
        raise unknown_name("paper", paper, PAPERS, where="bench reproduce")
    own = [item for item in load_items().values() if item.paper == paper]
    if not colon:
        return tuple(own)
    if name not in load_items():
        raise unknown_name("item", name, [item.id for item in own], where="bench reproduce")
    return (load_items()[name],)


def _read_paper(paper: str) -> list[Item]:
    where = f"bench/papers/{paper}.toml"
    try:
        data = tomllib.loads((resources.files(__package__) / f"{paper}.toml").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"not a paper's items: {error}", where=where) from error
    if place := find_fault(data, MapOf(_ITEM)):
        raise DataError(f"'{place}' is missing, unknown or of another type", where=where)
    return [_item(paper, name, table) for name, table in data.items()]


def _item(paper: str, name: str, table: Mapping[str, Any]) -> Item:
    given: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in table.items()}
    return Item(paper, name, **given)
