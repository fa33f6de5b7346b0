"""Draw the average against costs: of training, of encoding a sentence, and the encoder's size."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean

from bench.records.record import count_training_sentences, sum_training_seconds
from bench.render.figure import MOST_ROWS, Figure
from bench.render.grid import SCALE, summarise_values
from bench.render.point_plots import front_series
from bench.reports.figures.suite_records import Points, SuiteRecords
from bench.reports.record_groups import task_scores
from bench.reports.tables.method_cards import encoder_parameters

LOG_SPAN = 20
"""Ratio of the largest cost to the smallest from which its axis is logarithmic."""
_SIZES = 3  # different ones, from which sizes are drawn


def cost_figures(suite: SuiteRecords) -> Iterator[Figure]:
    """Average against the sentences or the CPU seconds of training, and against GMAC where measured."""
    seconds: dict[str, tuple[float, float]] = {}
    sentences: dict[str, tuple[float, float]] = {}
    gmac: dict[str, tuple[float, float]] = {}
    for method, runs in suite.runs.items():
        mean = summarise_values(task_scores(runs)).mean
        trained = [run for run in runs if run.training.get("stages")]
        costs = [r.probes["cost"]["gmac"] for r in runs if "gmac" in r.probes.get("cost", {})]
        measured = (
            (seconds, list(map(sum_training_seconds, trained))),
            (sentences, list(map(count_training_sentences, trained))),
            (gmac, costs),
        )
        for points, values in measured:
            if values and mean is not None:
                points[method] = fmean(values), SCALE * mean
    yield from _front_figure(suite, sentences, seconds)
    yield from _size_figure(suite)
    if len(gmac) > MOST_ROWS:  # a few distinct costs, as most methods are one encoder
        return
    axes = "GMAC of a sentence", suite.average
    yield from suite.scatter("gmac", "efficiency", "Score and inference", axes, gmac)


def _front_figure(suite: SuiteRecords, sentences: Points, seconds: Points) -> Iterator[Figure]:
    """Average against the cost of training, with the Pareto front."""
    known = all(cost > 0 for cost, _ in sentences.values())
    points, label = (
        (sentences, "sentences read in training") if known else (seconds, "CPU seconds of training")
    )
    if len(points) < 2:
        return
    costs = [cost for cost, _ in points.values()]
    log = min(costs) > 0 and max(costs) > LOG_SPAN * min(costs)
    axes = f"{label}, log scale" if log else label, suite.average
    facts = {"series": front_series(points), "log": log, "highlight": suite.baseline}
    yield suite.figure("training", "efficiency", "Score and training", "front", axes, **facts)


def _size_figure(suite: SuiteRecords) -> Iterator[Figure]:
    """Average against the number of parameters, with the Pareto front."""
    points: dict[str, tuple[float, float]] = {}
    for method, runs in suite.runs.items():
        mean, size = summarise_values(task_scores(runs)).mean, encoder_parameters(runs[0])
        if size and mean is not None:
            points[method] = size / 1e6, SCALE * mean
    sizes = {size for size, _ in points.values()}
    if len(sizes) < _SIZES:
        return
    log = max(sizes) > LOG_SPAN * min(sizes)
    label = "parameters, millions"
    axes = f"{label}, log scale" if log else label, suite.average
    missing = len(suite.runs) - len(points)
    note = f"{missing} of {len(suite.runs)} rows don't say their size." if missing else ""
    facts = {"series": front_series(points), "log": log, "highlight": suite.baseline, "note": note}
    yield suite.figure("size", "efficiency", "Score and size", "front", axes, **facts)
