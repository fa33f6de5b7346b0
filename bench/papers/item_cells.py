"""How an item is laid out: for every cell the method and quantity here, and the figure that is printed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from bench.config.method_ids import parse_methods
from bench.config.sweeps import Backbone, find_sweep
from bench.data.published_tables import PublishedFigure
from bench.errors import DataError
from bench.papers.paper_items import Item
from bench.render.grid import DASH
from bench.render.names import printed_name

T = TypeVar("T")
MINUS = " minus "
_COLUMN = "column"


@dataclass(frozen=True)
class ItemCell:
    """One cell of an item.

    Args:
        row: What names its row, by field.
        column: What names its column, by field.
        methods: The method here as in ``--methods``; two where the cell is the first minus the second, none
            where it has a published figure alone.
        quantity: What is shown of it, see :class:`Quantity`.
        figure: The printed figure, None for an item without stored ones.
    """

    row: tuple[tuple[str, str], ...]
    column: tuple[tuple[str, str], ...]
    methods: tuple[str, ...]
    quantity: str
    figure: PublishedFigure | None = None


@dataclass(frozen=True)
class ItemQuantity:
    """What a cell shows of a method: "SUITE/TASK", "SUITE/TASK@METRIC", "probe:NAME/FIELD", "cost:NAME".

    Args:
        kind: "score", or what stands before the colon.
        suite: Suite of a score.
        name: Task, or what stands after the colon.
        metric: Metric of a score, "" for the suite's.
    """

    kind: str
    suite: str
    name: str
    metric: str = ""


KINDS = ("probe", "cost", "stage")


def parse_quantity(text: str, where: str) -> ItemQuantity:
    """Parse a quantity; raises DataError where it is none.

    >>> parse_quantity("tncse-retrieval/avg@ndcg@10", "")
    ItemQuantity(kind='score', suite='tncse-retrieval', name='avg', metric='ndcg@10')
    >>> parse_quantity("probe:cls_energy/mean", "").name
    'cls_energy/mean'
    """
    kind, colon, rest = text.partition(":")
    if colon and kind in KINDS and rest:
        return ItemQuantity(kind, "", rest)
    suite, slash, task = text.partition("/")
    name, _, metric = task.partition("@")
    if not (suite and slash and name):
        raise DataError(f"'{text}' is no quantity", where=where, expected="SUITE/TASK[@METRIC] or KIND:NAME")
    return ItemQuantity("score", suite, name, metric)


def lay_out_cells(item: Item, profile: str, backbone: Backbone) -> tuple[ItemCell, ...]:
    """Return the cells of an item, in the paper's order.

    Args:
        item: The item.
        profile: Whose printed figures stand beside: those of this backbone, or where the paper has none for
            it, those of the item's first.
        backbone: What grids depend on.

    Raises:
        DataError: the item's own data contradict each other.
    """
    if item.sweep:
        return tuple(_sweep_cells(item, backbone))
    if item.shows:
        return tuple(
            ItemCell((("method", label),), ((_COLUMN, column),), (method,) if method else (), shown)
            for label, method in item.methods.items()
            for column, shown in item.shows.items()
        )
    shown = profile if profile in item.backbones else item.backbones[0]
    return tuple(_figure_cell(item, figure) for figure in item.figures if figure.backbone in ("", shown))


def cell_label(item: Item, parts: Iterable[tuple[str, str]]) -> str:
    """Return what names a row or column: the paper's words for each value."""
    shown = (item.names.get(value, printed_name(value)) for _, value in parts)
    return ", ".join(filter(None, shown)) or DASH


def single_tasks(found: Iterable[ItemCell], where: str) -> frozenset[str]:
    """Return the suites of which some cells show one task, or the average, alone."""
    tasks: dict[str, set[str]] = {}
    for place in found:
        if place.methods and (shown := parse_quantity(place.quantity, where)).suite:
            tasks.setdefault(shown.suite, set()).add(shown.name)
    return frozenset(suite for suite, names in tasks.items() if len(names) == 1)


