"""A campaign's records with intervals from their items, its methods with intervals from their seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

import numpy as np

from bench.comparison.item_bootstrap import (
    NOT_AGAIN,
    CampaignRun,
    RefusedError,
    RunDraws,
    list_common_tasks,
    list_task_names,
)
from bench.comparison.selection import Group, check_family, group_by, sort_runs_by_seed
from bench.errors import BenchError
from bench.records.record import ALL
from bench.stats.inputs import FloatArray
from bench.stats.item_statistics import AVERAGE
from bench.stats.labels import wilson_interval
from bench.stats.seeds import one_sample
from bench.stats.summaries import interquartile_mean


@dataclass(frozen=True)
class RecordInterval:
    """One record, in the metric's unit.

    Args:
        profile: Profile.
        suite: Suite.
        method: Method id.
        seed: None for a deterministic method.
        scores: By task, "avg" the last.
        intervals: Percentile intervals of the item bootstrap, for this checkpoint, and of a task's accuracy
            Wilson's; None without its draws.
    """

    profile: str
    suite: str
    method: str
    seed: int | None
    scores: dict[str, float]
    intervals: dict[str, tuple[float, float]] | None


@dataclass(frozen=True)
class MethodInterval:
    """The suite average of one method over its seeds, in the metric's unit.

    Args:
        profile: Profile.
        suite: Suite.
        method: Method id.
        seeds: None of a deterministic method.
        mean: Mean over seeds.
        sd: Standard deviation (divisor n - 1), None for fewer than two seeds.
        interval: Student's interval of the mean, for further seeds; None for fewer than two, or equal scores.
        iqm: Interquartile mean over seeds and tasks, descriptive.
    """

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
    """Yield every run with its intervals, grouped by suite and version of the data.

    Runs without their predictions come first, without intervals.

    Args:
        runs: Finished runs.
        level: Confidence level.
        draw: Gives each run's scores in draws of items, of runs on the same tasks.
        say: Gets a line for each suite whose items can't be had, or whose scores weren't computed again.

    Raises:
        RefusedError: a record whose scores its predictions contradict.
    """
    same_data: dict[tuple[object, ...], list[CampaignRun]] = {}
    for run in runs:
        if run.store.is_whole(run.record.place, run.record):
            tasks = ((name, run.record.tasks[name]["sha256"]) for name in list_task_names(run.record))
            same_data.setdefault((run.record.suite, *tasks), []).append(run)
        else:
            say(f"{run.path}: items left out, its predictions are missing or belong to another record")
            yield _build_record_interval(run, None, level)
    for group in same_data.values():
        done, rescored = 0, True
        try:
            for run, drawn in zip(group, draw(group), strict=True):
                yield _build_record_interval(run, drawn.values.astype(np.float64), level)
                done += 1
                rescored = rescored and drawn.tasks is not None
        except RefusedError:
            raise
        except BenchError as error:
            say(f"items left out: {error}")
            for run in group[done:]:
                yield _build_record_interval(run, None, level)
        if not rescored:
            say(f"{group[0].record.suite}: {NOT_AGAIN}")


def _build_record_interval(run: CampaignRun, drawn: FloatArray | None, level: float) -> RecordInterval:
    record, names = run.record, list_task_names(run.record)
    scores = {name: value for name in (*names, AVERAGE) if (value := record.score(name)) is not None}
    intervals = None
    if drawn is not None:
        with_average = np.concatenate([drawn, drawn.mean(1, keepdims=True)], axis=1)
        ends = np.quantile(with_average, [(1 - level) / 2, (1 + level) / 2], axis=0)
        rows = zip((*names, AVERAGE), *ends, strict=True)
        intervals = {name: (float(low), float(high)) for name, low, high in rows}
        accuracies = [s for s in record.scores if (s.subset, s.metric) == (ALL, "accuracy")]
        intervals |= {s.task: wilson_interval(s.value, s.n, level) for s in accuracies if s.task in names}
    return RecordInterval(record.profile, record.suite, record.method, record.seed, scores, intervals)


def compute_method_intervals(runs: Sequence[CampaignRun], level: float) -> list[MethodInterval]:
    """Return every method's mean over seeds with its interval, the best of a suite first.

    Args:
        runs: Finished runs.
        level: Confidence level.

    Raises:
        NotComparableError: a method's runs under several specifications.
        DataError: a record that lacks a score.
    """
    groups = group_by(
        sort_runs_by_seed(runs), lambda run: (run.record.profile, run.record.suite, run.record.method)
    )
    found = [
        _build_method_interval(Group(place[2], tuple(of_method)), level)
        for place, of_method in groups.items()
    ]
    return sorted(found, key=lambda one: (one.profile, one.suite, -one.mean))


def _build_method_interval(group: Group, level: float) -> MethodInterval:
    check_family(group)
    names = list_common_tasks([run.record for run in group.runs], ", suite ".join(group.place))
    averages = group.scores(AVERAGE)
    d = one_sample(averages, 0.0, level) if len(averages) > 1 else None
    return MethodInterval(
        *group.place,
        group.runs[0].record.method,
        group.seeds,
        fmean(averages),
        stdev(averages) if d else None,
        (d.low, d.high) if d and d.low < d.high else None,
        interquartile_mean(np.array([group.scores(name) for name in names]).T),
    )
