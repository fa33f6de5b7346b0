"""Score against cost, by profile and suite, next to the papers' figures (JTCSE, Table VII)."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from bench.config.method_ids import split_outside_brackets
from bench.data.published_tables import PublishedFigure, PublishedRow, load_figures
from bench.records.imported import import_facts, is_imported
from bench.records.record import RunRecord
from bench.render.grid import DASH, SCALE, Grid, Quoted, Value, format_number, mean_or_none
from bench.render.method_names import printed_name
from bench.render.row_names import join_names
from bench.reports.campaign import Campaign
from bench.reports.record_groups import by_method, main_metric
from bench.reports.tables.leaderboard import OF_COLUMNS, OVER_SEEDS, LeaderboardRow, make_leaderboard
from bench.reports.tables.published_figures import (
    GREY,
    Footnotes,
    figure_remarks,
    matches_setup,
    published_names,
)
from bench.reports.tables.suite_tables import group_rows

_HEADER = (
    *("method", "avg", "GMAC", "eta", "M params", "sentences/s"),
    *("training sentences", "training CPU s"),
)
_OF_IMPORTED = ("method", "avg", "M params")
_METRICS = ("spearman", "gmac", "eta")
_PRINTED = tuple(f"published {name}" for name in _HEADER[1:4])
_SECTION, _SUITE = "ensemble_efficiency", "sts7"
_TWINS = ("tncse", "jtcse")
_SAID = (
    "Published: JTCSE, Table VII, of sts7 and bert-base; single encoders, two of them as an ensemble, and "
    "twins; rows of methods that have no record here stand at the end."
)
Cost = dict[str, PublishedFigure]


def published_costs() -> dict[tuple[str, str], Cost]:
    """Return the rows of the paper's table by method and tower: figures by metric."""
    costs: dict[tuple[str, str], Cost] = {}
    for figure in load_figures():
        if figure.section == _SECTION:
            costs.setdefault((figure.method, dict(figure.setting)["tower"]), {})[figure.metric] = figure
    return costs


def efficiency_grid(campaign: Campaign, records: Sequence[RunRecord]) -> Grid:
    """Return the table."""
    table, runs = make_leaderboard(campaign, records), by_method(records)
    rows: list[tuple[Value, ...]] = []
    groups, row_runs = [], []
    for heading, members in group_rows(table.rows):
        groups.append((len(rows), heading))
        for row in members:
            rows.append((campaign.shown(row.method), *_cost_cells(row, runs[row.method])))
            row_runs.append(runs[row.method])
    below = [
        *filter(None, [table.bold]),
        *(note for note in table.notes[1:] if not note.startswith((OVER_SEEDS, *OF_COLUMNS))),
    ]
    title = campaign.title("Efficiency", records)
    if all(map(is_imported, records)):
        places = [_HEADER.index(name) for name in _OF_IMPORTED]
        sizes = tuple(tuple(row[place] for place in places) for row in rows)
        said = (table.notes[0], *below, "M params: as the source says.")
        return Grid(title, _OF_IMPORTED, sizes, said, tuple(groups))
    notes = [
        table.notes[0],
        "GMAC of one sentence of 64 tokens (thop); eta: average x 100 per GMAC; training: CPU seconds of "
        "all stages of a run, mean over seeds.",
        *below,
        "As recorded: costs, sizes and times, which only measuring again confirms.",
    ]
    if lacking := [campaign.shown(method) for method, own in runs.items() if _lacks_cost(own)]:
        notes.append(f"No GMAC for {join_names(lacking)}: bench run --probes cost measures it.")
    if any(_cost_facts(record).get("gmac") == 0 for record in records):
        notes.append("GMAC 0: a table of token vectors, no transformer; the lookups aren't counted.")
    return _add_published(Grid(title, _HEADER, tuple(rows), tuple(notes), tuple(groups)), row_runs)


