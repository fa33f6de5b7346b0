"""Every metric of retrieval, a row each, by method (JTCSE, Table VI)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from bench.data.published_tables import PublishedFigure, load_figures
from bench.records.record import ALL, AVERAGE, RunRecord
from bench.render.grid import Grid, ScoreCell, Value, summarise_values
from bench.reports.campaign import Campaign
from bench.reports.records import (
    UNREADABLE,
    by_method,
    by_profile_and_suite,
    failure_reasons,
    finished_records,
    missing_score_notes,
)
from bench.reports.tables.published_figures import GREY, Footnotes, published_names, quote_figures

FAMILIES = ("map", "mrr", "ndcg", "precision", "recall")
_SECTION = "retrieval_metrics"
_PUBLISHED = "Published: JTCSE, Table VI, of 45 datasets that the paper doesn't name."
Metrics = Mapping[str, float]


def metric_grids(campaign: Campaign) -> list[Grid]:
    """Return a table for every profile and suite with tasks of several metrics at ranks."""
    return [
        grid for group in by_profile_and_suite(campaign.records) if (grid := _metric_grid(group, campaign))
    ]


def metrics_at_ranks(record: RunRecord) -> dict[str, Metrics]:
    """Return the metrics at ranks, such as "map@10", of each task that has several, in the metrics' unit."""
    found: dict[str, dict[str, float]] = {}
    for score in record.scores:
        family, _, rank = score.metric.partition("@")
        if score.subset == ALL and score.task != AVERAGE and family in FAMILIES and rank.isdecimal():
            found.setdefault(score.task, {})[score.metric] = score.value
    return {task: metrics for task, metrics in found.items() if len(metrics) > 1}


def _metric_key(metric: str) -> tuple[int, int]:
    family, _, rank = metric.partition("@")
    return FAMILIES.index(family), int(rank)


def _metric_grid(records: Sequence[RunRecord], campaign: Campaign) -> Grid | None:
    runs = {
        method: [metrics_at_ranks(run) for run in finished_records(own)]
        for method, own in by_method(records).items()
    }
    tasks = dict.fromkeys(task for own in runs.values() for run in own for task in run)
    names = {name for own in runs.values() for run in own for metrics in run.values() for name in metrics}
    if not tasks:
        return None
    metrics = sorted(names, key=_metric_key)
    cells = {method: _metric_cells(own, metrics, list(tasks)) for method, own in runs.items()}
    order = sorted(cells, key=lambda method: campaign.place(method, _mean_or_least(cells[method][-1])))
    first = {method: own[0] for method, own in by_method(records).items()}
    printed = {method: found for method in order if (found := _published_figures(first[method]))}
    footnotes = Footnotes()
    rows: list[tuple[Value, ...]] = [
        (
            name,
            *(cells[method][place] for method in order),
            *(quote_figures(printed[method].get(key, ()), footnotes) for method in printed),
        )
        for place, (name, key) in enumerate([*((name, name) for name in metrics), ("mean", AVERAGE)])
    ]
    where = f"{records[0].suite}, profile {records[0].profile}, campaign {campaign.name}"
    notes = [
        _describe_scores(records, len(tasks)),
        "mean: of the metrics above it, of which MAP, MRR and NDCG at several ranks say nearly the same.",
        *([_PUBLISHED, GREY] if printed else []),
        *footnotes.notes,
        *dict.fromkeys(note for record in records for note in record.notes),
        *missing_score_notes(failure_reasons(records), failure_reasons(records, UNREADABLE)),
    ]
    shown = [campaign.shown(method) for method in order]
    header = ("metric", *shown, *(f"published {campaign.shown(method)}" for method in printed))
    return Grid(f"Metrics of retrieval: {where}", header, tuple(rows), tuple(notes))


def _describe_scores(records: Sequence[RunRecord], count: int) -> str:
    """What the cells are."""
    every = max(len(record.tasks) for record in records)
    of = f"{count} tasks" if count == every else f"the {count} of {every} tasks that have them"
    return f"Scores x 100, mean over {of}, mean and standard deviation over seeds."


def _metric_cells(
    runs: Sequence[Mapping[str, Metrics]], metrics: Sequence[str], tasks: Sequence[str]
) -> list[ScoreCell]:
    """A cell a metric and one for their mean; empty where a task lacks the metric in a run."""
    columns: list[list[float | None]] = []
    for run in runs:
        found = [[run[task][name] for task in tasks if name in run.get(task, ())] for name in metrics]
        means = [fmean(values) if len(values) == len(tasks) else None for values in found]
        there = [value for value in means if value is not None]
        columns.append([*means, fmean(there) if len(there) == len(metrics) else None])
    return [summarise_values([column[place] for column in columns]) for place in range(len(metrics) + 1)]


def _mean_or_least(cell: ScoreCell) -> float:
    return float("-inf") if cell.mean is None else cell.mean


def _published_figures(record: RunRecord) -> dict[str, tuple[PublishedFigure, ...]]:
    """What the paper prints of a method, by metric."""
    names = published_names(record)
    return {
        figure.metric: (figure,)
        for figure in load_figures()
        if figure.section == _SECTION and figure.method in names
    }
