"""Tables and figures of the papers, as data."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources

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
    """A table or figure of a paper: its runs, its layout, and its printed figures.

    Args:
        says: The paper's conclusion, or "".
        note: Differences here, and details that the paper omits.
        nothing: Why there is nothing to compute, or "".
        tables: Only these tables of them; empty for all.
        rows: Fields of a figure that name its row: method, task, metric or a key of its setting.
        names: Printed words for a value of such a field.
        methods: Method here by printed method ("NAME" or "NAME KEY=VALUE,..."), "" for a missing one; by the
            row's label for an item that lacks stored figures.
        tasks: Quantity here by printed task, if its name differs from the one suite's.
        metrics: Quantity here by printed metric, if it differs from the suite's.
        shows: Quantities by the label of their column, for an item that lacks stored figures.
        draws: Sections of the report whose figures draw it; "SECTION/PART": those with that name ending.
        set: Options added to each of the grid's methods.
        keep: Columns of the grid that belong to it; empty for all.
        gradient: Methods for which ``bench gradient`` measures it; "" for the sampled angles.
        texts: Training text that the paper states outside a figure's setting, by printed method or,
            without stored figures, by row ("*": all).
        settings: Option here by printed hyperparameter; "= ..." for a fixed value.
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
        for entry in self.draws:
            known, _, part = entry.partition("/")
            if section == known and (not part or name.endswith(f"-{part}")):
                return True
        return False

    @property
    def runs(self) -> bool:
        """True if it needs cells."""
        return bool(self.suites) and bool(self.sweep or any(self.methods.values()))

    @property
    def figures(self) -> tuple[PublishedFigure, ...]:
        """Its stored figures, in the paper's order."""
        figures = [f for f in load_figures() if f.paper == self.paper and f.section in self.sections]
        return tuple(figure for figure in figures if not self.tables or figure.table in self.tables)


@cache
def load_items() -> Mapping[str, Item]:
    """Return every item by its id, in the papers' order; raises DataError for a damaged file."""
    return {item.id: item for paper in PAPERS for item in _read_paper(paper)}


def select_items(names: str) -> tuple[Item, ...]:
    """Return the items of "PAPER" or "PAPER:ITEM", several with commas, each once; raises InputError."""
    selected: dict[Item, None] = {}
    for name in map(str.strip, names.split(",")):
        paper, colon, _ = name.partition(":")
        if paper not in PAPERS:
            raise unknown_name("paper", paper, PAPERS, where="bench reproduce")
        items = {item.id: item for item in load_items().values() if item.paper == paper}
        if colon and name not in items:
            raise unknown_name("item", name, items, where="bench reproduce")
        selected |= dict.fromkeys([items[name]] if colon else items.values())
    return tuple(selected)


def _read_paper(paper: str) -> list[Item]:
    where = f"bench/papers/{paper}.toml"
    try:
        data = tomllib.loads((resources.files(__package__) / f"{paper}.toml").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"unreadable items of a paper: {error}", where=where) from error
    if place := find_fault(data, MapOf(_ITEM)):
        raise DataError(f"'{place}' is missing, unknown or of another type", where=where)
    items = []
    for name, table in data.items():
        for key, value in table.items():
            if isinstance(value, list):
                table[key] = tuple(value)
        items.append(Item(paper, name, **table))
    return items
