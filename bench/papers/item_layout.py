"""Lay an item out as tables and figures: the paper's printed figures, and those of the records here."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import TypeVar

from bench.config.sweep_manifest import Manifest
from bench.data.published_tables import PAPERS
from bench.gradient.figures import JOINT, select_gradient_figures
from bench.gradient.run import MEASURED
from bench.papers.item_cells import (
    ItemCell,
    ItemQuantity,
    cell_label,
    compare_hyperparameters,
    parse_quantity,
)
from bench.papers.paper_items import Item
from bench.records.record import AVERAGE, RunRecord
from bench.render.figure import Figure
from bench.render.grid import DASH, SCALE, Grid, Quoted, ScoreCell, Value, mean_or_none, summarise_values
from bench.reports.record_groups import by_method, failure_reasons, finished_records, label_lines
from bench.reports.tables.published_figures import paper_backbone, paper_text
from bench.reports.tables.retrieval_metrics import KINDS, metrics_at_ranks
from bench.reports.tables.sweep_tables import distinct_records, grid_axes, sweep_grids

T = TypeVar("T")
_MOST_TESTED = 16
"""Methods that a command names."""
_MOST_POINTS = 9
"""Lines and columns of a figure's table."""
NO_METHOD_SIGN = " *"
"""Follows the name of a row whose method bench lacks."""


@dataclass(frozen=True)
class ItemRecords:
    """The records of an item in one profile.

    Args:
        records: Records of each method, by the method's text in the item, of all suites and seeds.
        stand_ins: Suite that was measured in another's place, by suite.
        impossible: Why this backbone excludes a method, by its text.
        comparable: True for the paper's own backbone, data and settings.
        alone: Suites of which the item shows only one task, or only the average.
    """

    profile: str
    records: Mapping[str, Sequence[RunRecord]]
    seeds: tuple[int, ...]
    stand_ins: Mapping[str, str] = field(default_factory=dict)
    impossible: Mapping[str, str] = field(default_factory=dict)
    comparable: bool = True
    notes: tuple[str, ...] = ()
    alone: frozenset[str] = frozenset()
    campaign: str = ""

    def values_by_seed(self, method: str, quantity: ItemQuantity) -> dict[int | None, float]:
        """Return a quantity of a method's records, by seed.

        A stand-in suite has other tasks: for a suite of which the item shows one task, its average is read.
        """
        values: dict[int | None, float] = {}
        suite = self.stand_ins.get(quantity.suite, quantity.suite)
        averaged = quantity.suite in self.stand_ins and quantity.suite in self.alone
        name = AVERAGE if averaged else quantity.name
        for record in self.records.get(method, ()):
            value = None
            if quantity.kind != "score":
                value = _READERS[quantity.kind](record, name)
            elif record.suite == suite:
                value = _record_score(record, name, quantity.metric)
            if value is not None:
                values[record.seed] = value
        return values


def matches_paper(item: Item, records: Iterable[RunRecord]) -> bool:
    """True if every record has a backbone of the paper, reference data, and a text of the papers."""
    for record in finished_records(records):
        if paper_backbone(record) not in item.backbones or paper_text(record) is None:
            return False
        if not all(facts["reference"] for facts in record.tasks.values()):
            return False
    return True


def hyperparameter_grid(item: Item) -> Grid:
    """Return the printed hyperparameters next to ours."""
    rows = []
    for setting in compare_hyperparameters(item):
        figure = setting.figure
        method = figure.method
        if figure.setting:
            method += f" ({', '.join(map('='.join, figure.setting))})"
        why = "" if setting.equal else setting.differs or "not explained"
        printed = Quoted(figure.text, grey=False)
        option = setting.option or DASH
        rows.append((method, figure.backbone or DASH, figure.metric, printed, setting.ours, option, why))
    header = ("method", "backbone", "hyperparameter", "printed", "here", "option", "why it differs")
    return Grid(item_title(item), header, tuple(rows), item_remarks(item))


def item_grid(item: Item, places: Sequence[ItemCell], records: ItemRecords) -> Grid:
    """Return an item in the paper's layout: a line of printed figures, and below it one of ours."""
    cells: dict[tuple[str, str], ItemCell | None] = {}
    for place in places:
        cells[cell_label(item, place.row), cell_label(item, place.column)] = place
    rows, columns = grid_axes(cells)
    printed = _has_figures(places)
    body: list[tuple[Value, ...]] = []
    for row in rows:
        row_cells = [cells.get((row, column)) for column in columns]
        known = list(filter(None, row_cells))
        runs = any(cell.methods for cell in known)
        name = row + NO_METHOD_SIGN * (printed and not runs)
        if _has_figures(known):
            body.append((name, "paper", *(_printed_cell(cell, records) for cell in row_cells)))
            name = ""
        if runs:
            source = ("bench",) * printed
            body.append((name, *source, *(_own_cell(item, cell, records) for cell in row_cells)))
    heading = "" if item.sweep else ", ".join(item.rows)
    header = (heading, "", *columns) if printed else (heading, *columns)
    title = f"{item_title(item)}; profile {records.profile}"
    return Grid(title, header, tuple(body), _grid_notes(item, places, records))


