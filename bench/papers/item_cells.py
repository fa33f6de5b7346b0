"""Lay an item out: its cells with methods, quantities and printed figures, and its hyperparameters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from bench.config.method_ids import parse_methods
from bench.config.sweeps import Backbone, find_sweep
from bench.data.published_tables import PublishedFigure
from bench.errors import DataError
from bench.papers.paper_compute import resolve_options
from bench.papers.paper_items import Item
from bench.render.grid import DASH
from bench.render.method_names import printed_name

T = TypeVar("T")
MINUS = " minus "
KINDS = ("probe", "cost", "stage")
_COLUMN = "column"


@dataclass(frozen=True)
class ItemCell:
    """One cell of an item; row and column are names by field.

    Args:
        methods: Its method as in ``--methods``; two for the first minus the second, () for a
            figure whose method bench lacks.
        quantity: Text of its :class:`ItemQuantity`.
        figure: The printed figure, if stored.
    """

    row: tuple[tuple[str, str], ...]
    column: tuple[tuple[str, str], ...]
    methods: tuple[str, ...]
    quantity: str
    figure: PublishedFigure | None = None


@dataclass(frozen=True)
class ItemQuantity:
    """The quantity of a cell: "SUITE/TASK", "SUITE/TASK@METRIC", "probe:NAME/FIELD", "cost:NAME".

    ``kind`` is "score" or one of KINDS, ``name`` the task or the text after the colon.
    """

    kind: str
    suite: str
    name: str
    metric: str = ""


def parse_quantity(text: str, where: str) -> ItemQuantity:
    """Parse a quantity; raises DataError for another text.

    >>> parse_quantity("tncse-retrieval/avg@ndcg@10", "")
    ItemQuantity(kind='score', suite='tncse-retrieval', name='avg', metric='ndcg@10')
    >>> parse_quantity("probe:cls_energy/mean", "").name
    'cls_energy/mean'
    """
    kind, _, rest = text.partition(":")
    if kind in KINDS and rest:
        return ItemQuantity(kind, "", rest)
    suite, _, task = text.partition("/")
    name, _, metric = task.partition("@")
    if not (suite and name):
        expected = "SUITE/TASK[@METRIC] or KIND:NAME"
        raise DataError(f"unknown quantity '{text}'", where=where, expected=expected)
    return ItemQuantity("score", suite, name, metric)


def lay_out_cells(item: Item, profile: str, backbone: Backbone) -> tuple[ItemCell, ...]:
    """Return the cells of an item, in the paper's order; raises DataError for contradictory data.

    ``profile`` selects the printed figures, by default those of the item's first backbone; ``backbone``
    determines the points of grids.
    """
    if item.sweep:
        return tuple(_sweep_cells(item, backbone))
    cells = []
    if item.shows:
        for label, method in item.methods.items():
            methods = (method,) * bool(method)
            for column, quantity in item.shows.items():
                cells.append(ItemCell((("method", label),), ((_COLUMN, column),), methods, quantity))
        return tuple(cells)
    printed = profile if profile in item.backbones else item.backbones[0]
    return tuple(_figure_cell(item, figure) for figure in item.figures if figure.backbone in ("", printed))


def cell_label(item: Item, parts: Iterable[tuple[str, str]]) -> str:
    """Return the paper's words for a row or column."""
    words = (item.names.get(value, printed_name(value)) for _, value in parts)
    return ", ".join(filter(None, words)) or DASH


def single_tasks(cells: Iterable[ItemCell], where: str) -> frozenset[str]:
    """Return the suites of which cells show only one task, or only the average."""
    tasks: dict[str, set[str]] = {}
    for cell in cells:
        if cell.methods and (quantity := parse_quantity(cell.quantity, where)).suite:
            tasks.setdefault(quantity.suite, set()).add(quantity.name)
    return frozenset(suite for suite, names in tasks.items() if len(names) == 1)


def cell_methods(cells: Iterable[ItemCell]) -> tuple[str, ...]:
    """Return the methods of some cells, each once."""
    return tuple(dict.fromkeys(method for cell in cells for method in cell.methods))


def match_figure(table: Mapping[str, T], figure: PublishedFigure, field: str = "method") -> T | None:
    """Return a figure's entry: of the matching key with most pairs, if any.

    A key is "NAME" or "NAME KEY=VALUE,...": the figure's method (or another field of it), and pairs of its
    setting, method, backbone, task or metric.
    """
    best, most = None, -1
    for key, value in table.items():
        name, _, rest = key.partition(" ")
        pairs = [part.partition("=")[::2] for part in rest.split(",") if part]
        holds = all(figure_value(figure, known) == wanted for known, wanted in pairs)
        if name == figure_value(figure, field) and holds and len(pairs) > most:
            best, most = value, len(pairs)
    return best


def figure_value(figure: PublishedFigure, name: str) -> str:
    """Return a field of a figure or of its setting, "" for a missing key."""
    if name in ("method", "task", "metric", "backbone", "table"):
        return str(getattr(figure, name))
    return dict(figure.setting).get(name, "")


