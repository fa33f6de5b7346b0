"""Item bootstrap of records: every record's scores in common draws, computed once and stored.

A draw takes clusters of items that share a sentence, over the tasks of the suite together. A record's draws
depend only on its predictions, the suite's texts and gold scores and the seed, so any two records of a suite
can be subtracted draw by draw. They are stored in ``results/<campaign>/stats/<suite>-<hash>.npz``;
the hash covers the record's key, its predictions' hash, the tasks' hashes, the number of draws, the seed,
``VERSION`` and the version of the clusters. The file has the scores of the predictions too: a record with
other scores is refused. With the data, every score is computed again.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.data.sentence_clusters import VERSION as CLUSTERS
from bench.data.sentence_clusters import Texts, cluster_items
from bench.encoder import FloatArray
from bench.errors import BenchError, DataError
from bench.eval.rescoring import load_record_tasks, load_sound_predictions
from bench.eval.suite_measures import SuiteTask, measure_of
from bench.records.filesystem import write_atomically
from bench.records.integrity import TOLERANCE
from bench.records.record import ALL, AVERAGE, RunRecord, safe_name
from bench.records.store import ResultStore
from bench.schema import MapOf, find_fault, is_number
from bench.stats.argument_checks import make_generator
from bench.stats.item_units import LEAST_EFFECTIVE, SuiteUnits, UnitSummary, draw_scores

DRAWS = 10_000
SEED = 1
VERSION = 3  # raised when the numbers of the draws change
FOLDER = "stats"
_CHUNK = 320_000  # draws of all records in memory: 9 MB for seven tasks

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
    """A record whose scores contradict its predictions; no result may use it (exit code 2)."""

    exit_code = 2


@dataclass(frozen=True)
class RunDraws:
    """A run's scores in draws of items.

    Args:
        values: (draws, tasks).
        summary: The clusters of items that were drawn.
        tasks: The run's tasks; None for unchecked stored draws.
        units: The items' clusters; None as the tasks.
    """

    values: Draws
    summary: UnitSummary
    tasks: dict[str, SuiteTask] | None = None
    units: SuiteUnits | None = None


def list_task_names(record: RunRecord) -> tuple[str, ...]:
    """Return the tasks with a score over all items, in the suite's order, without the average."""
    metric = record.metric
    tasks = [score.task for score in record.scores if (score.subset, score.metric) == (ALL, metric)]
    return tuple(task for task in tasks if task != AVERAGE)