def _has_figures(places: Iterable[ItemCell]) -> bool:
    return any(place.figure for place in places)


def item_title(item: Item) -> str:
    """Return paper and title."""
    return f"{PAPERS[item.paper]}, {item.title}"


def _printed_cell(place: ItemCell | None, records: ItemRecords) -> Value:
    if place is None or place.figure is None:
        return DASH
    return Quoted(place.figure.text, grey=not records.comparable, sign=" ?" if place.figure.misprints else "")


def _own_cell(item: Item, place: ItemCell | None, records: ItemRecords) -> Value:
    if place is None or not place.methods or not records.impossible.keys().isdisjoint(place.methods):
        return DASH
    quantity = parse_quantity(place.quantity, item.id)
    first, *others = [records.values_by_seed(method, quantity) for method in place.methods]
    if quantity.kind != "score":
        return _format_values(list(first.values()))
    if not others:
        return summarise_values(list(first.values()))
    second = others[0]
    if None not in first and None not in second:
        return summarise_values([first[seed] - second[seed] for seed in first if seed in second])
    # a method without seeds against one with them: their means differ
    a, b = summarise_values(list(first.values())), summarise_values(list(second.values()))
    if a.mean is None or b.mean is None:
        return ScoreCell(None, None, 0)
    return ScoreCell(a.mean - b.mean, None, min(a.n, b.n))


def _record_score(record: RunRecord, name: str, metric: str) -> float | None:
    """A task's score, a kind's mean (as UNSEE's), or a metric's mean over tasks ("mean": of all at ranks)."""
    if metric and name == AVERAGE:
        tasks = list(metrics_at_ranks(record).values())
        metrics = list(tasks[0]) if tasks and metric == "mean" else [metric]
        values = []
        for each in metrics:
            if scores := [task[each] for task in tasks if each in task]:
                values.append(fmean(scores))
        return mean_or_none(values)
    for kind, (_, short) in KINDS.items():
        if short == name:
            return record.score(kind, "mean")
    return record.score(name, metric=metric or None)


def _probe_value(record: RunRecord, name: str) -> float | None:
    """The number of a probe at "PROBE/FIELD/...", if any."""
    value: object = record.probes
    for part in name.split("/"):
        if isinstance(value, list) and part.lstrip("-").isdigit():
            value = value[int(part)] if value else None
        else:
            value = value.get(part) if isinstance(value, dict) else None
    return float(value) if isinstance(value, int | float) else None


def _cost_value(record: RunRecord, name: str) -> float | None:
    """1e9 multiply-accumulates of a sentence of 64 tokens; eta: the average x 100 for each of them."""
    gmac, average = _probe_value(record, "cost/gmac"), record.score("avg")
    if name != "eta":
        return gmac
    return SCALE * average / gmac if gmac and average is not None else None


def _stage_value(record: RunRecord, name: str) -> float | None:
    """The mean of a list, or the last point of a curve, of a record's first stage that has it."""
    stages = record.training.get("stages", {}).values()
    value = next((stage[name] for stage in stages if stage.get(name)), None)
    if not value:
        return None
    return float(value[-1][1]) if isinstance(value[-1], list) else fmean(map(float, value))


_READERS = {"probe": _probe_value, "cost": _cost_value, "stage": _stage_value}


def _format_values(values: Sequence[float]) -> str:
    """Mean and deviation, with four digits and unscaled."""
    if not values:
        return DASH
    spread = f"±{stdev(values):.2g}" if len(values) > 1 else ""
    return f"{fmean(values):.4g}{spread}"


def item_remarks(item: Item) -> tuple[str, ...]:
    """Return the paper's conclusion, and differences here."""
    says = f"The paper: {item.says}" if item.says else ""
    return tuple(filter(None, (says, item.note)))


def _test_command(records: ItemRecords, used: Sequence[RunRecord]) -> list[str]:
    """The command that tests the methods, if several methods have several seeds."""
    methods = list(by_method(used))
    if len(records.seeds) < 2 or not 1 < len(methods) <= _MOST_TESTED:
        return []
    suites = list(dict.fromkeys(record.suite for record in used))
    suite = f" --suite {shlex.quote(suites[0])}" if len(suites) == 1 else ""
    command = f"bench report --campaign {shlex.quote(records.campaign)} --profile {records.profile}{suite}"
    return [
        f"Which of them differ: {command} --table significance --methods {shlex.quote(','.join(methods))}"
    ]


