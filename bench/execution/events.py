"""Progress of running cells: lines of JSON in files of the campaign, for displays, logs and estimates.

``CAMPAIGN/.running/RUN/run.jsonl`` lists the cells of a run. Each cell has a file with about a line a second.
The writing process locks each file and names itself in the first line: :mod:`bench.execution.liveness` tells
the files of killed processes. The folder goes with the run.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
import socket
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from bench.execution.liveness import PROCESS, describe_holder, find_process_state, read_first_and_last
from bench.records.filesystem import is_older_than, lock_descriptor, temporary_path
from bench.stages import RESUMED

FOLDER, RUN, SUFFIX = ".running", "run", ".jsonl"
PHASES = WAITS, LOADS, TRAINS, EVALUATES, PROBES, ENDED = "wait", "load", "train", "evaluate", "probe", "end"
FAILED = ("failed", "conflict")  # end states whose last phase is left out of time estimates
EVERY = 1.0  # seconds between two lines of a phase; dev evaluations are written at once
Stages = Mapping[str, tuple[str, int]]  # name and steps of missing training stages by key
Counts = Mapping[str, int]
Clock = Callable[[], float]
_LONGEST = 200  # characters of a text
_LINE = 2**20  # bytes of a run's first line
_FORGOTTEN = 7 * 86_400.0  # seconds without a change after which a run of unknown state is cleared away
_PATIENCE = 10.0  # seconds to wait for another process to clear away


class EventFile:
    """A locked file of events; write errors are ignored."""

    def __init__(self, path: Path, first: Mapping[str, Any]) -> None:
        self.path = path
        self._descriptor: int | None = None
        with suppress(OSError):
            scratch = path if os.name == "nt" else temporary_path(path)  # Windows renames no open file
            self._descriptor = os.open(scratch, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o666)
            with suppress(OSError):  # where locks are missing, the process in the first line counts
                lock_descriptor(self._descriptor)
            begun = {"time": round(time.time(), 1), "host": socket.gethostname()}
            self.write({**begun, PROCESS: describe_holder(scratch), **first})
            if scratch != path:
                scratch.replace(path)  # the file is locked and has its first line from the start

    def write(self, line: Mapping[str, Any]) -> None:
        """Append a line."""
        if self._descriptor is not None:
            text = json.dumps(_to_json_value(line), separators=(",", ":"))
            with suppress(OSError):  # a full disk fails the records, which have to be kept
                os.write(self._descriptor, text.encode() + b"\n")

    def close(self, *, remove: bool = False) -> None:
        """Release the lock."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
        if remove:
            with suppress(OSError):
                self.path.unlink(missing_ok=True)