def list_common_tasks(records: Sequence[RunRecord], where: str) -> tuple[str, ...]:
    """Return the tasks of records of one suite; raise DataError for a missing score."""
    names = list_task_names(records[0])
    for record in records:
        if list_task_names(record) != names or not names or record.score(AVERAGE) is None:
            what = f"a record of {record.method} lacks scores"
            raise DataError(what, where=where, hint="run the cell again")
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
    """Yield the scores of finished runs on the same tasks, in draws of items that all runs share.

    Draws stored in the run's campaign are checked and used, others are computed and stored. ``say`` gets a
    line for a damaged or unwritable file, ``progress`` the number of runs done.
    """
    size = max(1, _CHUNK // draws)
    for start in range(0, len(runs), size):
        chunk = runs[start : start + size]
        results: dict[Path, RunDraws] = {}
        missing: list[tuple[CampaignRun, _VerifiedRun]] = []
        # All are verified before any is drawn: too few clusters hide no edited record.
        checks = [_verify_scores(run, data) for run in chunk]
        for run, verified in zip(chunk, checks, strict=True):
            if not isinstance(verified, _VerifiedRun):
                stored = read_draws(run, draws, seed, say)
                if stored is None:
                    raise verified
                results[run.path] = stored
                continue
            units = cluster_record_items(run.record, verified.tasks)
            stored = read_draws(run, draws, seed, say, believed=True)
            if stored is not None and (stored.summary == units.summary or not units.summary.known):
                results[run.path] = RunDraws(stored.values, stored.summary, verified.tasks, units)
            else:
                missing.append((run, verified))
        for (run, checked), computed in zip(missing, _compute_draws(missing, draws, seed), strict=True):
            _write_draws(run, computed, seed, say)
            results[run.path] = replace(computed, tasks=checked.tasks)
        for run in chunk:
            progress(1)
            yield results[run.path]


@dataclass(frozen=True)
class _VerifiedRun:
    """Tasks and predictions of a run whose scores were computed again."""

    tasks: dict[str, SuiteTask]
    predictions: dict[str, FloatArray]


def _verify_scores(run: CampaignRun, data: Path | None) -> _VerifiedRun | BenchError:
    """Compute a run's scores again, or return the error that prevents it; raise RefusedError for others."""
    try:
        tasks = load_record_tasks(run.record, data)
    except BenchError as error:
        return error
    if run.record.predictions is None:
        return BenchError("no predictions are kept", where=str(run.path))
    if not run.store.is_whole(run.record.place, run.record):
        what, file = "the predictions are missing or of another record", str(run.path.with_suffix(".npz"))
        return BenchError(what, where=file, hint="run the cell again")
    try:
        return _VerifiedRun(tasks, load_sound_predictions(run.store, run.record, data))
    except DataError as error:  # data and predictions are present: the record is wrong
        raise RefusedError(error.what, where=error.where, expected=error.expected, hint=error.hint) from error


def cluster_record_items(record: RunRecord, tasks: Mapping[str, SuiteTask]) -> SuiteUnits:
    """Return the clusters of a record's items that share a sentence, over all tasks.

    Items of unknown texts share none. Too few clusters for an interval, and predictions of other items than
    the data, raise BenchError.
    """
    measure, texts = measure_of(record.suite), []
    for name in list_task_names(record):
        parts: list[Texts | int] = []
        for part in measure.item_texts(tasks[name], record):
            parts.append(part if isinstance(part, int) else tuple(part))
        texts.append((name, tuple(parts)))
    units = _make_units(tuple(texts))
    if shortage := units.find_shortage():
        hint = "a task of more sentences; statistics over seeds hold"
        expected = f"at least {LEAST_EFFECTIVE:.0f} for intervals over items"
        raise BenchError(shortage, where=f"suite {record.suite}", expected=expected, hint=hint)
    return units


@lru_cache(maxsize=8)  # one suite has many records
def _make_units(texts: tuple[tuple[str, tuple[Texts | int, ...]], ...]) -> SuiteUnits:
    """Return the clusters of tasks, from the texts of each of their parts."""
    parts = [part for _, of_task in texts for part in of_task]
    labels = iter(cluster_items(parts))
    by_task = {name: [next(labels) for _ in of_task] for name, of_task in texts}
    return SuiteUnits(by_task, known=not any(isinstance(part, int) for part in parts))


def _compute_draws(
    runs: Sequence[tuple[CampaignRun, _VerifiedRun]], draws: int, seed: int
) -> Iterator[RunDraws]:
    """Draw the items of runs on the same tasks, clusters that tasks share together."""
    if not runs:
        return
    record, tasks = runs[0][0].record, runs[0][1].tasks
    units, measure = cluster_record_items(record, tasks), measure_of(record.suite)
    statistics = {}
    for name in list_task_names(record):
        try:
            rows = np.stack([verified.predictions[name] for _, verified in runs])
            statistics[name] = measure.item_statistics(tasks[name], rows, record)
        except (KeyError, ValueError) as error:
            raise BenchError(f"no draws of {name}: {error}", where=f"suite {record.suite}") from error
    try:
        drawn = draw_scores(statistics, units, draws, partial(make_generator, seed))
    except ValueError as error:
        raise BenchError(f"no draws of {error}", where=f"suite {record.suite}") from error
    for row in range(len(runs)):
        yield RunDraws(drawn[:, row].astype(np.float32), units.summary, units=units)


def _describe_draws(run: CampaignRun, draws: int, seed: int) -> dict[str, Any]:
    record = run.record
    return {
        "version": VERSION,
        "clusters": CLUSTERS,
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
) -> RunDraws | None:
    """Return stored draws of exactly this run, if any; ``say`` gets a line for a damaged file.

    ``believed`` is True if the run's scores were just computed again: draws for other scores are outdated.
    """
    path, names = draws_path(run, draws, seed), list_task_names(run.record)
    shape = (draws, len(names))
    largest = 4 * draws * shape[1] + 2**16
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
            if sum(member.file_size for member in archive.zip.infolist()) > largest:
                raise ValueError("too large")
            facts = json.loads(archive["facts"].tobytes())
            stored: Draws = archive["draws"]
            observed, summary = facts.pop("observed"), UnitSummary.from_json(facts.pop("units"))
    except OSError:
        return None
    except Exception as error:  # a damaged file makes numpy, zipfile and json fail in many ways
        say(f"{path}: {type(error).__name__}, so these draws are damaged; they are computed again")
        return None
    expected = _describe_draws(run, draws, seed) | {"sha256": _hash_draws(stored, summary)}
    scores = _observed_scores(run.record)
    is_sound = (
        stored.dtype == np.float32
        and stored.shape == shape
        and bool((np.abs(stored) <= 1).all())
        and find_fault(observed, MapOf(is_number)) is None
        and observed.keys() == scores.keys()
        and summary.tasks.keys() == set(names)
        and _counts_items(run.record, summary)
    )
    wrong = [name for name in scores if is_sound and abs(scores[name] - observed[name]) > TOLERANCE]
    if facts != expected or not is_sound or (wrong and believed):
        say(f"{path}: these are not the draws of {run.path}; they are computed again")
        return None
    if wrong:
        name = wrong[0]
        raise RefusedError(
            f"{name} is {scores[name]!r}, its predictions give {observed[name]!r}: the record was edited",
            where=str(run.path),
            hint="bench verify lists all; delete the record and run the cell again",
        )
    in_order = {name: summary.tasks[name] for name in names}  # the file has them by name
    return RunDraws(stored, replace(summary, tasks=in_order))


def _hash_draws(values: Draws, units: UnitSummary) -> str:
    text = json.dumps(units.to_json(), sort_keys=True)
    return hashlib.sha256(values.tobytes() + text.encode()).hexdigest()


def _counts_items(record: RunRecord, units: UnitSummary) -> bool:
    """True if clusters are of a record's items; a score may count an item's queries."""
    counts = {s.task: s.n for s in record.scores if (s.subset, s.metric) == (ALL, record.metric)}
    return all(counts[name] % task.items == 0 for name, task in units.tasks.items())


def _observed_scores(record: RunRecord) -> dict[str, float]:
    """Return the scores of every task and their average."""
    scores = {name: record.score(name) for name in (*list_task_names(record), AVERAGE)}
    return {name: value for name, value in scores.items() if value is not None}


def _write_draws(run: CampaignRun, computed: RunDraws, seed: int, say: Say) -> None:
    """Store draws atomically; a failure only costs time later."""
    values = computed.values
    path = draws_path(run, len(values), seed)
    facts = _describe_draws(run, len(values), seed)
    facts["sha256"] = _hash_draws(values, computed.summary)
    facts["units"] = computed.summary.to_json()
    facts["observed"] = _observed_scores(run.record)
    payload = io.BytesIO()
    text = np.frombuffer(json.dumps(facts, sort_keys=True).encode(), dtype=np.uint8)
    np.savez(payload, allow_pickle=False, facts=text, draws=values)
    try:
        path.parent.mkdir(exist_ok=True)
        write_atomically(path, payload.getvalue())
    except OSError as error:
        say(f"{path}: the draws can't be kept ({error.strerror})")
