"""Item bootstrap of records: every record's scores in common draws, computed once and kept.

A record's draws depend on its own predictions, the task's gold scores and (seed, task) alone, so any two
records of a suite can be subtracted draw by draw, in whatever company they were computed. They are kept in
``results/<campaign>/stats/<suite>-<hash>.npz``; the hash covers the record's key, its predictions' hash, the
tasks' hashes, the number of draws, the seed and ``VERSION``. The scores that the predictions gave stand there
too: a record that says others is refused. Where the data are at hand every score is computed again.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.encoder import FloatArray
from bench.errors import BenchError, DataError
from bench.eval.rescoring import load_record_tasks, load_sound_predictions
from bench.eval.suite_measures import SuiteTask, measure_of
from bench.records.filesystem import write_atomically
from bench.records.integrity import TOLERANCE
from bench.records.record import ALL, AVERAGE, RunRecord, safe_name
from bench.records.store import ResultStore
from bench.schema import MapOf, find_fault, is_number
from bench.stats.inputs import make_generator

DRAWS = 10_000
SEED = 1
VERSION = 2  # raised when the numbers of the draws change
FOLDER = "stats"
NOT_AGAIN = "as the records say them, not computed again from predictions and evaluation data"
"""What every output says once of scores that nobody checked."""
_CHUNK = 320_000  # draws of all records held at a time: 9 MB for seven tasks

Draws = NDArray[np.float32]
Say = Callable[[str], None]


@dataclass(frozen=True)
class CampaignRun:
    """A record and its campaign."""

    store: ResultStore
    record: RunRecord

    @property
    def path(self) -> Path:
        """The record's file."""
        return self.store.path(self.record.place)


class RefusedError(BenchError):
    """A record whose scores its predictions contradict: nothing that rests on it is said (exit code 2)."""

    exit_code = 2


@dataclass(frozen=True)
class RunDraws:
    """What the items say of a run.

    Args:
        values: (draws, tasks) scores in draws of items.
        tasks: Its tasks by name. None where data or predictions weren't at hand: then its scores, which are
            those that the draws were made for, were not computed again.
    """

    values: Draws
    tasks: dict[str, SuiteTask] | None


def list_task_names(record: RunRecord) -> tuple[str, ...]:
    """Tasks with a score over all items, in the suite's order, without the average."""
    found, metric = ((s.task, s.subset, s.metric) for s in record.scores), record.metric
    return tuple(task for task, *kind in found if kind == [ALL, metric] and task != AVERAGE)


def list_common_tasks(records: Sequence[RunRecord], where: str) -> tuple[str, ...]:
    """Return the tasks of records of one suite; raises DataError where one lacks a score."""
    names = list_task_names(records[0])
    for record in records:
        if list_task_names(record) != names or not names or record.score(AVERAGE) is None:
            raise DataError(
                f"a record of {record.method} lacks scores", where=where, hint="run the cell again"
            )
    return names