def _to_json_value(value: Any) -> Any:
    """Convert any value, such as one that a plug-in reports, to one that JSON has."""
    if isinstance(value, Mapping):
        return {str(name): _to_json_value(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_to_json_value(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, bool | int | float) else str(value)[:_LONGEST]


def work_name(doing: str, name: str = "") -> str:
    """Name a piece of work by its phase and its stage or suite, such as "train joint"."""
    return f"{doing} {name}".rstrip()


def count_cell_work(stages: Stages, besides: Counts) -> Counter[str]:
    """Count a cell's work in units: steps of each missing stage (name and steps by key), and ``besides``."""
    # a stage of unknown steps counts as one
    training = {work_name(TRAINS, name): steps or 1 for name, steps in stages.values()}
    return Counter({**besides, **training})


class CellEvents:
    """Events of one running cell. Each line holds its whole state, with the work done and left."""

    def __init__(
        self, file: EventFile | None, stages: Stages, besides: Counts, *, clock: Clock = time.monotonic
    ) -> None:
        self._file, self._stages, self._todo = file, dict(stages), count_cell_work(stages, besides)
        self._clock = clock
        self._begun = self._written = self._phase_begun = clock()
        self._present = "", 0  # work and units of this phase
        self._took: dict[str, tuple[int, float]] = {}  # units and seconds of finished phases
        self._state: dict[str, Any] = {}
        self._since: tuple[float, int, int] | None = None  # seconds, sentences, step where the pace begins

    def report(self, news: Mapping[str, Any]) -> None:
        """Take news of a step or an evaluation, or a new phase of the cell under "doing"."""
        begins, has_dev = "doing" in news, "dev" in news
        if begins:
            self._since, self._state = None, {"sentences": 0, **self._begin_phase(news)}
        else:
            self._state |= news
            if RESUMED in news:  # the pace begins here, and the steps before took no time of this process
                self._since = None
                work, units = self._present
                self._present = work, max(0, units - int(news[RESUMED]))
            if has_dev:
                self._state["dev_step"] = news.get("step")
        self._write_state(now=begins or has_dev)

    def sentences(self, number: int) -> None:
        """Count finished sentences."""
        self._state["sentences"] = self._state.get("sentences", 0) + number
        if "step" not in self._state:  # otherwise the next step's news hold both
            self._write_state(now=False)

    def end(self, state: str, scores: Mapping[str, float]) -> None:
        """Report the cell's final state, and the average of each suite."""
        self.report({"doing": ENDED, "state": state, "scores": scores})

    def close(self, *, remove: bool = False) -> None:
        """Close the file; unless it ended before, the cell counts as stopped."""
        if self._file is not None:
            self._file.close(remove=remove)

    def _begin_phase(self, news: Mapping[str, Any]) -> dict[str, Any]:
        """Return the news of a phase with its work; add up the time of the one before, unless it failed."""
        state = {name: value for name, value in news.items() if name != "key"}
        if "key" in news:
            state["stage"], state["steps"] = self._stages.get(news["key"], ("", 0))
        before, self._phase_begun = self._phase_begun, self._clock()
        work, units = self._present
        if work and units and news.get("state") not in FAILED:
            known, seconds = self._took.get(work, (0, 0.0))
            self._took[work] = known + units, round(seconds + self._phase_begun - before, 3)
        doing, what = news["doing"], state.get("stage", state.get("suite", ""))
        work, units = work_name(doing, what), state.get("steps") or 1
        if doing == WAITS:  # another process trains the stage
            self._todo.pop(work_name(TRAINS, what), None)
        elif doing in (EVALUATES, PROBES):  # all stages are trained, maybe by others
            for name, _ in self._stages.values():
                self._todo.pop(work_name(TRAINS, name), None)
        self._todo -= Counter({work: units})
        self._present = ("", 0) if doing in (WAITS, ENDED) else (work, units)
        since = round(self._phase_begun - self._begun, 3)
        return {**state, "since": since, "later": dict(self._todo), "took": dict(self._took)}

    def _write_state(self, *, now: bool) -> None:
        if self._file is None:
            return
        at = self._clock()
        step, sentences = self._state.get("step", 0), self._state["sentences"]
        if self._since is None and (step or sentences):
            self._since = at, sentences, step  # the first step takes longer than the others
        if not now and at - self._written < EVERY:
            return
        self._written = at
        pace: dict[str, float] = {}
        if self._since is not None and at > self._since[0]:
            begun, earlier_sentences, earlier_steps = self._since
            pace["speed"] = round((sentences - earlier_sentences) / (at - begun), 2)
            if step > earlier_steps:
                pace["step_seconds"] = (at - begun) / (step - earlier_steps)
        times = {"time": round(time.time(), 1), "seconds": round(at - self._begun, 1)}
        self._file.write({**times, **self._state, **pace})


@contextmanager
def open_run_folder(
    root: Path, methods: Mapping[str, int], work: Mapping[str, Mapping[str, int]] | None = None
) -> Iterator[Path | None]:
    """Yield a new locked folder for the events of a run, if it can be made; remove it afterwards."""
    folder = root / FOLDER / uuid.uuid4().hex[:12]
    file: EventFile | None = None
    with suppress(OSError, Timeout), _lock_runs(root):
        _remove_dead_runs(root)
        folder.mkdir(parents=True)
        file = EventFile(folder / f"{RUN}{SUFFIX}", {"cells": methods, "work": work or {}})
    try:
        yield folder if file else None
    finally:
        if file:
            file.close()
        shutil.rmtree(folder, ignore_errors=True)  # on a full disk there is no lock
        with suppress(OSError):
            folder.parent.rmdir()
        clear_dead_runs(root)


def clear_dead_runs(root: Path) -> None:
    """Remove the event folders of killed runs."""
    if (root / FOLDER).exists():
        with suppress(OSError, Timeout), _lock_runs(root):
            _remove_dead_runs(root)


def _lock_runs(root: Path) -> FileLock:
    """Return the lock under which run folders are made and removed."""
    return FileLock(root / ".locks" / f"{FOLDER[1:]}.lock", timeout=_PATIENCE)


def _remove_dead_runs(root: Path) -> None:
    if (root / FOLDER).is_symlink():  # another owner's folder
        return
    for folder in (root / FOLDER).glob("*"):
        if _is_dead_run(folder):
            shutil.rmtree(folder, ignore_errors=True)
    with suppress(OSError):  # it holds another run, or is missing
        (root / FOLDER).rmdir()


def _is_dead_run(folder: Path) -> bool:
    """Return whether a run's process is gone, or unknown and without a change for a week."""
    file = folder / f"{RUN}{SUFFIX}"
    lines = read_first_and_last(file, _LINE)
    files = list(folder.glob(f"*{SUFFIX}"))
    news = [path.stat().st_mtime for path in files if path.exists()]
    state = find_process_state(file, lines[0] if lines else {}, max(news, default=0.0))
    forgotten = all(is_older_than(path, _FORGOTTEN) for path in files)
    return state == "gone" or (state == "unknown" and forgotten)


def open_cell_file(folder: Path | None, place: Path, about: Mapping[str, Any]) -> EventFile | None:
    """Begin a cell's file in a run's folder, if there is one, with ``about`` as its first line."""
    if folder is None:
        return None
    name = hashlib.sha256(place.as_posix().encode()).hexdigest()[:20]
    return EventFile(folder / f"{name}{SUFFIX}", about)