def _lacks_cost(records: Sequence[RunRecord]) -> bool:
    """Return True for a row that bench could measure, and didn't."""
    return not any(is_imported(record) or "gmac" in _cost_facts(record) for record in records)


def _cost_cells(row: LeaderboardRow, records: Sequence[RunRecord]) -> tuple[Value, ...]:
    costs = [_cost_facts(record) for record in records]
    gmac = [float(cost["gmac"]) for cost in costs if "gmac" in cost]
    million = [cost["parameters"] / 1e6 for cost in costs if "parameters" in cost]
    timings = (record.timing.get("probes", {}).get("sentences_per_second") for record in records)
    speed = [value for value in timings if value is not None]
    average, eta = row.cells["avg"], list[float]()
    if any(gmac) and average.mean is not None:
        eta = [SCALE * average.mean / fmean(gmac)]
    values = ((gmac, ".3f"), (eta, ".2f"), (million, ".1f"), (speed, ".0f"))
    texts = (format_number(mean_or_none(numbers), form) for numbers, form in values)
    return (average, *texts, row.sentences_text, row.seconds_text)


def _cost_facts(record: RunRecord) -> dict[str, float]:
    facts: dict[str, float] = record.probes.get("cost", {})
    size = import_facts(record).get("n_parameters")
    return facts if size is None else {**facts, "parameters": float(size)}


def _add_published(grid: Grid, rows: Sequence[Sequence[RunRecord]]) -> Grid:
    """The table with the paper's figures, if it prints a row's method."""
    printed, footnotes = published_costs(), Footnotes()
    places = [_published_place(runs[0], printed) for runs in rows]
    if not any(places) or main_metric(rows[0]) != "spearman":
        return grid
    body: list[tuple[Value, ...]] = []
    for row, place, runs in zip(grid.rows, places, rows, strict=True):
        body.append((*row, *_quote_costs(printed[place] if place else {}, footnotes, runs[0])))
    groups = grid.groups
    for place in printed:
        if place not in places:
            if groups == grid.groups:
                groups = (*groups, (len(body), "published only"))
            empty = (DASH,) * (len(_HEADER) - 1)
            body.append((_published_name(*place), *empty, *_quote_costs(printed[place], footnotes)))
    notes = (*grid.notes, _SAID, GREY, *footnotes.notes)
    return Grid(grid.title, (*grid.header, *_PRINTED), tuple(body), notes, groups)


def _published_place(record: RunRecord, printed: dict[tuple[str, str], Cost]) -> tuple[str, str] | None:
    """The paper's row of a record's method."""
    if record.name == "ensemble":
        members = split_outside_brackets(str(record.options.get("of", "")), "+")
        names = tuple({member.partition("[")[0] for member in members})
        towers: tuple[str, ...] = ("ensemble",) if len(names) == 1 and len(members) == 2 else ()
    else:
        names = () if "pooling=" in record.method else published_names(record)  # the paper's are of [CLS]
        towers = ("ensemble" if record.name in _TWINS else "single", "distilled")
    places = ((name, tower) for name in names for tower in towers)
    return next((place for place in places if place in printed), None)


def _quote_costs(cost: Cost, footnotes: Footnotes, record: RunRecord | None = None) -> list[Value]:
    """The figures of a row, grey unless they are of our backbone, data and text."""
    same = False
    if record is not None and cost and record.suite == _SUITE and record.name != "ensemble":
        same = matches_setup(record, PublishedRow({"avg": cost["spearman"]}))
    cells: list[Value] = []
    for metric in _METRICS:
        if figure := cost.get(metric):
            remarks = figure_remarks(figure, figure.misprints)
            cells.append(Quoted(figure.text, not same, footnotes.sign(remarks)))
        else:
            cells.append(DASH)
    return cells


def _published_name(method: str, tower: str) -> str:
    name = printed_name(method)
    return f"{name} x 2" if tower == "ensemble" and method not in (*_TWINS, "edfse") else name
