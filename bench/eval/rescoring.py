"""Scores computed again from predictions and gold, before anybody believes what a record says of itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from bench.data.mteb_names import CONTRAST_TEXT, FILES
from bench.data.source import DEFAULT_SEED, DataSource, data_folder
from bench.encoder import FloatArray
from bench.errors import BenchError, DataError, InputError, NotComparableError
from bench.eval.measure import ScoreName
from bench.eval.suite_measures import SuiteTask, measure_of
from bench.records.integrity import TOLERANCE
from bench.records.record import RunRecord
from bench.records.store import ResultStore


@dataclass(frozen=True)
class ScoreCheck:
    """What predictions and gold say of a record's scores.

    Args:
        wrong: Scores that they contradict or that the suite doesn't have, in words.
        checked: Number of scores that were computed again.
        unchecked: Kinds of the suite's own scores of which no predictions are kept; one a score.
        beside: The same of scores beside these, such as "dev accuracy".
    """

    wrong: tuple[str, ...]
    checked: int
    unchecked: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()


def load_record_tasks(record: RunRecord, data: Path | None) -> dict[str, SuiteTask]:
    """Return the tasks that a record was measured on, by name.

    Args:
        record: The record.
        data: Data folder; default BENCH_DATA, then ./data.

    Raises:
        InputError: an unknown suite, no data folder, or a suite from a file outside it.
        NotComparableError: the data at hand are not those of the record, the suite has other tasks, or none
            of its name can have come from a file.
    """
    folder = data_folder(data)
    # any version of the data is accepted: the sha256 of each task is compared with the record's below
    world_seed = (record.world or {}).get("seed", DEFAULT_SEED)
    source = DataSource(folder, accept_changed=True, world_seed=world_seed)
    tasks = _load_suite(_locate_suite(record.suite, folder), source)
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


def _locate_suite(suite: str, folder: Path | None) -> str:
    """What loads a record's suite: of ``local:NAME`` the file NAME.toml in the data folder, and no other.

    Of ``contrast:NAME`` it is NAME.txt. A record may name any file, but only who asks says which is opened.
    """
    kind, ending = (FILES, ".toml") if suite.startswith(FILES) else (CONTRAST_TEXT, ".txt")
    if not suite.startswith(kind):
        return suite
    name = f"{suite.removeprefix(kind)}{ending}"
    file = folder / name if folder is not None and Path(name).name == name else None
    try:
        there = folder is not None and file is not None and _is_below(file, folder)
    except OSError as error:
        raise NotComparableError(
            f"suite '{suite}' has a name that no file can have: {error.strerror}", where="--data"
        ) from error
    if not there:
        raise InputError(
            f"suite '{suite}' came from a file that isn't in the data folder",
            where="--data",
            expected=f"the folder that holds its {ending}, which says that it may be read",
        )
    return f"{kind}{file}"


def _is_below(file: Path, folder: Path) -> bool:
    """True if there is such a file in a folder; raises OSError where there can't be one."""
    return file.resolve().is_relative_to(folder.resolve()) and file.exists()


@cache
def _load_suite(name: str, source: DataSource) -> dict[str, SuiteTask]:
    return {task.id: task for task in measure_of(name).load(source)}


def rescore_record(
    record: RunRecord, tasks: Mapping[str, SuiteTask], predictions: Mapping[str, FloatArray]
) -> ScoreCheck:
    """Compute a record's scores again; those that no predictions give have to be known of the suite.

    Args:
        record: A finished record.
        tasks: From :func:`tasks_of`.
        predictions: Of the record.
    """
    said = {(s.task, s.subset, s.metric): (s.value, s.n) for s in record.scores}
    measure, listed = measure_of(record.suite), list(tasks.values())
    try:
        found = measure.rescore(listed, dict(predictions), record)
    except BenchError as error:
        return ScoreCheck((str(error),), 0)
    wrong = list(check_average(record, listed))
    for score in found:
        name = score.task, score.subset, score.metric
        value, n = said.pop(name, (None, 0))
        if value is None or n != score.n or abs(value - score.value) > TOLERANCE:
            given = f"its predictions give {score.value!r} ({score.n})"
            wrong.append(f"{' '.join(name)} is {value!r} ({n}), {given}")
    again = {score.task for score in found}  # of such a task the suite's own scores are all computed
    own = {name for name in measure.own_scores(listed, record) if name[0] not in again}
    beside = measure.side_scores(listed, record) - own
    odd = (name for name in said if name not in own | beside)
    wrong += [f"suite {record.suite} has no score {' '.join(name)}" for name in odd]
    return ScoreCheck(tuple(wrong), len(found), _score_kinds(said, own), _score_kinds(said, beside))


def check_average(record: RunRecord, tasks: Sequence[SuiteTask] = ()) -> Iterator[str]:
    """Yield that a record's average, which tables show, is of another metric than its suite's.

    Args:
        record: A finished record.
        tasks: Its suite's; without them nothing is known of what mteb measures.
    """
    metric = measure_of(record.suite).main_metric(tasks)
    if metric and record.metric != metric:
        yield f"its average is of {record.metric}, and that of suite {record.suite} is of {metric}"


def _score_kinds(said: Mapping[ScoreName, object], of: Set[ScoreName]) -> tuple[str, ...]:
    return tuple(f"{subset} {metric}" for task, subset, metric in said if (task, subset, metric) in of)


def load_sound_predictions(store: ResultStore, record: RunRecord, data: Path | None) -> dict[str, FloatArray]:
    """Return a record's predictions if its scores are what they and the gold scores give.

    Args:
        store: The record's campaign.
        record: A finished record.
        data: As in :func:`tasks_of`, which says what is raised for them.

    Raises:
        DataError: predictions that are missing, or scores that they contradict.
    """
    return _check_predictions(store, record, load_record_tasks(record, data))


def _check_predictions(
    store: ResultStore, record: RunRecord, tasks: Mapping[str, SuiteTask]
) -> dict[str, FloatArray]:
    predictions = store.predictions(record)
    found = rescore_record(record, tasks, predictions)
    if found.wrong:
        more = f" (and {len(found.wrong) - 1} more)" if len(found.wrong) > 1 else ""
        raise DataError(
            f"{found.wrong[0]}{more}: the record was edited, or scored by another program",
            where=str(store.path(record.place)),
            hint="bench verify lists all; delete the record and run the cell again",
        )
    return predictions
