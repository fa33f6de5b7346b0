"""Means over the tasks of each kind, and over all (UNSEE, Table 1)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from bench.comparison.selection import group_by
from bench.data.published_tables import PublishedRow, load_figures
from bench.records.record import AVERAGE, RunRecord
from bench.render.grid import Grid, Value
from bench.render.names import printed_name
from bench.reports.campaign import Campaign
from bench.reports.record_groups import by_method, finished_records, record_notes, summarise_scores
from bench.reports.tables.published_figures import GREY, Footnotes, matches_setup, published_names, quote_row

KINDS = {
    "Classification": ("Class.", "classification"),
    "Clustering": ("Clust.", "clustering"),
    "PairClassification": ("PairClass.", "pair_classification"),
    "Reranking": ("Rerank.", "reranking"),
    "Retrieval": ("Retr.", "retrieval"),
    "STS": ("STS", "sts"),
    "Summarization": ("Summ.", "summarization"),
}
"""mteb's kinds of task in the paper's order, with its headings and the names of its stored figures."""
_SUITE, _SECTION = "unsee", "mteb_english"


def category_grids(campaign: Campaign) -> list[Grid]:
    """Return a table for every profile and suite of several kinds of task."""
    return campaign.grids(_category_grid)


def count_kinds(records: Sequence[RunRecord]) -> dict[str, int]:
    """Return the number of tasks of each kind in a suite, in the paper's order, others last."""
    facts = next((record.tasks for record in records if record.tasks), {})
    counts = Counter(str(each["type"]) for each in facts.values() if "type" in each)
    return {kind: counts[kind] for kind in dict.fromkeys((*KINDS, *counts)) if kind in counts}


def _category_grid(campaign: Campaign, records: Sequence[RunRecord]) -> Grid | None:
    kinds = count_kinds(records)
    if len(kinds) < 2 or not finished_records(records):
        return None
    cells = {}
    for method, runs in by_method(records).items():
        done = finished_records(runs)
        kind_cells = (summarise_scores(done, kind, "mean") for kind in kinds)
        cells[method] = [*kind_cells, summarise_scores(done)]
    order = sorted(cells, key=lambda method: campaign.place(method, cells[method][-1].mean))
    rows: list[tuple[Value, ...]] = [(campaign.shown(method), *cells[method]) for method in order]
    groups, footnotes = [], Footnotes()
    if printed := _published_lines(records[0].suite):
        groups = [(0, "ours"), (len(rows), "published: UNSEE, Table 1")]
        tasks = [KINDS.get(kind, ("", kind))[1] for kind in kinds]
        for line in printed:
            method = line.first.method
            same = any(method in published_names(run) and matches_setup(run, line) for run in records)
            rows.append((printed_name(method), *quote_row(line, [*tasks, AVERAGE], not same, footnotes)))
    headings = (f"{KINDS.get(kind, (kind,))[0]} {count}" for kind, count in kinds.items())
    notes = (
        "Main scores x 100: means over the tasks of a kind, as many as the heading says, and over all tasks; "
        "mean and standard deviation over seeds.",
        *[GREY] * bool(printed),
        *footnotes.notes,
        *record_notes(records, failures=True),
    )
    header = ("method", *headings, f"Avg. {sum(kinds.values())}")
    return Grid(campaign.title("Kinds of task", records), header, tuple(rows), notes, tuple(groups))


def _published_lines(suite: str) -> list[PublishedRow]:
    """The rows of the paper's table, for its suite."""
    if suite != _SUITE:
        return []
    figures = (figure for figure in load_figures() if figure.section == _SECTION)
    methods = group_by(figures, lambda figure: figure.method).values()
    return [PublishedRow({figure.task: figure for figure in row}) for row in methods]
