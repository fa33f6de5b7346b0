"""Scores computed again from predictions and gold, to check those of a record."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from bench.data.data_source import DEFAULT_SEED, DataSource, data_folder
from bench.data.mteb_names import CONTRAST_TEXT, FILES
from bench.encoder import FloatArray
from bench.errors import BenchError, DataError, InputError, NotComparableError
from bench.eval.suite_measures import SuiteTask, measure_of
from bench.records.imported import is_published
from bench.records.integrity import TOLERANCE
from bench.records.record import RunRecord
from bench.records.store import ResultStore


@dataclass(frozen=True)
class ScoreCheck:
    """A check of a record's scores against its predictions and gold."""

    wrong: tuple[str, ...]  # scores that contradict them or that the suite lacks, in words
    checked: int  # number of scores that were computed again
    unchecked: tuple[str, ...] = ()  # kinds of the suite's own scores without predictions; one a score
    beside: tuple[str, ...] = ()  # the same of additional scores, such as "dev accuracy"
    unscored: tuple[str, ...] = ()  # tasks with such own scores


def load_record_tasks(record: RunRecord, data: Path | None) -> dict[str, SuiteTask]:
    """Return the tasks of a record by name; ``data`` is by default BENCH_DATA, then ./data.

    Tasks that the record holds itself need no data.
    An unknown suite, and one of a file outside that folder, raise InputError; other data than the record's
    raise NotComparableError.
    """
    recorded = measure_of(record.suite).recorded_tasks(record)
    if recorded is not None:
        return recorded
    folder = data_folder(data)
    # any version of the data is accepted here, since the sha256 of each task is compared below
    world_seed = (record.world or {}).get("seed", DEFAULT_SEED)
    source = DataSource(folder, accept_changed=True, world_seed=world_seed)
    tasks = _load_suite(_locate_suite(record.suite, folder), source)
    for name in dict.fromkeys([*record.tasks, *tasks]):
        task, facts = tasks.get(name), record.tasks.get(name)
        if task is None or facts is None or task.sha256 != facts["sha256"]:
            what = f"{name} differs from the version that {record.method} was measured on"
            raise NotComparableError(what, where=f"suite {record.suite}", hint="name the data with --data")
    return dict(tasks)


def _locate_suite(suite: str, folder: Path | None) -> str:
    """Return a suite from a file with its path in the data folder: a record may name any file."""
    kind, ending = (FILES, ".toml") if suite.startswith(FILES) else (CONTRAST_TEXT, ".txt")
    if not suite.startswith(kind):
        return suite
    name = f"{suite.removeprefix(kind)}{ending}"
    file = folder / name if folder is not None and Path(name).name == name else None
    try:
        if folder and file and file.resolve().is_relative_to(folder.resolve()) and file.exists():
            return f"{kind}{file}"
    except OSError as error:
        what = f"suite '{suite}' has a name that no file can have: {error.strerror}"
        raise NotComparableError(what, where="--data") from error
    what = f"suite '{suite}' came from a file that isn't in the data folder"
    raise InputError(what, where="--data", expected=f"the folder of its {ending} file")


@cache
def _load_suite(name: str, source: DataSource) -> dict[str, SuiteTask]:
    return {task.id: task for task in measure_of(name).load(source)}


def rescore_record(
    record: RunRecord, tasks: Mapping[str, SuiteTask], predictions: Mapping[str, FloatArray]
) -> ScoreCheck:
    """Compute a finished record's scores again; the suite must name the others."""
    recorded = {(s.task, s.subset, s.metric): (s.value, s.n) for s in record.scores}
    measure, listed = measure_of(record.suite), list(tasks.values())
    try:
        rescored = measure.rescore(listed, dict(predictions), record)
    except BenchError as error:
        return ScoreCheck((str(error),), 0)
    wrong = list(check_average(record, listed))
    for score in rescored:
        name = score.task, score.subset, score.metric
        value, n = recorded.pop(name, (None, 0))
        if value is None or n != score.n or abs(value - score.value) > TOLERANCE:
            given = f"its predictions give {score.value!r} ({score.n})"
            stated = "missing" if value is None else f"{value!r} ({n})"
            wrong.append(f"{' '.join(name)} is {stated}, {given}")
    complete = {score.task for score in rescored}  # tasks whose own scores are all computed
    unscored = {name for name in measure.own_scores(listed, record) if name[0] not in complete}
    beside = measure.side_scores(listed, record) - unscored
    unknown = [name for name in recorded if name not in unscored | beside]
    wrong += [f"suite {record.suite} has no score {' '.join(name)}" for name in unknown]
    own, extra = (tuple(f"{n[1]} {n[2]}" for n in recorded if n in names) for names in (unscored, beside))
    without = {task for task, *_ in unscored & recorded.keys()}
    return ScoreCheck(tuple(wrong), len(rescored), own, extra, tuple(filter(without.__contains__, tasks)))


def check_average(record: RunRecord, tasks: Sequence[SuiteTask] = ()) -> Iterator[str]:
    """Yield an error if a record's average has another metric than its suite's (for mteb: its tasks')."""
    metric = measure_of(record.suite).main_metric(tasks)
    if metric and record.metric != metric:
        yield f"its average is of {record.metric}, and that of suite {record.suite} is of {metric}"


def load_sound_predictions(store: ResultStore, record: RunRecord, data: Path | None) -> dict[str, FloatArray]:
    """Return a finished record's predictions if they and the gold scores give its scores.

    Missing or contradicting ones raise DataError; other errors as :func:`load_record_tasks`.
    """
    tasks = load_record_tasks(record, data)
    if is_published(record):
        raise DataError("only scores were published, no predictions", where=str(store.path(record.place)))
    predictions = store.predictions(record)
    if wrong := rescore_record(record, tasks, predictions).wrong:
        raise contradiction_error(store, record, wrong)
    return predictions


def contradiction_error(store: ResultStore, record: RunRecord, wrong: Sequence[str]) -> DataError:
    """Return the error of a record whose scores contradict its predictions."""
    others = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
    what = f"{wrong[0]}{others}: the record was edited, or scored by another program"
    hint = "bench verify lists all; delete the record and run the cell again"
    return DataError(what, where=str(store.path(record.place)), hint=hint)
