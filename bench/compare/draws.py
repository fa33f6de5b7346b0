"""Item bootstrap of records: every record's correlations in common draws, computed once and kept.

A record's draws depend on its own predictions, the task's gold scores and (seed, task) alone, so any two
records of a suite can be subtracted draw by draw, in whatever company they were computed. They are kept in
``results/<campaign>/stats/<suite>-<hash>.npz``; the hash covers the record's key, its predictions' hash, the
tasks' hashes, the number of draws, the seed and ``VERSION``.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.data.mini.world import DEFAULT_SEED
from bench.data.suites import data_folder, load_suite
from bench.data.tasks import PairTask
from bench.errors import BenchError, DataError, NotComparableError
from bench.records.record import ALL, RunRecord, safe_name
from bench.records.store import ResultStore
from bench.stats.checks import generator
from bench.stats.resampling import spearman_draws

DRAWS = 10_000
SEED = 1
VERSION = 1  # raised when the numbers of the draws change
FOLDER = "stats"
_CHUNK = 320_000  # draws of all records held at a time: 9 MB for seven tasks

Draws = NDArray[np.float32]
Say = Callable[[str], None]


@dataclass(frozen=True)
class Run:
    """A record and its campaign."""

    store: ResultStore
    record: RunRecord

    @property
    def path(self) -> Path:
        """The record's file."""
        return self.store.path(self.record.place)


def task_names(record: RunRecord) -> tuple[str, ...]:
    """Tasks with a score over all items, in the suite's order, without the average."""
    found, metric = ((s.task, s.subset, s.metric) for s in record.scores), record.metric
    return tuple(task for task, *kind in found if kind == [ALL, metric] and task != "avg")


def common_tasks(records: Sequence[RunRecord], where: str) -> tuple[str, ...]:
    """Return the tasks of records of one suite; raises DataError where one lacks a score."""
    names = task_names(records[0])
    for record in records:
        if task_names(record) != names or not names or record.score("avg") is None:
            raise DataError(
                f"a record of {record.method} lacks scores", where=where, hint="run the cell again"
            )
    return names


def evaluation_tasks(record: RunRecord, data: Path | None) -> dict[str, PairTask]:
    """Return the tasks that a record was measured on, by name.

    Args:
        record: The record.
        data: Data folder; default BENCH_DATA, then ./data.

    Raises:
        InputError: an unknown suite, or no data folder.
        NotComparableError: the data at hand are not those of the record.
    """
    tasks = _suite(record.suite, data_folder(data), (record.world or {}).get("seed", DEFAULT_SEED))
    for name in task_names(record):
        if name not in tasks or tasks[name].sha256 != record.tasks[name]["sha256"]:
            raise NotComparableError(
                f"{name} at hand is not the version that {record.method} was measured on",
                where=f"suite {record.suite}",
                hint="name the data with --data",
            )
    return {name: tasks[name] for name in task_names(record)}


@cache
def _suite(name: str, data: Path | None, world_seed: int) -> dict[str, PairTask]:
    # data that differ from the reference are fine here: each record says which it was measured on
    return {task.id: task for task in load_suite(name, data, accept_data=True, world_seed=world_seed)[1]}


