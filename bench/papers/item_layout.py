"""An item as a table: what the paper prints, and below it what the records here say."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, stdev

from bench.config.sweep_manifest import Manifest
from bench.data.published_tables import PAPERS
from bench.papers.hyperparameters import compare_hyperparameters
from bench.papers.item_cells import ItemCell, ItemQuantity, cell_label, parse_quantity
from bench.papers.paper_items import Item
from bench.records.record import AVERAGE, RunRecord
from bench.render.grid import DASH, SCALE, Grid, Quoted, ScoreCell, Value, summarise_values
from bench.reports.records import failure_reasons, finished_records
from bench.reports.tables.categories import KINDS
from bench.reports.tables.metrics import metrics_at_ranks
from bench.reports.tables.published_figures import paper_backbone, paper_text
from bench.reports.tables.sweep_tables import sweep_grids

_MOST_TESTED = 16
"""Methods that a command names."""
NO_METHOD_SIGN = " *"
"""After the name of a row that has no method here."""


@dataclass(frozen=True)
class ItemRecords:
    """What there is for an item in one profile.

    Args:
        profile: The profile's label in results.
        records: Records of each method, by the method's text in the item, of all suites and seeds.
        seeds: Seeds that were asked for.
        stand_ins: Suite that was measured in another's place, by suite.
        impossible: Why a method can't be run on this backbone, by its text.
        comparable: True for the paper's own backbone, data and settings.
        notes: What every table of the profile has to say.
        alone: Suites of which the item shows one task, or the average, alone.
        campaign: Where the records are.
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

    def read(self, shown: ItemQuantity) -> ItemQuantity:
        """Return what is read for a quantity: a stand-in has other tasks, so for one alone its average."""
        replaced = shown.suite in self.stand_ins and shown.suite in self.alone
        return replace(shown, name="avg") if replaced else shown

    def of(self, method: str, suite: str) -> list[RunRecord]:
        """Return a method's records on a suite, or on what stands in for it."""
        suite = self.stand_ins.get(suite, suite)
        return [record for record in self.records.get(method, ()) if record.suite == suite]


def matches_paper(item: Item, records: Iterable[RunRecord]) -> bool:
    """True where every record is of a backbone of the paper, on reference data, from a text of the papers."""
    return all(
        paper_backbone(record) in item.backbones
        and all(facts["reference"] for facts in record.tasks.values())
        and paper_text(record) is not None
        for record in finished_records(records)
    )


def hyperparameter_grid(item: Item) -> Grid:
    """Return the printed hyperparameters next to ours."""
    rows = [
        (
            " ".join(filter(None, (setting.figure.method, _setting_text(setting.figure.setting)))),
            setting.figure.backbone or DASH,
            setting.figure.metric,
            Quoted(setting.figure.text, grey=False),
            setting.ours,
            setting.option or DASH,
            "" if setting.equal else setting.differs or "not explained",
        )
        for setting in compare_hyperparameters(item)
    ]
    header = ("method", "backbone", "hyperparameter", "printed", "here", "option", "why it differs")
    return Grid(item_title(item), header, tuple(rows), item_remarks(item))


def _setting_text(setting: Iterable[tuple[str, str]]) -> str:
    told = ", ".join("=".join(pair) for pair in setting)
    return f"({told})" if told else ""


def item_grid(item: Item, places: Sequence[ItemCell], found: ItemRecords) -> Grid:
    """Return an item in the paper's layout: a line of printed figures, and below it one of ours."""
    at = {(cell_label(item, place.row), cell_label(item, place.column)): place for place in places}
    rows, columns = (list(dict.fromkeys(key[i] for key in at)) for i in (0, 1))
    printed = any(place.figure for place in places)
    body: list[tuple[Value, ...]] = []
    for row in rows:
        here = [at.get((row, column)) for column in columns]
        own = any(place is not None and place.methods for place in here)
        name = row + ("" if own or not printed else NO_METHOD_SIGN)
        if any(place is not None and place.figure for place in here):
            body.append((name, "paper", *(_printed_cell(place, found) for place in here)))
            name = ""
        if own:
            whose = ("bench",) if printed else ()
            body.append((name, *whose, *(_own_cell(item, place, found) for place in here)))
    header = (_row_heading(item, item.rows), *(("",) if printed else ()), *columns)
    return Grid(
        f"{item_title(item)}; profile {found.profile}", header, tuple(body), _grid_notes(item, places, found)
    )


