"""Every metric of retrieval, a row each, by method (JTCSE, Table VI)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from bench.data.published_tables import PublishedFigure, load_figures
from bench.records.record import ALL, AVERAGE, RunRecord
from bench.render.grid import Grid, ScoreCell, Value, summarise_values
from bench.reports.campaign import Campaign
from bench.reports.record_groups import by_method, finished_records, record_notes
from bench.reports.tables.published_figures import GREY, Footnotes, published_names, quote_figures

FAMILIES = ("map", "mrr", "ndcg", "precision", "recall")
_SECTION = "retrieval_metrics"
_PUBLISHED = "Published: JTCSE, Table VI, of 45 datasets that the paper doesn't name."
Metrics = Mapping[str, float]


def metric_grids(campaign: Campaign) -> list[Grid]:
    """Return a table for every profile and suite with tasks of several metrics at ranks."""
    return campaign.grids(_metric_grid)


def metrics_at_ranks(record: RunRecord) -> dict[str, Metrics]:
    """Return the metrics at ranks, such as "map@10", of each task that has several, in the metrics' unit."""
    values: dict[str, dict[str, float]] = {}
    for score in record.scores:
        family, _, rank = score.metric.partition("@")
        if score.subset == ALL and score.task != AVERAGE and family in FAMILIES and rank.isdecimal():
            values.setdefault(score.task, {})[score.metric] = score.value
    return {task: metrics for task, metrics in values.items() if len(metrics) > 1}


def _metric_key(metric: str) -> tuple[int, int]:
    family, _, rank = metric.partition("@")
    return FAMILIES.index(family), int(rank)


def _metric_grid(campaign: Campaign, records: Sequence[RunRecord]) -> Grid | None:
    runs = {m: list(map(metrics_at_ranks, finished_records(own))) for m, own in by_method(records).items()}
    tasks: dict[str, None] = {}
    names: set[str] = set()
    for run in (run for own in runs.values() for run in own):
        tasks |= dict.fromkeys(run)
        names.update(*run.values())
    if not tasks:
        return None
    metrics = sorted(names, key=_metric_key)
    cells = {method: _metric_cells(own, metrics, list(tasks)) for method, own in runs.items()}
    order = sorted(cells, key=lambda method: campaign.place(method, cells[method][-1].mean))
    printed = {}
    for method in order:
        if figures := _published_figures(by_method(records)[method][0]):
            printed[method] = figures
    footnotes = Footnotes()
    rows: list[tuple[Value, ...]] = []
    for place, metric in enumerate([*metrics, AVERAGE]):
        quotes = [quote_figures(figures.get(metric, ()), footnotes) for figures in printed.values()]
        name = "mean" if metric == AVERAGE else metric
        rows.append((name, *(cells[method][place] for method in order), *quotes))
    notes = [
        _describe_scores(records, len(tasks)),
        "mean: of the metrics above it, of which MAP, MRR and NDCG at several ranks say nearly the same.",
        *[_PUBLISHED, GREY] * bool(printed),
        *footnotes.notes,
        *record_notes(records, failures=True),
    ]
    published = (f"published {campaign.shown(method)}" for method in printed)
    header = ("metric", *map(campaign.shown, order), *published)
    return Grid(campaign.title("Metrics of retrieval", records), header, tuple(rows), tuple(notes))


def _describe_scores(records: Sequence[RunRecord], count: int) -> str:
    """The note on the cells."""
    every = max(len(record.tasks) for record in records)
    of = f"{count} tasks" if count == every else f"the {count} of {every} tasks that have them"
    return f"Scores x 100, mean over {of}, mean and standard deviation over seeds."


def _metric_cells(
    runs: Sequence[Mapping[str, Metrics]], metrics: Sequence[str], tasks: Sequence[str]
) -> list[ScoreCell]:
    """A cell a metric and one for their mean; empty where a task lacks the metric in a run."""
    columns: list[list[float | None]] = [[] for _ in range(len(metrics) + 1)]
    for run in runs:
        means = []
        for column, name in zip(columns, metrics, strict=False):
            values = [run[task][name] for task in tasks if name in run.get(task, ())]
            mean = None
            if len(values) == len(tasks):
                mean = fmean(values)
                means.append(mean)
            column.append(mean)
        columns[-1].append(fmean(means) if len(means) == len(metrics) else None)
    return list(map(summarise_values, columns))


def _published_figures(record: RunRecord) -> dict[str, tuple[PublishedFigure, ...]]:
    """The paper's figures of a method, by metric."""
    names = published_names(record)
    figures = (figure for figure in load_figures() if figure.section == _SECTION)
    return {figure.metric: (figure,) for figure in figures if figure.method in names}
