"""Score against cost, by profile and suite, with the papers' figures beside (JTCSE, Table VII)."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from bench.comparison.selection import group_by
from bench.config.method_ids import split_outside_brackets
from bench.data.published_tables import PublishedFigure, PublishedRow, load_figures
from bench.records.record import RunRecord
from bench.render.grid import DASH, SCALE, Grid, Quoted, Value
from bench.render.names import printed_name
from bench.reports.campaign import Campaign
from bench.reports.records import by_method, by_profile_and_suite, main_metric
from bench.reports.tables.leaderboard import OF_COLUMNS, OVER_SEEDS, LeaderboardRow, make_leaderboard
from bench.reports.tables.published_figures import GREY, Footnotes, matches_setup, published_names
from bench.reports.tables.suite_tables import group_rows

_HEADER = (
    *("method", "avg", "GMAC", "eta", "M params", "sentences/s"),
    *("training sentences", "training CPU s"),
)
_METRICS = ("spearman", "gmac", "eta")
_PRINTED = tuple(f"published {name}" for name in _HEADER[1:4])
_SECTION, _SUITE = "ensemble_efficiency", "sts7"
_SAID = (
    "Published: JTCSE, Table VII, of sts7 and bert-base; single encoders, two of them as an ensemble, and "
    "twins; rows of methods that have no record here stand at the end."
)
Cost = dict[str, PublishedFigure]


def efficiency_grids(campaign: Campaign) -> list[Grid]:
    """Return a table for every profile and suite."""
    return [_efficiency_grid(campaign, records) for records in by_profile_and_suite(campaign.records)]


def published_costs() -> dict[tuple[str, str], Cost]:
    """Return the rows of the paper's table by method and tower: figures by metric."""
    of_table = [figure for figure in load_figures() if figure.section == _SECTION]
    rows = group_by(of_table, lambda figure: (figure.method, dict(figure.setting)["tower"]))
    return {place: {figure.metric: figure for figure in row} for place, row in rows.items()}


def _efficiency_grid(campaign: Campaign, records: Sequence[RunRecord]) -> Grid:
    table, runs = make_leaderboard(campaign, records), by_method(records)
    rows: list[tuple[Value, ...]] = []
    groups = []
    for heading, members in group_rows(table.rows):
        groups.append((len(rows), heading))
        rows += [(campaign.shown(row.method), *_cost_cells(row, runs[row.method])) for row in members]
    lacking = [
        campaign.shown(method)
        for method, own in runs.items()
        if not any("gmac" in _cost_facts(run) for run in own)
    ]
    notes = [
        table.notes[0],
        "GMAC of one sentence of 64 tokens (thop); eta: average x 100 per GMAC; training: CPU seconds of "
        "all stages of a run, mean over seeds.",
        *filter(None, [table.caption]),
        *(note for note in table.notes[1:] if not note.startswith((OVER_SEEDS, *OF_COLUMNS))),
    ]
    if lacking:
        notes.append(f"No GMAC for {', '.join(lacking)}: bench run --probes cost measures it.")
    if any(_cost_facts(record).get("gmac") == 0 for record in records):
        notes.append("GMAC 0: a table of token vectors, no transformer; the lookups aren't counted.")
    title = f"Efficiency: {table.suite}, profile {table.profile}, campaign {campaign.name}"
    ids = [row.method for _, members in group_rows(table.rows) for row in members]
    grid = Grid(title, _HEADER, tuple(rows), tuple(notes), tuple(groups))
    return _add_published(grid, [runs[method] for method in ids])


def _cost_cells(row: LeaderboardRow, records: Sequence[RunRecord]) -> tuple[Value, ...]:
    costs = [_cost_facts(record) for record in records]
    gmac = [float(cost["gmac"]) for cost in costs if "gmac" in cost]
    million = [cost["parameters"] / 1e6 for cost in costs if "parameters" in cost]
    speed = [s for r in records if (s := r.timing.get("probes", {}).get("sentences_per_second")) is not None]
    average = row.cells["avg"]
    eta = f"{SCALE * average.mean / fmean(gmac):.2f}" if any(gmac) and average.mean is not None else DASH
    return (
        average,
        f"{fmean(gmac):.3f}" if gmac else DASH,
        eta,
        f"{fmean(million):.1f}" if million else DASH,
        f"{fmean(speed):.0f}" if speed else DASH,
        row.sentences_text,
        row.seconds_text,
    )


def _cost_facts(record: RunRecord) -> dict[str, float]:
    found: dict[str, float] = record.probes.get("cost", {})
    return found


def _add_published(grid: Grid, rows: Sequence[Sequence[RunRecord]]) -> Grid:
    """The table with the paper's figures where it prints a row's method; unchanged where it prints none."""
    printed, footnotes = published_costs(), Footnotes()
    places = [_published_place(runs[0], printed) for runs in rows]
    if not any(places) or main_metric(rows[0]) != "spearman":
        return grid
    body = [
        (*row, *_quote_costs(printed[place] if place else {}, footnotes, runs[0]))
        for row, place, runs in zip(grid.rows, places, rows, strict=True)
    ]
    rest = [place for place in printed if place not in places]
    empty = (DASH,) * (len(_HEADER) - 1)
    more = [(_published_name(*place), *empty, *_quote_costs(printed[place], footnotes)) for place in rest]
    groups = (*grid.groups, *([(len(body), "published only")] if rest else []))
    return Grid(
        grid.title,
        (*grid.header, *_PRINTED),
        (*body, *more),
        (*grid.notes, _SAID, GREY, *footnotes.notes),
        groups,
    )


def _published_place(record: RunRecord, printed: dict[tuple[str, str], Cost]) -> tuple[str, str] | None:
    """The paper's row of a record's method."""
    if record.name == "ensemble":
        members = split_outside_brackets(str(record.options.get("of", "")), "+")
        of = {member.partition("[")[0] for member in members}
        found = [(name, "ensemble") for name in of if len(of) == 1 and len(members) == 2]
    else:
        own = ("ensemble", "distilled") if record.name in ("tncse", "jtcse") else ("single", "distilled")
        names = () if "pooling=" in record.method else published_names(record)  # the paper's are of [CLS]
        found = [(name, tower) for name in names for tower in own]
    return next((place for place in found if place in printed), None)


def _quote_costs(cost: Cost, footnotes: Footnotes, record: RunRecord | None = None) -> list[Value]:
    """The figures of a row, grey where they are not of our backbone, data and text."""
    same = False
    if record is not None and cost and record.suite == _SUITE and record.name != "ensemble":
        same = matches_setup(record, PublishedRow({"avg": cost["spearman"]}))
    found: list[Value] = []
    for metric in _METRICS:
        if metric not in cost:
            found.append(DASH)
            continue
        figure = cost[metric]
        remarks = [f"{figure.source}, {figure.method}: {what}" for what in figure.misprints]
        found.append(Quoted(figure.text, not same, footnotes.sign(remarks)))
    return found


def _published_name(method: str, tower: str) -> str:
    name = printed_name(method)
    return f"{name} x 2" if tower == "ensemble" and method not in ("tncse", "jtcse", "edfse") else name
