"""Scores computed again from predictions and gold, before anybody believes what a record says of itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from bench.data.mini.world import DEFAULT_SEED
from bench.data.mteb_names import CONTRAST_TEXT, FILES
from bench.data.suites import data_folder
from bench.encoder import FloatArray
from bench.errors import BenchError, DataError, InputError, NotComparableError
from bench.eval.suite import SuiteTask, measure_of
from bench.records.integrity import TOLERANCE
from bench.records.record import RunRecord
from bench.records.store import ResultStore


@dataclass(frozen=True)
class Rescored:
    """What predictions and gold say of a record's scores.

    Args:
        wrong: Scores that they contradict, in words.
        checked: Number of scores that were computed again.
        unchecked: Kinds of scores of which no predictions are kept, such as "dev accuracy"; one a score.
    """

    wrong: tuple[str, ...]
    checked: int
    unchecked: tuple[str, ...]


def tasks_of(record: RunRecord, data: Path | None) -> dict[str, SuiteTask]:
    """Return the tasks that a record was measured on, by name.

    Args:
        record: The record.
        data: Data folder; default BENCH_DATA, then ./data.

    Raises:
        InputError: an unknown suite, no data folder, or a suite from a file outside it.
        NotComparableError: the data at hand are not those of the record, or the suite has other tasks.
    """
    folder = data_folder(data)
    tasks = _suite(_source(record.suite, folder), folder, (record.world or {}).get("seed", DEFAULT_SEED))
    for name in dict.fromkeys([*record.tasks, *tasks]):
        if (
            name not in tasks
            or name not in record.tasks
            or tasks[name].sha256 != record.tasks[name]["sha256"]
        ):
            raise NotComparableError(
                f"{name} at hand is not the version that {record.method} was measured on",
                where=f"suite {record.suite}",
                hint="name the data with --data",
            )
    return dict(tasks)


def _source(suite: str, folder: Path | None) -> str:
    """What loads a record's suite: of ``local:NAME`` the file NAME.toml in the data folder, and no other.

    Of ``contrast:NAME`` it is NAME.txt. A record may name any file, but only who asks says which is opened.
    """
    kind, ending = (FILES, ".toml") if suite.startswith(FILES) else (CONTRAST_TEXT, ".txt")
    if not suite.startswith(kind):
        return suite
    name = f"{suite.removeprefix(kind)}{ending}"
    file = folder / name if folder is not None and Path(name).name == name else None
    if (
        folder is None
        or file is None
        or not file.resolve().is_relative_to(folder.resolve())
        or not file.exists()
    ):
        raise InputError(
            f"suite '{suite}' came from a file that isn't in the data folder",
            where="--data",
            expected=f"the folder that holds its {ending}, which says that it may be read",
        )
    return f"{kind}{file}"


@cache
def _suite(name: str, data: Path | None, world_seed: int) -> dict[str, SuiteTask]:
    # data that differ from the reference are fine here: each record says which it was measured on
    tasks = measure_of(name).load(data, accept_data=True, world_seed=world_seed)
    return {task.id: task for task in tasks}


def rescore(
    record: RunRecord, tasks: Mapping[str, SuiteTask], predictions: Mapping[str, FloatArray]
) -> Rescored:
    """Compute a record's scores again.

    Args:
        record: A finished record.
        tasks: From :func:`tasks_of`.
        predictions: Of the record.
    """
    said = {(s.task, s.subset, s.metric): (s.value, s.n) for s in record.scores}
    try:
        found = measure_of(record.suite).rescore(list(tasks.values()), dict(predictions), record)
    except BenchError as error:
        return Rescored((str(error),), 0, ())
    wrong = []
    for score in found:
        name = score.task, score.subset, score.metric
        value, n = said.pop(name, (None, 0))
        if value is None or n != score.n or abs(value - score.value) > TOLERANCE:
            given = f"its predictions give {score.value!r} ({score.n})"
            wrong.append(f"{' '.join(name)} is {value!r} ({n}), {given}")
    kinds = (f"{subset} {metric}" for _, subset, metric in said)
    return Rescored(tuple(wrong), len(found), tuple(kinds))


def believed(store: ResultStore, record: RunRecord, data: Path | None) -> dict[str, FloatArray]:
    """Return a record's predictions if its scores are what they and the gold scores give.

    Args:
        store: The record's campaign.
        record: A finished record.
        data: As in :func:`tasks_of`, which says what is raised for them.

    Raises:
        DataError: predictions that are missing, or scores that they contradict.
    """
    return _believed(store, record, tasks_of(record, data))


def _believed(store: ResultStore, record: RunRecord, tasks: Mapping[str, SuiteTask]) -> dict[str, FloatArray]:
    predictions = store.predictions(record)
    found = rescore(record, tasks, predictions)
    if found.wrong:
        more = f" (and {len(found.wrong) - 1} more)" if len(found.wrong) > 1 else ""
        raise DataError(
            f"{found.wrong[0]}{more}: the record was edited, or scored by another program",
            where=str(store.path(record.place)),
            hint="bench verify lists all; delete the record and run the cell again",
        )
    return predictions
