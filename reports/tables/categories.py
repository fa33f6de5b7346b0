"""Means over the tasks of each kind, and over all (UNSEE, Table 1)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from bench.comparison.selection import group_by
from bench.data.published_tables import PublishedRow, load_figures
from bench.records.record import AVERAGE, RunRecord
from bench.render.grid import Grid, Value, summarise_values
from bench.render.names import printed_name
from bench.reports.campaign import Campaign
from bench.reports.records import (
    UNREADABLE,
    by_method,
    by_profile_and_suite,
    failure_reasons,
    finished_records,
    missing_score_notes,
)
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
    return [
        grid for group in by_profile_and_suite(campaign.records) if (grid := _category_grid(group, campaign))
    ]


def count_kinds(records: Sequence[RunRecord]) -> dict[str, int]:
    """Return the kinds of task of a suite and how many tasks each has, in the paper's order, others last."""
    facts = next((record.tasks for record in records if record.tasks), {})
    counts = Counter(str(each["type"]) for each in facts.values() if "type" in each)
    order = (*(kind for kind in KINDS if kind in counts), *(kind for kind in counts if kind not in KINDS))
    return {kind: counts[kind] for kind in order}


def _category_grid(records: Sequence[RunRecord], campaign: Campaign) -> Grid | None:
    kinds, runs = count_kinds(records), by_method(records)
    if len(kinds) < 2 or not finished_records(records):
        return None
    cells = {
        method: [
            *(summarise_values([run.score(kind, "mean") for run in finished_records(own)]) for kind in kinds),
            summarise_values([run.score(AVERAGE) for run in finished_records(own)]),
        ]
        for method, own in runs.items()
    }
    means = {method: own[-1].mean for method, own in cells.items()}
    order = sorted(
        cells,
        key=lambda method: campaign.place(method, float("-inf") if (mean := means[method]) is None else mean),
    )
    rows: list[tuple[Value, ...]] = [(campaign.shown(method), *cells[method]) for method in order]
    groups, footnotes = [], Footnotes()
    if printed := _published_lines(records[0].suite):
        groups = [(0, "ours"), (len(rows), "published: UNSEE, Table 1")]
        tasks = [KINDS[kind][1] if kind in KINDS else kind for kind in kinds]
        for line in printed:
            same = any(matches_setup(run, line) for run in _records_of_line(records, line))
            name = printed_name(line.first.method)
            rows.append((name, *quote_row(line, [*tasks, AVERAGE], not same, footnotes)))
    total = sum(kinds.values())
    header = (
        *("method", *(f"{KINDS.get(kind, (kind,))[0]} {count}" for kind, count in kinds.items())),
        f"Avg. {total}",
    )
    notes = (
        "Main scores x 100: means over the tasks of a kind, as many as the heading says, and over all tasks; "
        "mean and standard deviation over seeds.",
        *([GREY] if printed else []),
        *footnotes.notes,
        *dict.fromkeys(note for record in records for note in record.notes),
        *missing_score_notes(failure_reasons(records), failure_reasons(records, UNREADABLE)),
    )
    where = f"{records[0].suite}, profile {records[0].profile}, campaign {campaign.name}"
    return Grid(f"Kinds of task: {where}", header, tuple(rows), notes, tuple(groups))


def _published_lines(suite: str) -> list[PublishedRow]:
    """The rows of the paper's table, for its suite."""
    if suite != _SUITE:
        return []
    of_table = [figure for figure in load_figures() if figure.section == _SECTION]
    of_method = group_by(of_table, lambda figure: figure.method).values()
    return [PublishedRow({figure.task: figure for figure in own}) for own in of_method]


def _records_of_line(records: Sequence[RunRecord], line: PublishedRow) -> list[RunRecord]:
    """Our records of the method of a row."""
    return [record for record in records if line.first.method in published_names(record)]
