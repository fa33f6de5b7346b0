"""What running cells say of themselves: lines of JSON in files below the campaign, for whoever watches.

``CAMPAIGN/.running/RUN/run.jsonl`` says which cells a run has, a file beside it what one cell does, about a
line a second. Each process holds a lock on what it writes, so a file that nobody holds is one of a process
that was killed. The folder goes when the run ends.
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from bench.records.filesystem import is_locked, lock_descriptor, temporary_path
from bench.stages import Stage, planned_steps

FOLDER, RUN, SUFFIX = ".running", "run", ".jsonl"
WAITS, LOADS, TRAINS, EVALUATES, PROBES, ENDED = "wait", "load", "train", "evaluate", "probe", "end"
"""What a cell does."""
FAILED = ("failed", "conflict")
"""Ends of cells whose last phase tells nothing of how long such a phase takes."""
EVERY = 1.0
"""Seconds between two lines of a phase, but for dev evaluations."""
_LONGEST = 200  # characters of a text
_PATIENCE = 10.0  # seconds for another process to clear away


class EventFile:
    """A file of events that this process holds. What can't be written is left out: nothing fails for it.

    Args:
        path: The file.
        first: Its first line.
    """

    def __init__(self, path: Path, first: Mapping[str, Any]) -> None:
        self.path = path
        self._held: int | None = None
        with suppress(OSError):
            scratch = path if os.name == "nt" else temporary_path(path)  # Windows renames no open file
            self._held = os.open(scratch, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o666)
            with suppress(OSError):  # without locks is_held counts every file as held
                lock_descriptor(self._held)
            now = round(time.time(), 1)
            self.write({"time": now, "host": socket.gethostname(), **first})
            if scratch != path:
                scratch.replace(path)  # held and begun from the start

    def write(self, line: Mapping[str, Any]) -> None:
        """Append a line."""
        if self._held is not None:
            with suppress(OSError):  # a full disk fails what has to be kept
                os.write(self._held, json.dumps(_to_json_value(line), separators=(",", ":")).encode() + b"\n")

    def close(self) -> None:
        """Let go of the file, which stays."""
        if self._held is not None:
            os.close(self._held)
            self._held = None

    def drop(self) -> None:
        """Remove the file."""
        self.close()
        with suppress(OSError):
            self.path.unlink(missing_ok=True)


def _to_json_value(value: Any) -> Any:
    """A value that JSON has: what a plug-in reports may be anything."""
    if isinstance(value, Mapping):
        return {str(name): _to_json_value(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_to_json_value(each) for each in value]
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return str(value)[:_LONGEST]


def work_name(doing: str, name: str = "") -> str:
    """How a piece of work is called: what is done, and the stage or suite.

    >>> work_name(TRAINS, "joint"), work_name(LOADS)
    ('train joint', 'load')
    """
    return f"{doing} {name}".rstrip()


def count_cell_work(stages: Mapping[str, tuple[str, int]], besides: Mapping[str, int]) -> Counter[str]:
    """A cell's work in units: steps of a stage, evaluations, probings.

    Args:
        stages: Name and steps of each training stage that isn't done yet, by its key.
        besides: The rest of it.
    """
    training = {work_name(TRAINS, name): _work_units(steps) for name, steps in stages.values()}
    return Counter({**besides, **training})


def _work_units(steps: int) -> int:
    return steps or 1  # a stage that doesn't say its steps is one


class CellEvents:
    """What a cell tells while it runs: a line is all that is known, so the last one says how it stands.

    With its work (:func:`all_work`): what each phase that is over took, and what is still to come.

    Args:
        file: Where to, None for nowhere.
        stages: Name and steps of each training stage that isn't done yet, by its key.
        besides: The cell's other work.
        every: Seconds between two lines of a phase.
        clock: Seconds.
    """

    def __init__(
        self,
        file: EventFile | None,
        stages: Mapping[str, tuple[str, int]],
        besides: Mapping[str, int] | None = None,
        *,
        every: float = EVERY,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._file, self._stages, self._todo = file, dict(stages), count_cell_work(stages, besides or {})
        self._every, self._clock = every, clock
        self._begun = self._written = self._phase_begun = clock()
        self._present = "", 0  # work and units of this phase
        self._took: dict[str, tuple[int, float]] = {}  # units and seconds of the phases that are over
        self._state: dict[str, Any] = {}
        self._since: tuple[float, int, int] | None = None  # of this phase: when, sentences and step then

    def report(self, news: Mapping[str, Any]) -> None:
        """Take in news: of a step or an evaluation, or with "doing" a new phase of the cell."""
        begins = "doing" in news
        if begins:
            self._since, self._state = None, {"sentences": 0, **self._begin_phase(news)}
        else:
            self._state |= news
            if "dev" in news:
                self._state["dev_step"] = news.get("step")
        self._write_state(now=begins or "dev" in news)

    def sentences(self, number: int) -> None:
        """Count finished sentences."""
        self._state["sentences"] = self._state.get("sentences", 0) + number
        if "step" not in self._state:  # else the next step's news say both
            self._write_state()

    def end(self, state: str, scores: Mapping[str, float]) -> None:
        """Say what became of the cell, and the average of each suite."""
        self.report({"doing": ENDED, "state": state, "scores": scores})

    def drop(self) -> None:
        """Leave nothing behind: another process has the cell."""
        if self._file is not None:
            self._file.drop()

    def close(self) -> None:
        """Let go; without an end before it, the cell counts as stopped."""
        if self._file is not None:
            self._file.close()

    def _begin_phase(self, news: Mapping[str, Any]) -> dict[str, Any]:
        """News of a phase with the work before and after it; of a stage, by its key, its name and steps."""
        found = {name: value for name, value in news.items() if name != "key"}
        if "key" in news:
            name, steps = self._stages.get(news["key"], ("", 0))
            found |= {"stage": name, "steps": steps}
        self._end_phase(news)
        doing, what = news["doing"], found.get("stage", found.get("suite", ""))
        work, units = work_name(doing, what), _work_units(found.get("steps", 0))
        if doing == WAITS:
            self._todo.pop(work_name(TRAINS, what), None)  # of a stage: another process does it
        elif doing in (EVALUATES, PROBES):  # all is trained, maybe elsewhere
            training = {work_name(TRAINS, name) for name, _ in self._stages.values()}
            self._todo = Counter({name: n for name, n in self._todo.items() if name not in training})
        self._todo = self._todo - Counter({work: units})
        self._present = ("", 0) if doing in (WAITS, ENDED) else (work, units)
        since = round(self._phase_begun - self._begun, 3)
        return {**found, "since": since, "later": dict(self._todo), "took": dict(self._took)}

    def _end_phase(self, news: Mapping[str, Any]) -> None:
        """Note what the phase before these news took, unless it failed."""
        before, self._phase_begun = self._phase_begun, self._clock()
        work, units = self._present
        if work and news.get("state") not in FAILED:
            known, seconds = self._took.get(work, (0, 0.0))
            self._took[work] = known + units, round(seconds + self._phase_begun - before, 3)

    def _write_state(self, *, now: bool = False) -> None:
        if self._file is None:
            return
        at = self._clock()
        step, sentences = self._state.get("step", 0), self._state["sentences"]
        if self._since is None and (step or sentences):
            self._since = at, sentences, step  # the first step takes longer than the others
        if not now and at - self._written < self._every:
            return
        self._written = at
        pace: dict[str, float] = {}
        if self._since is not None and at > self._since[0]:
            seconds = at - self._since[0]
            pace["speed"] = round((sentences - self._since[1]) / seconds, 2)
            if step > self._since[2]:
                pace["step_seconds"] = seconds / (step - self._since[2])
        about = {"time": round(time.time(), 1), "seconds": round(at - self._begun, 1)}
        self._file.write({**about, **self._state, **pace})


@contextmanager
def open_run_folder(
    root: Path, methods: Mapping[str, int], work: Mapping[str, Mapping[str, int]] | None = None
) -> Iterator[Path | None]:
    """Yield a new folder for the events of a run, held by this process; None where none can be made.

    The folder goes afterwards, and so does what killed runs left.

    Args:
        root: The campaign's folder.
        methods: How many cells of each method there are to run.
        work: What there is to do for them, see :func:`all_work`.
    """
    folder = root / FOLDER / uuid.uuid4().hex[:12]
    held: EventFile | None = None
    with suppress(OSError, Timeout), _lock_runs(root):
        _remove_dead_runs(root)
        folder.mkdir(parents=True)
        held = EventFile(folder / f"{RUN}{SUFFIX}", {"cells": methods, "work": work or {}})
    try:
        yield folder if held else None
    finally:
        if held:
            held.close()
        shutil.rmtree(folder, ignore_errors=True)  # on a full disk there is no lock
        with suppress(OSError):
            folder.parent.rmdir()
        clear_dead_runs(root)


def clear_dead_runs(root: Path) -> None:
    """Remove the folders of runs that nobody holds."""
    if (root / FOLDER).exists():
        with suppress(OSError, Timeout), _lock_runs(root):
            _remove_dead_runs(root)


@contextmanager
def _lock_runs(root: Path) -> Iterator[None]:
    """Let nobody clear away what another process is about to hold."""
    with FileLock(root / ".locks" / f"{FOLDER[1:]}.lock", timeout=_PATIENCE):
        yield


def _remove_dead_runs(root: Path) -> None:
    if (root / FOLDER).is_symlink():  # somebody else's folder
        return
    for folder in (root / FOLDER).glob("*"):
        if not is_event_file_held(folder / f"{RUN}{SUFFIX}"):
            shutil.rmtree(folder, ignore_errors=True)
    with suppress(OSError):  # another run is there, or none was
        (root / FOLDER).rmdir()


def is_event_file_held(path: Path) -> bool:
    """True if a process holds a file of events, or may hold it: without locks nothing of a live run goes."""
    return is_locked(path) is not False


def open_cell_file(folder: Path | None, place: Path, about: Mapping[str, Any]) -> EventFile | None:
    """Begin a cell's file in a run's folder.

    Args:
        folder: Of the run, None for none.
        place: Of the cell below the campaign.
        about: Its first line.
    """
    if folder is None:
        return None
    name = hashlib.sha256(place.as_posix().encode()).hexdigest()[:20]
    return EventFile(folder / f"{name}{SUFFIX}", about)


def find_missing_steps(
    named: Sequence[tuple[str, Stage]], texts: Mapping[str, int], finished: Path
) -> dict[str, tuple[str, int]]:
    """Name and planned steps of the stages that aren't there yet, by key.

    Args:
        named: Stages by name.
        texts: Sentences of each training text.
        finished: Folder of the finished ones.
    """
    found = {}
    for name, stage in named:
        if not (finished / stage.key).is_dir():
            config = dict(stage.spec.config)
            known = "batch_size" in config and "steps" in config and stage.spec.text in texts
            found[stage.key] = name, planned_steps(config, texts[stage.spec.text]) if known else 0
    return found