def _figure_cell(item: Item, figure: PublishedFigure) -> ItemCell:
    sides = [match_figure(item.methods, side) for side in _split_difference(figure)]
    if None in sides:
        label = ", ".join((figure.table, figure.task, *map("=".join, figure.setting)))
        what = f"no method for the printed '{figure.method}' ({label})"
        raise DataError(what, where=f"bench/papers: {item.id}")
    row = tuple((name, figure_value(figure, name)) for name in item.rows)
    column = tuple((name, figure_value(figure, name)) for name in item.columns)
    methods = tuple(filter(None, sides)) if all(sides) else ()
    return ItemCell(row, column, methods, _figure_quantity(item, figure), figure)


def _split_difference(figure: PublishedFigure) -> list[PublishedFigure]:
    """The figure itself, or both sides of a difference: "data=A minus data=B"."""
    for key, value in figure.setting:
        if MINUS in value:
            sides = []
            for side in value.split(MINUS):
                setting = dict(figure.setting) | {key: side.removeprefix(f"{key}=")}
                sides.append(replace(figure, setting=tuple(setting.items())))
            return sides
    return [figure]


def _figure_quantity(item: Item, figure: PublishedFigure) -> str:
    """The quantity here that belongs to a figure."""
    metric = item.metrics.get(figure.metric, "")
    if metric and not metric.startswith("@"):
        return metric
    if (task := match_figure(item.tasks, figure, "task")) is not None:
        return task + metric
    return f"{item.suites[0]}/{figure.task}{metric}" if item.suites else ""


def _sweep_cells(item: Item, backbone: Backbone) -> Iterable[ItemCell]:
    """A grid's points as cells; one with several quantities has a column for each."""
    for point in find_sweep(item.sweep).points(backbone):
        if item.keep and not {point.row, point.row.partition(",")[0], point.column}.intersection(item.keep):
            continue
        method = add_options(point.method, item.set)
        for label, quantity in item.shows.items():
            column = f"{point.column}, {label}" if len(item.shows) > 1 else point.column
            yield ItemCell((("row", point.row),), ((_COLUMN, column),), (method,), quantity)


def add_options(method: str, options: str) -> str:
    """Return a method with more options in its brackets.

    >>> add_options("tncse[drop_norms=2]", "sick=true"), add_options("tncse", "")
    ('tncse[drop_norms=2,sick=true]', 'tncse')
    """
    if not options:
        return method
    extended = f"{method[:-1]},{options}]" if method.endswith("]") else f"{method}[{options}]"
    parse_methods(extended)
    return extended


LITERAL_PREFIX = "= "
"""Begins the value here of a printed hyperparameter that is fixed, beyond all options."""


@dataclass(frozen=True)
class Hyperparameter:
    """A printed hyperparameter and ours.

    Args:
        option: "METHOD.OPTION" or "METHOD.STAGE.OPTION", several with commas; "" for a fixed value.
        ours: Its value in the profile of the figure's backbone (of several, each that occurs).
        differs: Why ours is another, or "".
    """

    figure: PublishedFigure
    option: str
    ours: str
    differs: str = ""

    @property
    def equal(self) -> bool:
        """True for the same number or text, and for a fixed value."""
        if not self.option:
            return True
        try:
            return float(self.figure.text) == float(self.ours)
        except ValueError:
            return self.figure.text == self.ours


def compare_hyperparameters(item: Item) -> tuple[Hyperparameter, ...]:
    """Return an item's printed hyperparameters with ours; raises DataError for an unmatched one."""
    return tuple(_compare_figure(item, figure) for figure in item.figures)


def _compare_figure(item: Item, figure: PublishedFigure) -> Hyperparameter:
    where = f"bench/papers: {item.id}"
    text = _find_entry(item.settings, figure)
    if text is None:
        raise DataError(f"no option for the printed {figure.method} {figure.metric}", where=where)
    differs = _find_entry(item.differs, figure) or ""
    if text.startswith(LITERAL_PREFIX):
        return Hyperparameter(figure, "", text.removeprefix(LITERAL_PREFIX), differs)
    values: dict[str, None] = {}
    for name in text.split(","):
        method, _, option = name.strip().partition(".")
        options = resolve_options(method, figure.backbone or item.backbones[0])
        if option not in options:
            raise DataError(f"{method} has no option '{option}'", where=where)
        value = options[option]
        values[f"{value:g}" if isinstance(value, float) else str(value)] = None
    return Hyperparameter(figure, text, ", ".join(values), differs)


def _find_entry(table: Mapping[str, str], figure: PublishedFigure) -> str | None:
    """The entry of "METHOD[ KEY=VALUE,...] METRIC" for a figure."""
    keys = {}
    for key, value in table.items():
        method, *pairs, metric = key.split(" ")
        keys[f"{method} {','.join((*pairs, f'metric={metric}'))}"] = value
    return match_figure(keys, figure)