def item_draws(
    runs: Sequence[Run],
    data: Path | None = None,
    *,
    draws: int = DRAWS,
    seed: int = SEED,
    say: Say = lambda _: None,
    progress: Callable[[int], None] = lambda _: None,
) -> Iterator[Draws]:
    """Yield each run's (draws, tasks) Spearman correlations in draws of items that all runs share.

    Draws kept in the run's campaign are checked and used, missing ones are computed and kept. The evaluation
    data are read only if some are missing.

    Args:
        runs: Finished runs on the same tasks.
        data: Data folder; default BENCH_DATA, then ./data.
        draws: Number of draws, at least 100.
        seed: Seed of the draws.
        say: Gets a line for a file that is damaged or can't be written.
        progress: Called with the number of runs that are done.

    Raises:
        BenchError: no data, other data, predictions that are missing, or a correlation that is undefined in a
            draw.
    """
    size = max(1, _CHUNK // draws)
    for start in range(0, len(runs), size):
        chunk = runs[start : start + size]
        found = {run.path: kept for run in chunk if (kept := stored_draws(run, draws, seed, say)) is not None}
        missing = [run for run in chunk if run.path not in found]
        for run, computed in zip(missing, _compute(missing, data, draws, seed), strict=True):
            _write(run, computed, seed, say)
            found[run.path] = computed
        for run in chunk:
            progress(1)
            yield found[run.path]


def _compute(runs: Sequence[Run], data: Path | None, draws: int, seed: int) -> list[Draws]:
    """Draw the items of runs on the same tasks, task by task from streams of their own."""
    if not runs:
        return []
    tasks = evaluation_tasks(runs[0].record, data)
    predictions = [run.store.predictions(run.record) for run in runs]
    result = np.empty((len(runs), draws, len(tasks)), dtype=np.float32)
    for column, (name, task) in enumerate(tasks.items()):
        try:
            rows = np.stack([of_tasks[name] for of_tasks in predictions])
            gold = np.concatenate([np.asarray(s.gold, dtype=np.float64) for s in task.subsets])
            drawn = spearman_draws(rows, gold, generator(seed, f"items/{name}"), draws)
        except (KeyError, ValueError) as error:
            raise BenchError(f"no draws of {name}: {error}", where=f"suite {runs[0].record.suite}") from error
        result[:, :, column] = drawn.T
    return list(result)


def _facts(run: Run, draws: int, seed: int) -> dict[str, Any]:
    record = run.record
    return {
        "version": VERSION,
        "seed": seed,
        "draws": draws,
        "suite": record.suite,
        "tasks": [[name, record.tasks[name]["sha256"]] for name in task_names(record)],
        "key": record.key,
        "predictions": (record.predictions or {}).get("sha256"),
    }


def draws_path(run: Run, draws: int = DRAWS, seed: int = SEED) -> Path:
    """File of a run's draws."""
    text = json.dumps(_facts(run, draws, seed), sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()[:20]
    return run.store.root / FOLDER / f"{safe_name(run.record.suite)}-{digest}.npz"


def stored_draws(run: Run, draws: int = DRAWS, seed: int = SEED, say: Say = lambda _: None) -> Draws | None:
    """Return kept (draws, tasks), None if there are none or if they aren't this run's to the last bit."""
    path = draws_path(run, draws, seed)
    shape = (draws, len(task_names(run.record)))
    largest = 4 * draws * shape[1] + 2**16
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
            if sum(member.file_size for member in archive.zip.infolist()) > largest:
                raise ValueError("too large")
            facts = json.loads(archive["facts"].tobytes())
            kept: Draws = archive["draws"]
    except OSError:
        return None
    except Exception as error:  # a damaged file makes numpy, zipfile and json fail in many ways
        say(f"{path}: {type(error).__name__}, so these draws are damaged; they are computed again")
        return None
    expected = _facts(run, draws, seed) | {"sha256": hashlib.sha256(kept.tobytes()).hexdigest()}
    sound = kept.dtype == np.float32 and kept.shape == shape and bool((np.abs(kept) <= 1).all())
    if facts != expected or not sound:
        say(f"{path}: these are not the draws of {run.path}; they are computed again")
        return None
    return kept


def _write(run: Run, computed: Draws, seed: int, say: Say) -> None:
    """Keep draws, atomically; a campaign that can't be written only costs the next command time."""
    path = draws_path(run, len(computed), seed)
    facts = _facts(run, len(computed), seed) | {"sha256": hashlib.sha256(computed.tobytes()).hexdigest()}
    payload = io.BytesIO()
    text = np.frombuffer(json.dumps(facts, sort_keys=True).encode(), dtype=np.uint8)
    np.savez(payload, allow_pickle=False, facts=text, draws=computed)
    temporary = path.with_name(f".{path.stem}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(exist_ok=True)
        temporary.write_bytes(payload.getvalue())
        temporary.replace(path)
    except OSError as error:
        say(f"{path}: the draws can't be kept ({error.strerror})")
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