def cell_methods(found: Iterable[ItemCell]) -> tuple[str, ...]:
    """Return the methods of some cells, each once."""
    return tuple(dict.fromkeys(method for place in found for method in place.methods))


def match_figure(table: Mapping[str, T], figure: PublishedFigure, field: str = "method") -> T | None:
    """Return the entry for a figure, of the key with most pairs that all hold; None where there is none.

    A key is "NAME" or "NAME KEY=VALUE,...": the figure's method (or another field of it), and pairs of its
    setting, method, backbone, task or metric.
    """
    best: tuple[int, T] | None = None
    for key, value in table.items():
        name, _, rest = key.partition(" ")
        pairs = [part.partition("=")[::2] for part in rest.split(",") if part]
        holds = all(figure_value(figure, known) == wanted for known, wanted in pairs)
        if name == figure_value(figure, field) and holds and (best is None or len(pairs) > best[0]):
            best = (len(pairs), value)
    return best[1] if best else None


def figure_value(figure: PublishedFigure, name: str) -> str:
    """Return a field of a figure, or what its setting says under that key; "" where it says nothing."""
    if name in ("method", "task", "metric", "backbone", "table"):
        return str(getattr(figure, name))
    return dict(figure.setting).get(name, "")


def _figure_cell(item: Item, figure: PublishedFigure) -> ItemCell:
    row, column = (
        tuple((name, figure_value(figure, name)) for name in names) for names in (item.rows, item.columns)
    )
    sides = [match_figure(item.methods, side) for side in _split_difference(figure)]
    if None in sides:
        raise DataError(
            f"no method for the printed '{figure.method}' ({_describe_figure(figure)})",
            where=f"bench/papers: {item.id}",
        )
    own = tuple(filter(None, sides))
    return ItemCell(
        row, column, own if len(own) == len(sides) else (), _figure_quantity(item, figure), figure
    )


def _split_difference(figure: PublishedFigure) -> list[PublishedFigure]:
    """The figure itself, or both sides of a difference: "data=A minus data=B"."""
    for key, value in figure.setting:
        if MINUS in value:
            rest = tuple(pair for pair in figure.setting if pair[0] != key)
            both = (side.removeprefix(f"{key}=") for side in value.split(MINUS))
            return [replace(figure, setting=(*rest, (key, side))) for side in both]
    return [figure]


def _describe_figure(figure: PublishedFigure) -> str:
    return ", ".join((figure.table, figure.task, *("=".join(pair) for pair in figure.setting)))


def _figure_quantity(item: Item, figure: PublishedFigure) -> str:
    """What of ours belongs beside a figure."""
    metric = item.metrics.get(figure.metric, "")
    if metric and not metric.startswith("@"):
        return metric
    if (known := match_figure(item.tasks, figure, "task")) is not None:
        return known + metric
    return f"{item.suites[0]}/{figure.task}{metric}" if item.suites else ""


def _sweep_cells(item: Item, backbone: Backbone) -> Iterable[ItemCell]:
    """A grid's points as cells; one with several quantities has a column for each."""
    for point in find_sweep(item.sweep).points(backbone):
        if item.keep and not {point.row, point.row.partition(",")[0], point.column}.intersection(item.keep):
            continue
        for label, shown in item.shows.items():
            column = f"{point.column}, {label}" if len(item.shows) > 1 else point.column
            yield ItemCell(
                (("row", point.row),), ((_COLUMN, column),), (add_options(point.method, item.set),), shown
            )


def add_options(method: str, options: str) -> str:
    """Return a method with more options in its brackets.

    >>> add_options("tncse[drop_norms=2]", "sick=true"), add_options("tncse", "")
    ('tncse[drop_norms=2,sick=true]', 'tncse')
    """
    if not options:
        return method
    made = f"{method[:-1]},{options}]" if method.endswith("]") else f"{method}[{options}]"
    parse_methods(made)
    return made