def item_title(item: Item) -> str:
    """Return paper and title."""
    return f"{PAPERS[item.paper]}, {item.title}"


def _row_heading(item: Item, names: Sequence[str]) -> str:
    return "" if item.sweep else ", ".join(names)


def _printed_cell(place: ItemCell | None, found: ItemRecords) -> Value:
    if place is None or place.figure is None:
        return DASH
    return Quoted(place.figure.text, grey=not found.comparable, sign=" ?" if place.figure.misprints else "")


def _own_cell(item: Item, place: ItemCell | None, found: ItemRecords) -> Value:
    if place is None or not place.methods:
        return DASH
    if any(method in found.impossible for method in place.methods):
        return DASH
    shown = found.read(parse_quantity(place.quantity, item.id))
    sides = [_values_by_seed(method, shown, found) for method in place.methods]
    if shown.kind != "score":
        return _format_values(list(sides[0].values()))
    if len(sides) == 1:
        return summarise_values(list(sides[0].values()))
    first, second = sides
    if None in first or None in second:  # a method without seeds against one with them: their means differ
        return _mean_difference(
            summarise_values(list(first.values())), summarise_values(list(second.values()))
        )
    return summarise_values([first[seed] - second[seed] for seed in first if seed in second])


def _mean_difference(first: ScoreCell, second: ScoreCell) -> ScoreCell:
    if first.mean is None or second.mean is None:
        return ScoreCell(None, None, 0)
    return ScoreCell(first.mean - second.mean, None, min(first.n, second.n))


def _values_by_seed(method: str, shown: ItemQuantity, found: ItemRecords) -> dict[int | None, float]:
    """The quantity of a method's records, by seed."""
    if shown.kind == "score":
        records = found.of(method, shown.suite)
        read = {record.seed: _record_score(record, shown.name, shown.metric) for record in records}
        return {seed: value for seed, value in read.items() if value is not None}
    readers = {"probe": _probe_value, "cost": _cost_value, "stage": _stage_value}
    each = ((r.seed, readers[shown.kind](r, shown.name)) for r in found.records.get(method, ()))
    return {seed: value for seed, value in each if value is not None}


def _record_score(record: RunRecord, name: str, metric: str) -> float | None:
    """A task's score, a kind's mean (as UNSEE's), or a metric's mean over tasks ("mean": of all at ranks)."""
    if metric and name == AVERAGE:
        found = metrics_at_ranks(record)
        means = [fmean(task[m] for task in found.values()) for m in next(iter(found.values()), ())]
        shown = means if metric == "mean" else [task[metric] for task in found.values() if metric in task]
        return fmean(shown) if shown else None
    kinds = {name: kind for kind, (_, name) in KINDS.items()}
    if name in kinds:
        return record.score(kinds[name], "mean")
    return record.score(name, metric=metric or None)


def _probe_value(record: RunRecord, name: str) -> float | None:
    """What a probe found under "PROBE/FIELD/...", None where it isn't there or no number."""
    value: object = record.probes
    for part in name.split("/"):
        if isinstance(value, list) and part.lstrip("-").isdigit():
            value = value[int(part)] if value else None
        else:
            value = value.get(part) if isinstance(value, dict) else None
    return float(value) if isinstance(value, int | float) else None


