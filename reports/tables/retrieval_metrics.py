"""Metrics of retrieval by method (JTCSE, Table VI), and means over kinds of task (UNSEE, Table 1)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean

from bench.comparison.selection import group_by
from bench.data.published_tables import PublishedFigure, PublishedRow, load_figures
from bench.records.record import ALL, AVERAGE, RunRecord
from bench.render.grid import Grid, ScoreCell, Value, summarise_values
from bench.render.method_names import printed_name
from bench.reports.campaign import Campaign
from bench.reports.record_groups import by_method, finished_records, record_notes, summarise_scores
from bench.reports.tables.published_figures import (
    GREY,
    Footnotes,
    matches_setup,
    published_names,
    quote_figures,
    quote_row,
)

FAMILIES = ("map", "mrr", "ndcg", "precision", "recall")
_SECTION = "retrieval_metrics"
_PUBLISHED = "Published: JTCSE, Table VI, of 45 datasets that the paper doesn't name."
Metrics = Mapping[str, float]


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


def metric_grid(campaign: Campaign, records: Sequence[RunRecord]) -> Grid | None:
    """Return the table of tasks with several metrics at ranks, if there are some."""
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
    return f"Scores x 100, mean over {of}{_describe_spread(records)}."


def _describe_spread(records: Sequence[RunRecord]) -> str:
    """Name the mean over seeds, if rows have seeds."""
    seeded = any(record.seed is not None for record in records)
    return ", mean and standard deviation over seeds" if seeded else ""


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
_KINDS_SUITE, _KINDS_SECTION = "unsee", "mteb_english"


def count_kinds(records: Sequence[RunRecord]) -> dict[str, int]:
    """Return the number of tasks of each kind in a suite, in the paper's order, others last."""
    facts = next((record.tasks for record in records if record.tasks), {})
    counts = Counter(str(each["type"]) for each in facts.values() if "type" in each)
    return {kind: counts[kind] for kind in dict.fromkeys((*KINDS, *counts)) if kind in counts}


def category_grid(campaign: Campaign, records: Sequence[RunRecord]) -> Grid | None:
    """Return the table of several kinds of task, if there are some."""
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
        "Main scores x 100: means over the tasks of a kind, as many as the heading says, and over all tasks"
        f"{_describe_spread(records).replace(',', ';')}.",
        *[GREY] * bool(printed),
        *footnotes.notes,
        *record_notes(records, failures=True),
    )
    header = ("method", *headings, f"Avg. {sum(kinds.values())}")
    return Grid(campaign.title("Kinds of task", records), header, tuple(rows), notes, tuple(groups))


def _published_lines(suite: str) -> list[PublishedRow]:
    """The rows of the paper's table, for its suite."""
    if suite != _KINDS_SUITE:
        return []
    figures = (figure for figure in load_figures() if figure.section == _KINDS_SECTION)
    methods = group_by(figures, lambda figure: figure.method).values()
    return [PublishedRow({figure.task: figure for figure in row}) for row in methods]
