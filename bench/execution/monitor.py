"""What runs and how long it takes, from files of :mod:`bench.execution.events`, which may be half written."""

from __future__ import annotations

import json
import math
import os
import stat
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from bench.errors import printable
from bench.execution.events import (
    ENDED,
    EVALUATES,
    FOLDER,
    LOADS,
    PROBES,
    RUN,
    SUFFIX,
    TRAINS,
    WAITS,
    is_event_file_held,
    work_name,
)
from bench.records.filesystem import READ

_LONGEST = 1e9  # seconds that are a time
Paces = Mapping[tuple[str, str], float]
"""Seconds that a unit of a method's work takes, see :func:`bench.execution.events.count_cell_work`."""


@dataclass(frozen=True)
class Eta:
    """Time to come.

    Args:
        seconds: What is known of it.
        whole: That is all.
    """

    seconds: float = 0.0
    whole: bool = True

    def __add__(self, other: Eta) -> Eta:
        """Both together."""
        return Eta(self.seconds + other.seconds, self.whole and other.whole)

    def __str__(self) -> str:
        """For a line of the terminal."""
        if not 0 <= self.seconds < _LONGEST or (self.seconds < 1 and not self.whole):
            return "?"
        return format_duration(self.seconds) if self.whole else f"more than {format_duration(self.seconds)}"


UNKNOWN_ETA = Eta(whole=False)
"""Nothing is known."""


def estimate_eta(method: str, work: Mapping[str, float] | None, paces: Paces) -> Eta:
    """What a method's work takes; None is work that nobody knows.

    >>> str(estimate_eta("tncse", {"train joint": 30, "evaluate toy": 1}, {("tncse", "train joint"): 2.0}))
    'more than 60 s'
    """
    if work is None:
        return UNKNOWN_ETA
    known = [n * paces[method, name] for name, n in work.items() if (method, name) in paces]
    return Eta(sum(known), len(known) == len(work))


def read_units(value: Any) -> dict[str, float] | None:
    """Units of work by its name, None for anything else."""
    if not isinstance(value, dict):
        return None
    return {name: units for name, each in value.items() if (units := finite_number(each)) and units > 0}


def subtract_work(
    planned: Mapping[str, float], begun: Sequence[Mapping[str, float]]
) -> dict[str, float] | None:
    """What of planned work isn't begun; None where no work is left for the cells to come."""
    rest = {name: units - sum(each.get(name, 0.0) for each in begun) for name, units in planned.items()}
    return {name: units for name, units in rest.items() if units > 0} or None


def finite_number(value: Any) -> float | None:
    """Return a finite number, None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def format_duration(seconds: float) -> str:
    """A time as one reads it: seconds below 100 of them, minutes below 100, else hours."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:,.1f} h"


_PART = 2**16  # bytes that are read from either end of a file
_PLAN = 2**20  # the same of a run's own, whose first line has all methods
_MOST = 10_000  # files of a folder that are looked at
_WIDEST = 60  # characters of a text
HEAD = ("cell", "seed", "stage", "step", "loss", "dev", "sent/s", "left")
QUIET = 60.0
"""Seconds without news of a training after which its line says so."""