def _cost_value(record: RunRecord, name: str) -> float | None:
    """Multiply-accumulates, 1e9, of a sentence of 64 tokens; eta: the average x 100 for each of them."""
    gmac, average = _probe_value(record, "cost/gmac"), record.score("avg")
    if name != "eta":
        return gmac
    return SCALE * average / gmac if gmac and average is not None else None


def _stage_value(record: RunRecord, name: str) -> float | None:
    """The mean of a list, or the last point of a curve, that a stage of a record keeps."""
    stages = record.training.get("stages", {}).values()
    value = next((stage[name] for stage in stages if stage.get(name)), None)
    if not value:
        return None
    return float(value[-1][1]) if isinstance(value[-1], list) else fmean(map(float, value))


def _format_values(values: Sequence[float]) -> str:
    """Mean and deviation of what isn't a score: as it is, with four digits."""
    if not values:
        return DASH
    spread = f"±{stdev(values):.2g}" if len(values) > 1 else ""
    return f"{fmean(values):.4g}{spread}"


def item_remarks(item: Item) -> tuple[str, ...]:
    """Return what the paper concludes, and what differs here."""
    says = f"The paper: {item.says}" if item.says else ""
    return tuple(filter(None, (says, item.note)))


def _test_command(found: ItemRecords, records: Sequence[RunRecord]) -> list[str]:
    """The command that says which of the methods differ, where there is more than a seed of some."""
    named = list(dict.fromkeys(record.method for record in records))
    if len(found.seeds) < 2 or not 1 < len(named) <= _MOST_TESTED:
        return []
    suites = list(dict.fromkeys(record.suite for record in records))
    suite = f" --suite {shlex.quote(suites[0])}" if len(suites) == 1 else ""
    command = f"bench report --campaign {shlex.quote(found.campaign)} --profile {found.profile}{suite}"
    return [f"Which of them differ: {command} --table significance --methods {shlex.quote(','.join(named))}"]


def _grid_notes(item: Item, places: Sequence[ItemCell], found: ItemRecords) -> tuple[str, ...]:
    own = [place for place in places if place.methods]
    used = {method for place in own for method in place.methods}
    records = list({id(r): r for method in used for r in found.records.get(method, ())}.values())
    lines = list(item_remarks(item))
    if own:
        seeds = ", ".join(map(str, found.seeds))
        lines.append(f"bench: mean and standard deviation over seeds {seeds}; scores x {SCALE:g}.")
        lines += _test_command(found, records)
    if any(place.figure for place in places) and not found.comparable:
        lines.append(
            f"Printed figures are in parentheses: they are of {item.backbones[0]}, the paper's data and "
            f"settings, ours of others (profile {found.profile}), so the two can't be compared."
        )
    if replaced := {suite: other for suite, other in found.stand_ins.items() if suite in item.suites}:
        told = ", ".join(f"{other} for {suite}" for suite, other in sorted(replaced.items()))
        lines.append(f"Stand-ins of this profile: {told}.")
    if any(not place.methods and place.figure for place in places):
        lines.append("*, and a dash below a printed figure: bench has no such method, it stands alone.")
    doubts: dict[str, dict[str, None]] = {}
    for place in places:
        for what in place.figure.misprints if place.figure else ():
            doubts.setdefault(what, {})[cell_label(item, place.row)] = None
    lines += [f"? {', '.join(rows)}: {what}." for what, rows in doubts.items()]
    lines += [f"Not run: {method}: {why}." for method, why in found.impossible.items() if method in used]
    missing = sorted(method for method in used - found.impossible.keys() if not found.records.get(method))
    if missing:
        lines.append(f"Not run yet: {', '.join(missing)}.")
    lines += [f"Failed: {text}" for text in failure_reasons(records)]
    return tuple(dict.fromkeys((*lines, *found.notes)))


def surface_grids(item: Item) -> list[Grid]:
    """Return the values of an item's formula."""
    manifest = Manifest(item.formula, "", ("formula",), (), ())
    return [replace(found, title=item_title(item)) for found in sweep_grids([manifest], [], "")]
