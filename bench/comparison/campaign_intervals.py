"""Intervals of a campaign: of its records from their items, of its methods from their seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from statistics import fmean, stdev

import numpy as np

from bench.comparison.item_bootstrap import (
    CampaignRun,
    RefusedError,
    RunDraws,
    list_common_tasks,
    list_task_names,
)
from bench.comparison.selection import Group, check_family, group_by, sort_runs_by_seed
from bench.errors import BenchError
from bench.records.record import ALL
from bench.stats.classification_statistics import effective_items, wilson_interval
from bench.stats.effect_sizes import interquartile_mean
from bench.stats.item_statistics import AVERAGE, percentile_interval
from bench.stats.item_units import UnitSummary
from bench.stats.seeds import one_sample

_NOT_ITS_OWN = "its predictions are missing or belong to another record"


@dataclass(frozen=True)
class RecordInterval:
    """One record's scores by task, in the metric's unit, with the item bootstrap's or Wilson's intervals.

    ``units`` are the clusters of items that were drawn; None without intervals.
    """

    profile: str
    suite: str
    method: str
    seed: int | None
    scores: dict[str, float]
    intervals: dict[str, tuple[float, float]] | None
    units: UnitSummary | None = None


@dataclass(frozen=True)
class MethodInterval:
    """The suite average of one method over its seeds, in the metric's unit, with Student's interval."""

    profile: str
    suite: str
    method: str
    seeds: tuple[int, ...]
    mean: float
    sd: float | None
    interval: tuple[float, float] | None
    iqm: float


def compute_record_intervals(
    runs: Sequence[CampaignRun],
    level: float,
    draw: Callable[[Sequence[CampaignRun]], Iterable[RunDraws]],
    say: Callable[[str], None],
) -> Iterator[RecordInterval]:
    """Yield finished runs with their intervals, by suite and version of the data.

    ``draw`` returns the scores of runs on the same tasks in draws of items. ``say`` gets a line for each
    suite without items.
    """
    same_data: dict[tuple[object, ...], list[CampaignRun]] = {}
    for run in runs:
        if run.store.is_whole(run.record.place, run.record):
            tasks = ((name, run.record.tasks[name]["sha256"]) for name in list_task_names(run.record))
            same_data.setdefault((run.record.suite, *tasks), []).append(run)
        else:
            missing = run.record.predictions is None
            why = "no predictions are kept" if missing else _NOT_ITS_OWN
            say(f"{run.path}: items left out, {why}")
            yield _build_record_interval(run, None, level)
    for group in same_data.values():
        done = 0
        try:
            for run, drawn in zip(group, draw(group), strict=True):
                yield _build_record_interval(run, drawn, level)
                done += 1
        except RefusedError:
            raise
        except BenchError as error:
            say(f"items left out: {error}")
            for run in group[done:]:
                yield _build_record_interval(run, None, level)


def _build_record_interval(run: CampaignRun, drawn: RunDraws | None, level: float) -> RecordInterval:
    record, names = run.record, list_task_names(run.record)
    scores = {name: value for name in (*names, AVERAGE) if (value := record.score(name)) is not None}
    intervals = None
    if drawn is not None:
        values, intervals = drawn.values.astype(np.float64), {}
        for task, column in zip((*names, AVERAGE), (*values.T, values.mean(1)), strict=True):
            effective = drawn.summary.effective_clusters(task, AVERAGE)
            intervals[task] = percentile_interval(column, level, effective)
        for score in record.scores:
            if (score.subset, score.metric) == (ALL, "accuracy") and score.task in names:
                clusters = drawn.summary.tasks[score.task]
                number = float(score.n)
                if clusters.shared:
                    variance = float(values[:, names.index(score.task)].var(ddof=1))
                    number = effective_items(score.value, variance, score.n, clusters.effective)
                intervals[score.task] = wilson_interval(score.value, number, level)
    place = record.profile, record.suite, record.method, record.seed
    return RecordInterval(*place, scores, intervals, None if drawn is None else drawn.summary)


def compute_method_intervals(runs: Sequence[CampaignRun], level: float) -> list[MethodInterval]:
    """Return every method's mean over finished seeds with its interval, the best of a suite first."""
    place = attrgetter("record.profile", "record.suite", "record.method")
    places = group_by(sort_runs_by_seed(runs), place)
    intervals = []
    for (profile, suite, method), of_method in places.items():
        group = Group(method, tuple(of_method))
        check_family(group)
        names = list_common_tasks([run.record for run in group.runs], f"{profile}, suite {suite}")
        averages, sd, interval = group.scores(AVERAGE), None, None
        if len(averages) > 1:
            d, sd = one_sample(averages, 0.0, level), stdev(averages)
            interval = (d.low, d.high) if d.low < d.high else None
        iqm = interquartile_mean(np.array([group.scores(name) for name in names]).T)
        mean = fmean(averages)
        intervals.append(MethodInterval(profile, suite, method, group.seeds, mean, sd, interval, iqm))
    return sorted(intervals, key=lambda one: (one.profile, one.suite, -one.mean))