@dataclass(frozen=True)
class CellStatus:
    """How a cell stands.

    Args:
        about: The first line of its file: method, seed, suites.
        news: The last whole one.
        alive: A process holds the file.
        age: Seconds since the last line, by this machine's clock; 0 where the clocks disagree.
    """

    about: Mapping[str, Any]
    news: Mapping[str, Any]
    alive: bool
    age: float

    @property
    def method(self) -> str:
        """Its method."""
        return _clean_text(self.about.get("method"))

    @property
    def doing(self) -> str:
        """What it does, see :mod:`bench.execution.events`; "" for what is none of that."""
        doing = self.news.get("doing")
        return doing if doing in (WAITS, LOADS, TRAINS, EVALUATES, PROBES, ENDED) else ""

    @property
    def runs(self) -> bool:
        """True if it is neither ended nor stopped."""
        return self.alive and self.doing != ENDED

    @property
    def seconds(self) -> float:
        """Seconds since it began."""
        return (finite_number(self.news.get("seconds")) or 0.0) + (self.age if self.runs else 0.0)

    def took(self) -> Iterator[tuple[str, float, float]]:
        """What tells of paces: work that is done, its units and seconds; nothing of a cell that failed."""
        if self.doing == ENDED and self.news.get("state") not in ("ran", "probed"):
            return
        took = self.news.get("took")
        for name, pair in took.items() if isinstance(took, dict) else ():
            units, seconds = (
                map(finite_number, pair) if isinstance(pair, list) and len(pair) == 2 else (None, None)
            )
            if units and units > 0 and seconds is not None:
                yield name, units, seconds
        step, pace = self._read_number("step"), self._measured_pace()
        if step and pace is not None and "dev" in self.news:  # else dev evaluations aren't in it
            yield self._work_name(), step, step * pace

    def left(self, paces: Paces) -> Eta:
        """Time until it ends.

        Args:
            paces: Of this run.
        """
        return self._phase_eta(paces) + estimate_eta(self.method, read_units(self.news.get("later")), paces)

    def _phase_eta(self, paces: Paces) -> Eta:
        known = paces.get((self.method, self._work_name()))
        if self.doing == TRAINS:
            pace, steps = self._measured_pace() if known is None else known, self._read_number("steps")
            if pace is None or not steps:
                return UNKNOWN_ETA
            return Eta(max(0.0, (steps - self._read_number("step")) * pace - self.age), known is not None)
        left = (known or 0.0) - (self.seconds - self._read_number("since"))
        return Eta(left) if left > 0 else UNKNOWN_ETA  # it takes longer than it should, or nobody knows

    def _work_name(self) -> str:
        name = {TRAINS: "stage", EVALUATES: "suite"}.get(self.doing, "")
        found = self.news.get(name)
        return work_name(self.doing, found if isinstance(found, str) else "")

    def _measured_pace(self) -> float | None:
        return finite_number(self.news.get("step_seconds")) if self.doing == TRAINS else None

    def _read_number(self, name: str) -> float:
        return finite_number(self.news.get(name)) or 0.0

    def row(self, paces: Paces) -> tuple[str, ...]:
        """What :data:`HEAD` names, "" for what it hasn't.

        Args:
            paces: Of this run.
        """
        seed, loss, dev, speed = (
            finite_number(each.get(name))
            for each, name in (
                (self.about, "seed"),
                (self.news, "loss"),
                (self.news, "dev"),
                (self.news, "speed"),
            )
        )
        return (
            self.method,
            "" if seed is None else _format_count(seed).replace(",", ""),
            self._describe_activity() if self.alive else f"stopped: {self._describe_activity()}",
            self._format_step(),
            "" if loss is None else f"{loss:.4g}",
            "" if dev is None else f"{100 * dev:.4g}",
            "" if speed is None or not self.alive else f"{speed:.3g}",
            self._format_eta(paces) if self.alive else "",
        )

    def line(self, paces: Paces) -> str:
        """The same in words."""
        method, seed, what, step, loss, dev, speed, left = self.row(paces)
        stage = "stage " if self.doing == TRAINS and self.alive else ""
        parts = (
            f"{stage}{what}",
            step and f"step {step}",
            loss and f"loss {loss}",
            dev and f"dev {dev}",
            speed and f"{speed} sentences/s",
            left and f"{left} left",
        )
        return f"{method}{seed and f' seed {seed}'}: {', '.join(filter(None, parts))}"

    def _describe_activity(self) -> str:
        stage, suite = _clean_text(self.news.get("stage")), _clean_text(self.news.get("suite"))
        if self.doing == WAITS:
            where = f"stage {stage} of another process" if "stage" in self.news else "another process"
            return f"waits for {where}"
        said = {LOADS: "starts", TRAINS: stage, EVALUATES: f"evaluates {suite}", PROBES: "probes"}
        return said.get(self.doing, "?")

    def _format_step(self) -> str:
        step, steps = self._read_number("step"), self._read_number("steps")
        return f"{_format_count(step)} of {_format_count(steps)}" if self.doing == TRAINS and steps else ""

    def _format_eta(self, paces: Paces) -> str:
        if self.doing == TRAINS and self.age >= QUIET:
            return f"no news for {format_duration(self.age)}, ?"
        return str(self.left(paces))