def _grid_notes(item: Item, places: Sequence[ItemCell], records: ItemRecords) -> tuple[str, ...]:
    methods = dict.fromkeys(method for place in places for method in place.methods)
    used = distinct_records(records.records.get(method, ()) for method in methods)
    lines = list(item_remarks(item))
    if methods:
        seeds = ", ".join(map(str, records.seeds))
        lines.append(f"bench: mean and standard deviation over seeds {seeds}; scores x {SCALE:g}.")
        lines += _test_command(records, used)
    if _has_figures(places) and not records.comparable:
        lines.append(
            f"Printed figures are in parentheses: they are of {item.backbones[0]}, the paper's data and "
            f"settings, ours of others (profile {records.profile}), so the two can't be compared."
        )
    replaced = sorted(set(item.suites).intersection(records.stand_ins))
    if replaced:
        pairs = ", ".join(f"{records.stand_ins[suite]} for {suite}" for suite in replaced)
        lines.append(f"Stand-ins of this profile: {pairs}.")
    if any(not place.methods and place.figure for place in places):
        lines.append("*, and a dash below a printed figure: bench has no such method, it stands alone.")
    misprints: dict[str, dict[str, None]] = {}
    for place in places:
        for misprint in place.figure.misprints if place.figure else ():
            misprints.setdefault(misprint, {})[cell_label(item, place.row)] = None
    lines += [f"? {', '.join(rows)}: {misprint}." for misprint, rows in misprints.items()]
    lines += [f"Not run: {method}: {why}." for method, why in records.impossible.items() if method in methods]
    missing = [method for method in methods - records.impossible.keys() if not records.records.get(method)]
    if missing:
        lines.append(f"Not run yet: {', '.join(sorted(missing))}.")
    lines += label_lines("Failed", failure_reasons(used))
    return tuple(dict.fromkeys((*lines, *records.notes)))


def surface_grids(item: Item) -> list[Grid]:
    """Return the values of an item's formula."""
    manifest = Manifest(item.formula, "", ("formula",), (), ())
    return [replace(grid, title=item_title(item)) for grid in sweep_grids([manifest], [], "")]


# Items that ``bench gradient`` measures


def item_figures(item: Item, folder: Path, files: Sequence[Path]) -> list[Figure]:
    """Return an item's figures, of its first run's files and of all; raises DataError for a damaged file."""
    runs = [file for file in files if file.name == MEASURED]
    first_run = select_gradient_figures(folder, [file for file in files if file not in runs[1:]])
    names = {figure.name for figure in first_run}
    figures = []
    for figure in select_gradient_figures(folder, files):
        measured = figure.name in names or figure.name.startswith(JOINT)
        if measured and item.draws_it(figure.section, figure.name):
            figures.append(figure)
    return figures


def item_tables(item: Item, figures: Sequence[Figure]) -> list[Grid]:
    """Return the numbers of an item's figures, a table each, the first with the item's notes."""
    tables, remarks = [], item_remarks(item)
    for figure in figures:
        grid = _figure_table(figure)
        title = f"{item_title(item).partition(':')[0]}; {grid.title}"
        tables.append(replace(grid, title=title, notes=(*remarks, *grid.notes)))
        remarks = ()
    return tables


def _figure_table(figure: Figure) -> Grid:
    """A figure's points, thinned."""
    body: list[tuple[str, ...]] = []
    if figure.kind == "heat":
        columns = _thin_values(range(len(figure.columns)))
        for i in _thin_values(range(len(figure.rows))):
            body.append((figure.rows[i], *(f"{figure.cells[i][j]:.3f}" for j in columns)))
        header = (f"{figure.y}, by {figure.x}", *(figure.columns[j] for j in columns))
        return Grid(figure.title, header, tuple(body), ())
    lines: list[dict[float, str]] = []
    for series in figure.series:
        texts = map("{:.4g}".format, series.y)
        if series.spread:
            texts = map("{:.4g}±{:.2g}".format, series.y, series.spread)
        lines.append(dict(zip(series.x, texts, strict=True)))
    for x in _thin_values(sorted(set().union(*lines))):
        body.append((f"{x:g}", *(line.get(x, DASH) for line in lines)))
    header = (figure.x, *(series.name for series in figure.series))
    return Grid(figure.title, header, tuple(body), tuple(filter(None, [figure.note])))


def _thin_values(values: Sequence[T]) -> list[T]:
    if len(values) <= _MOST_POINTS:
        return list(values)
    step = (len(values) - 1) / (_MOST_POINTS - 1)
    return [values[round(step * i)] for i in range(_MOST_POINTS)]
