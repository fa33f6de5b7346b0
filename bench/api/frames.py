"""Records as DataFrames: scores in points, and reasons of missing ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bench.records.record import ALL, RecordPlace, RunRecord, Score
from bench.render.grid import SCALE

if TYPE_CHECKING:
    from pandas import DataFrame

RUN = ("profile", "suite", "method", "seed")
"""Columns that name a run on a suite."""


def make_long_frame(records: Sequence[RunRecord]) -> DataFrame:
    """Return a row for each task of each record, over all items, and for its average.

    ``n``, the number of items, is missing where the source doesn't say it.
    """
    from pandas import DataFrame

    rows = []
    for record in records:
        for score in _main_scores(record):
            rows.append((*_name_run(record), score.task, score.metric, SCALE * score.value, score.n or None))
    frame = DataFrame(rows, columns=[*RUN, "task", "metric", "score", "n"])
    return frame.astype({"seed": "Int64", "n": "Int64", "score": "float64"})


def make_wide_frame(records: Sequence[RunRecord]) -> DataFrame:
    """Return a row for each record, a failed one too, with a column for each task and ``avg``, the last."""
    from pandas import DataFrame

    rows: list[dict[str, Any]] = []
    tasks: dict[str, None] = {}
    for record in records:
        scores = {score.task: SCALE * score.value for score in _main_scores(record)}
        tasks |= dict.fromkeys(scores)
        rows.append(dict(zip(RUN, _name_run(record), strict=True)) | scores)
    tasks.pop("avg", None)
    columns = [*RUN, *tasks, "avg"]
    types = dict.fromkeys([*tasks, "avg"], "float64")
    return DataFrame(rows, columns=columns).astype({"seed": "Int64", **types})


def make_reason_frame(reasons: Mapping[RecordPlace, str], records: Sequence[RunRecord]) -> DataFrame:
    """Return a row for each missing score: run, reason, and the traceback of a failed one."""
    from pandas import DataFrame

    tracebacks = {record.place: record.traceback for record in records}
    rows = []
    for place, reason in reasons.items():
        trace = "\n".join(tracebacks.get(place) or ())
        rows.append((place.profile, place.suite, place.method, place.seed, reason, trace))
    return DataFrame(rows, columns=[*RUN, "reason", "traceback"]).astype({"seed": "Int64"})


def _main_scores(record: RunRecord) -> Iterator[Score]:
    """Yield the scores over all items in the metric of the average."""
    for score in record.scores:
        if score.subset == ALL and score.metric == record.metric:
            yield score


def _name_run(record: RunRecord) -> tuple[str, str, str, int | None]:
    return record.profile, record.suite, record.method, record.seed