@dataclass
class RunMonitor:
    """A run's folder, read again and again; what has ended is read once.

    Args:
        folder: ``CAMPAIGN/.running/RUN``.
    """

    folder: Path
    ended: dict[str, CellStatus] = field(default_factory=dict)
    cells: list[CellStatus] = field(default_factory=list)
    """Those that haven't ended, at the last look."""
    alive: bool = False
    planned: Mapping[str, int] = field(default_factory=dict)
    """Cells of each method that there were to run."""
    work: Mapping[str, Mapping[str, float] | None] = field(default_factory=dict)
    """The work of each method's cells."""
    paces: Paces = field(default_factory=dict)
    """At the last look."""

    def look(self, now: float | None = None) -> None:
        """Read what is new.

        Args:
            now: By the clock, seconds since the epoch.
        """
        now = time.time() if now is None else now
        self.alive = is_event_file_held(self.folder / f"{RUN}{SUFFIX}")
        if not self.planned and (lines := read_first_and_last(self.folder / f"{RUN}{SUFFIX}", _PLAN)):
            cells, work = (lines[0].get(name) for name in ("cells", "work"))
            found = cells.items() if isinstance(cells, dict) else ()
            self.planned = {_clean_text(name): int(finite_number(count) or 0) for name, count in found}
            found = work.items() if isinstance(work, dict) else ()
            self.work = {_clean_text(name): read_units(each) for name, each in found}
        self.cells = []
        for path in _event_files(self.folder):
            if path.stem == RUN or path.name in self.ended:
                continue
            alive, lines = is_event_file_held(path), read_first_and_last(path)
            if lines is None:
                continue
            written = finite_number(lines[1].get("time"))
            stand = CellStatus(lines[0], lines[1], alive, 0.0 if written is None else max(0.0, now - written))
            if stand.doing == ENDED:
                self.ended[path.name] = stand
            else:
                self.cells.append(stand)
        self.paces = self._mean_paces()

    def _mean_paces(self) -> Paces:
        """A mean over the cells that didn't fail."""
        units: dict[tuple[str, str], float] = defaultdict(float)
        seconds: dict[tuple[str, str], float] = defaultdict(float)
        for stand in (*self.ended.values(), *self.cells):
            for name, n, took in stand.took():
                units[stand.method, name] += n
                seconds[stand.method, name] += took
        return {key: seconds[key] / n for key, n in units.items()}

    def left(self) -> Eta:
        """Time until the run ends."""
        running = [cell for cell in self.cells if cell.runs]
        each = [cell.left(self.paces) for cell in running]
        total = sum(
            [*each, *(estimate_eta(m, work, self.paces) for m, work in self._unstarted_work(running))], Eta()
        )
        longest = max((left.seconds for left in each), default=0.0)
        return Eta(max(longest, total.seconds / max(1, len(running))), total.whole)

    def _unstarted_work(
        self, running: Sequence[CellStatus]
    ) -> Iterator[tuple[str, Mapping[str, float] | None]]:
        """The methods of which cells haven't begun, and the work of those."""
        begun = defaultdict[str, list[Mapping[str, float]]](list)
        for stand in (*self.ended.values(), *running):
            begun[stand.method].append(read_units(stand.about.get("work")) or {})
        for method, count in self.planned.items():
            if count > len(begun[method]):
                yield method, subtract_work(self.work.get(method) or {}, begun[method])

    def summary(self) -> str:
        """How the run as a whole stands."""
        failed = sum(stand.news.get("state") in ("failed", "conflict") for stand in self.ended.values())
        planned = max(sum(self.planned.values()), len(self.ended))
        done = f"{len(self.ended)} of {_format_count(planned)} cells done"
        done += f", {failed} failed" if failed else ""
        if not self.alive:
            return f"{done}; stopped: its process is gone"
        return f"{done}, {self.left()} left"

    def rows(self) -> list[tuple[str, ...]]:
        """The row of each cell that hasn't ended."""
        return [cell.row(self.paces) for cell in self.cells]

    def lines(self) -> list[str]:
        """The line of each cell that hasn't ended."""
        return [cell.line(self.paces) for cell in self.cells]


def find_run_folders(results: Path, campaign: str | None = None) -> Iterator[Path]:
    """Folders of the runs whose events are below a results folder, those of killed ones too."""
    if campaign is not None:
        campaigns = [results / campaign]
    else:
        campaigns = [path for path in _list_entries(results) if not path.name.startswith(".")]
    for root in campaigns:
        yield from (path for path in _list_entries(root / FOLDER) if (path / f"{RUN}{SUFFIX}").is_file())


def _list_entries(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as found:
            return sorted(Path(entry.path) for entry in islice(found, _MOST))
    except OSError:
        return []


def _event_files(folder: Path) -> Iterator[Path]:
    return (path for path in _list_entries(folder) if path.suffix == SUFFIX and not path.name.startswith("."))


def read_first_and_last(path: Path, part: int = _PART) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Return the first and the last whole line of a file of events, None where it has none.

    However large it is, no more than a little of either end is read.
    """
    try:
        descriptor = os.open(path, READ)
    except OSError:
        return None
    try:
        size = os.fstat(descriptor)
        if not stat.S_ISREG(size.st_mode):
            return None
        head = os.read(descriptor, part)
        os.lseek(descriptor, max(0, size.st_size - part), os.SEEK_SET)
        tail = os.read(descriptor, part)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    first = _parse_line(head.partition(b"\n")[0]) if b"\n" in head else None
    lines = tail.split(b"\n")[:-1]  # what comes after the last line's end is being written
    last = next((found for line in reversed(lines[-3:]) if (found := _parse_line(line)) is not None), None)
    return None if first is None or last is None else (first, last)


def _parse_line(text: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


class EventTail:
    """Every line of a file that others append to, as it comes.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._at = path, 0

    def lines(self) -> Sequence[dict[str, Any]]:
        """Return the whole lines since the last call."""
        try:
            with self._path.open("rb") as stream:
                stream.seek(self._at)
                text = stream.read()
        except OSError:
            return []
        whole = text[: text.rfind(b"\n") + 1]
        self._at += len(whole)
        return [line for part in whole.splitlines() if (line := _parse_line(part)) is not None]


def _clean_text(value: Any) -> str:
    """A text of a file that may be anybody's, for a line of the terminal."""
    text = printable(value) if isinstance(value, str) else "?"
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 1]}…"


def _format_count(count: float) -> str:
    return f"{count:,.0f}" if abs(count) < 1e12 else "?"