def draw_items(
    runs: Sequence[CampaignRun],
    data: Path | None = None,
    *,
    draws: int = DRAWS,
    seed: int = SEED,
    say: Say = lambda _: None,
    progress: Callable[[int], None] = lambda _: None,
) -> Iterator[RunDraws]:
    """Yield each run's scores in draws of items that all runs share.

    Draws kept in the run's campaign are checked and used, missing ones are computed and kept. Where the
    evaluation data are at hand, the scores themselves are computed again as well.

    Args:
        runs: Finished runs on the same tasks.
        data: Data folder; default BENCH_DATA, then ./data.
        draws: Number of draws, at least 100.
        seed: Seed of the draws.
        say: Gets a line for a file that is damaged or can't be written.
        progress: Called with the number of runs that are done.

    Raises:
        RefusedError: a record whose scores its predictions contradict.
        BenchError: where draws are missing: no data, other data, predictions that are missing, or a score
            that is undefined in a draw.
    """
    size = max(1, _CHUNK // draws)
    for start in range(0, len(runs), size):
        chunk = runs[start : start + size]
        found: dict[Path, RunDraws] = {}
        missing: list[tuple[CampaignRun, _VerifiedRun]] = []
        for run in chunk:
            trusted = _verify_scores(run, data)
            at_hand = isinstance(trusted, _VerifiedRun)
            kept = read_draws(run, draws, seed, say, believed=at_hand)
            if kept is not None:
                found[run.path] = RunDraws(kept, trusted.tasks if isinstance(trusted, _VerifiedRun) else None)
            elif isinstance(trusted, _VerifiedRun):
                missing.append((run, trusted))
            else:
                raise trusted
        for (run, trusted), values in zip(missing, _compute_draws(missing, draws, seed), strict=True):
            _write_draws(run, values, seed, say)
            found[run.path] = RunDraws(values, trusted.tasks)
        for run in chunk:
            progress(1)
            yield found[run.path]


@dataclass(frozen=True)
class _VerifiedRun:
    """Tasks and predictions of a run whose scores were computed again."""

    tasks: dict[str, SuiteTask]
    predictions: dict[str, FloatArray]


def _verify_scores(run: CampaignRun, data: Path | None) -> _VerifiedRun | BenchError:
    """Compute a run's scores again, or say what is missing for that; raises RefusedError."""
    try:
        tasks = load_record_tasks(run.record, data)
    except BenchError as error:
        return error
    if run.record.predictions is None:
        return BenchError("no predictions are kept", where=str(run.path))
    if not run.store.is_whole(run.record.place, run.record):
        return BenchError(
            "the predictions are missing or don't belong to their record",
            where=str(run.path.with_suffix(".npz")),
            hint="run the cell again",
        )
    try:
        return _VerifiedRun(tasks, load_sound_predictions(run.store, run.record, data))
    except DataError as error:  # data and predictions are there: it is what the record says of them
        raise RefusedError(error.what, where=error.where, expected=error.expected, hint=error.hint) from error


def _compute_draws(runs: Sequence[tuple[CampaignRun, _VerifiedRun]], draws: int, seed: int) -> list[Draws]:
    """Draw the items of runs on the same tasks, task by task from streams of their own."""
    if not runs:
        return []
    record, tasks = runs[0][0].record, runs[0][1].tasks
    names, measure = list_task_names(record), measure_of(record.suite)
    result = np.empty((len(runs), draws, len(names)), dtype=np.float32)
    for column, name in enumerate(names):
        try:
            rows = np.stack([trusted.predictions[name] for _, trusted in runs])
            drawn = measure.draws(tasks[name], rows, record, make_generator(seed, f"items/{name}"), draws)
        except (KeyError, ValueError) as error:
            raise BenchError(f"no draws of {name}: {error}", where=f"suite {record.suite}") from error
        result[:, :, column] = drawn.T
    return list(result)


def _describe_draws(run: CampaignRun, draws: int, seed: int) -> dict[str, Any]:
    record = run.record
    return {
        "version": VERSION,
        "seed": seed,
        "draws": draws,
        "suite": record.suite,
        "tasks": [[name, record.tasks[name]["sha256"]] for name in list_task_names(record)],
        "key": record.key,
        "predictions": (record.predictions or {}).get("sha256"),
    }


def draws_path(run: CampaignRun, draws: int = DRAWS, seed: int = SEED) -> Path:
    """File of a run's draws."""
    text = json.dumps(_describe_draws(run, draws, seed), sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()[:20]
    return run.store.root / FOLDER / f"{safe_name(run.record.suite)}-{digest}.npz"


def read_draws(
    run: CampaignRun,
    draws: int = DRAWS,
    seed: int = SEED,
    say: Say = lambda _: None,
    *,
    believed: bool = False,
) -> Draws | None:
    """Return kept (draws, tasks), None if there are none or if they aren't this run's to the last bit.

    Args:
        run: The run.
        draws: Number of draws.
        seed: Seed of the draws.
        say: Gets a line for a file that is damaged.
        believed: The run's scores were just computed again: draws that were made for others are not its own.

    Raises:
        RefusedError: a record with other scores than those that its predictions gave.
    """
    path = draws_path(run, draws, seed)
    shape = (draws, len(list_task_names(run.record)))
    largest = 4 * draws * shape[1] + 2**16
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
            if sum(member.file_size for member in archive.zip.infolist()) > largest:
                raise ValueError("too large")
            facts = json.loads(archive["facts"].tobytes())
            kept: Draws = archive["draws"]
            observed = facts.pop("observed")
    except OSError:
        return None
    except Exception as error:  # a damaged file makes numpy, zipfile and json fail in many ways
        say(f"{path}: {type(error).__name__}, so these draws are damaged; they are computed again")
        return None
    expected = _describe_draws(run, draws, seed) | {"sha256": hashlib.sha256(kept.tobytes()).hexdigest()}
    sound = kept.dtype == np.float32 and kept.shape == shape and bool((np.abs(kept) <= 1).all())
    said = _observed_scores(run.record)
    sound = sound and find_fault(observed, MapOf(is_number)) is None and observed.keys() == said.keys()
    wrong = [name for name in said if sound and abs(said[name] - observed[name]) > TOLERANCE]
    if facts != expected or not sound or (wrong and believed):
        say(f"{path}: these are not the draws of {run.path}; they are computed again")
        return None
    if wrong:
        name = wrong[0]
        raise RefusedError(
            f"{name} is {said[name]!r}, its predictions give {observed[name]!r}: the record was edited",
            where=str(run.path),
            hint="bench verify lists all; delete the record and run the cell again",
        )
    return kept


def _observed_scores(record: RunRecord) -> dict[str, float]:
    """The scores that draws are made for: of every task and their average."""
    values = ((name, record.score(name)) for name in (*list_task_names(record), AVERAGE))
    return {name: value for name, value in values if value is not None}


def _write_draws(run: CampaignRun, computed: Draws, seed: int, say: Say) -> None:
    """Keep draws, atomically; a campaign that can't be written only costs the next command time."""
    path = draws_path(run, len(computed), seed)
    facts = _describe_draws(run, len(computed), seed) | {
        "sha256": hashlib.sha256(computed.tobytes()).hexdigest()
    }
    facts |= {"observed": _observed_scores(run.record)}
    payload = io.BytesIO()
    text = np.frombuffer(json.dumps(facts, sort_keys=True).encode(), dtype=np.uint8)
    np.savez(payload, allow_pickle=False, facts=text, draws=computed)
    try:
        path.parent.mkdir(exist_ok=True)
        write_atomically(path, payload.getvalue())
    except OSError as error:
        say(f"{path}: the draws can't be kept ({error.strerror})")
