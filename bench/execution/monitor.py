"""State and time left of running cells, from files of :mod:`bench.execution.events`, perhaps half written."""

from __future__ import annotations

import math
import os
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from bench.errors import printable
from bench.execution import events
from bench.execution.liveness import (
    PROCESS,
    ProcessState,
    find_process_state,
    parse_line,
    read_first_and_last,
)

HEAD = ("cell", "seed", "stage", "step", "loss", "dev", "sent/s", "left")
QUIET = 60.0  # seconds of silence after which the line of a training cell reports it
_LONGEST = 1e9  # seconds that are a time
_PLAN = 2**20  # bytes read of a run's own file, whose first line lists all methods
_FORGOTTEN = 600.0  # seconds without news after which nobody waits for a run of unknown state
_MOST = 10_000  # files read in a folder
_WIDEST = 60  # characters of a text
Paces = Mapping[tuple[str, str], float]
"""Seconds per unit of a method's work, see :func:`bench.execution.events.count_cell_work`."""
Work = Mapping[str, float]  # units by the name of the work


@dataclass(frozen=True)
class Eta:
    """Time left: the seconds that are known, and whether that is all (``whole``)."""

    seconds: float = 0.0
    whole: bool = True

    def __add__(self, other: Eta) -> Eta:
        """Add two times, whole if both are."""
        return Eta(self.seconds + other.seconds, self.whole and other.whole)

    def __str__(self) -> str:
        """Format for the terminal."""
        if not 0 <= self.seconds < _LONGEST or (self.seconds < 1 and not self.whole):
            return "?"
        return format_duration(self.seconds) if self.whole else f"more than {format_duration(self.seconds)}"


UNKNOWN_ETA = Eta(whole=False)


def estimate_eta(method: str, work: Work | None, paces: Paces) -> Eta:
    """Estimate the time of a method's work; unknown work has an unknown time."""
    if work is None:
        return UNKNOWN_ETA
    known = [n * paces[method, name] for name, n in work.items() if (method, name) in paces]
    return Eta(sum(known), len(known) == len(work))


def _read_work(value: Any) -> Work | None:
    """Return positive units of work by name, if it is a mapping."""
    if not isinstance(value, dict):
        return None
    return {name: units for name, entry in value.items() if (units := finite_number(entry) or 0.0) > 0}


def finite_number(value: Any) -> float | None:
    """Return a value if it is a finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def format_duration(seconds: float) -> str:
    """Format seconds below 100 as such, then up to 100 minutes as minutes, then as hours."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:,.1f} h"


@dataclass(frozen=True)
class CellStatus:
    """State of a cell: first line of its file, last whole line, whether a process holds it."""

    about: Mapping[str, Any]
    news: Mapping[str, Any]
    state: ProcessState
    age: float  # seconds since the last line by this machine's clock; 0 where the clocks disagree

    @property
    def method(self) -> str:
        """Its method id."""
        return _clean_text(self.about.get("method"))

    @property
    def doing(self) -> str:
        """Its phase, "" for an unknown one."""
        doing = self.news.get("doing")
        return doing if doing in events.PHASES else ""

    @property
    def runs(self) -> bool:
        """True until it ends or is stopped, as far as this machine can tell."""
        return self.state != "gone" and self.doing != events.ENDED

    def measure_paces(self) -> Iterator[tuple[str, float, float]]:
        """Yield work, units and seconds of finished phases and the present stage, unless it failed."""
        if self.doing == events.ENDED and self.news.get("state") not in ("ran", "probed"):
            return
        phases = self.news.get("took")
        for name, pair in phases.items() if isinstance(phases, dict) else ():
            if isinstance(pair, list) and len(pair) == 2:
                units, seconds = map(finite_number, pair)
                if units and units > 0 and seconds is not None:
                    yield name, units, seconds
        step, pace = self._read_number("step"), self._measured_pace()
        if step and pace is not None and "dev" in self.news:  # earlier, the pace lacks dev evaluations
            yield self._work_name(), step, step * pace

    def estimate_eta(self, paces: Paces) -> Eta:
        """Estimate the time until it ends from the run's paces."""
        later = estimate_eta(self.method, _read_work(self.news.get("later")), paces)
        return self._phase_eta(paces) + later

    def measure_progress(self) -> float:
        """Return the share of its work that is done, from 0 to 1, by steps of training and other units."""
        finished, later = self.news.get("took"), _read_work(self.news.get("later")) or {}
        pairs = finished.values() if isinstance(finished, dict) else ()
        done = sum(finite_number(pair[0]) or 0.0 for pair in pairs if isinstance(pair, list) and pair)
        total = done + sum(later.values()) + 1.0  # the present phase
        if self.doing == events.TRAINS and (steps := self._read_number("steps")):
            step = min(self._read_number("step"), steps)
            done, total = done + step, total - 1.0 + steps
        return max(0.0, min(1.0, done / total))

    def _phase_eta(self, paces: Paces) -> Eta:
        known = paces.get((self.method, self._work_name()))
        if self.doing == events.TRAINS:
            pace, steps = self._measured_pace() if known is None else known, self._read_number("steps")
            if pace is None or not steps:
                return UNKNOWN_ETA
            return Eta(max(0.0, (steps - self._read_number("step")) * pace - self.age), known is not None)
        seconds = self._read_number("seconds") + (self.age if self.runs else 0.0)
        left = (known or 0.0) - (seconds - self._read_number("since"))
        return Eta(left) if left > 0 else UNKNOWN_ETA  # the pace is unknown, or the phase takes longer

    def _work_name(self) -> str:
        name = self.news.get({events.TRAINS: "stage", events.EVALUATES: "suite"}.get(self.doing, ""))
        return events.work_name(self.doing, name if isinstance(name, str) else "")

    def _measured_pace(self) -> float | None:
        return finite_number(self.news.get("step_seconds")) if self.doing == events.TRAINS else None

    def _read_number(self, name: str) -> float:
        return finite_number(self.news.get(name)) or 0.0

    def format_row(self, paces: Paces) -> tuple[str, ...]:
        """Return the columns of :data:`HEAD`, "" for an unknown one."""
        seed = finite_number(self.about.get("seed"))
        loss, dev, speed = (finite_number(self.news.get(name)) for name in ("loss", "dev", "speed"))
        activity, eta = self._describe_activity(), ""
        if self.state == "gone":
            activity, speed = f"stopped: {activity}", None
        elif self.state == "unknown":
            activity, eta = f"perhaps {activity}", f"last news {format_duration(self.age)} ago, ?"
        elif self.doing == events.TRAINS and self.age >= QUIET:
            eta = f"no news for {format_duration(self.age)}, ?"
        else:
            eta = str(self.estimate_eta(paces))
        trained = ""
        if self.doing == events.TRAINS and (steps := self._read_number("steps")):
            trained = f"{_format_count(self._read_number('step'))} of {_format_count(steps)}"
        number = "" if seed is None else _format_count(seed).replace(",", "")
        percent = None if dev is None else 100 * dev
        values = ((loss, ".4g"), (percent, ".4g"), (speed, ".3g"))
        texts = ["" if value is None else f"{value:{form}}" for value, form in values]
        return self.method, number, activity, trained, *texts, eta

    def format_line(self, paces: Paces) -> str:
        """Return the same in words."""
        method, seed, activity, *values = self.format_row(paces)
        stage = "stage " if self.doing == events.TRAINS and self.state == "alive" else ""
        forms = ("step {}", "loss {}", "dev {}", "{} sentences/s", "{} left")
        if self.state == "unknown":
            forms = (*forms[:-1], "{}")
        parts = [form.format(value) for form, value in zip(forms, values, strict=True) if value]
        return f"{method}{seed and f' seed {seed}'}: {', '.join([stage + activity, *parts])}"

    def _describe_activity(self) -> str:
        stage, suite = _clean_text(self.news.get("stage")), _clean_text(self.news.get("suite"))
        if self.doing == events.WAITS:
            what = f"stage {stage} of " if "stage" in self.news else ""
            return f"waits for {what}another process"
        activities = {events.LOADS: "starts", events.TRAINS: stage, events.PROBES: "probes"}
        return activities.get(self.doing, f"evaluates {suite}" if self.doing == events.EVALUATES else "?")


@dataclass
class RunMonitor:
    """A run's folder ``CAMPAIGN/.running/RUN``, read again and again; files of ended cells are read once."""

    folder: Path
    ended: dict[str, CellStatus] = field(default_factory=dict)
    cells: list[CellStatus] = field(default_factory=list)  # in progress at the last look
    state: ProcessState = "gone"
    age: float = 0.0  # seconds since the last line of any of its files, by this machine's clock
    node: str = ""  # name of its machine
    planned: Mapping[str, int] = field(default_factory=dict)  # cells by method
    work: Mapping[str, Work | None] = field(default_factory=dict)  # of all cells by method
    paces: Paces = field(default_factory=dict)

    def look(self, now: float | None = None) -> None:
        """Read new events; ``now`` is in seconds since the epoch."""
        now = time.time() if now is None else now
        plan_file = self.folder / f"{events.RUN}{events.SUFFIX}"
        lines = read_first_and_last(plan_file, _PLAN)
        first = lines[0] if lines else {}
        process = first.get(PROCESS)
        self.node = _clean_text(process.get("node")) if isinstance(process, dict) else ""
        if not self.planned and lines:
            cells, work = (lines[0].get(name) for name in ("cells", "work"))
            if isinstance(cells, dict):
                self.planned = {_clean_text(name): int(finite_number(n) or 0) for name, n in cells.items()}
            if isinstance(work, dict):
                self.work = {_clean_text(name): _read_work(units) for name, units in work.items()}
        self.cells = []
        for path in _list_entries(self.folder):
            hidden = path.name.startswith(".") or path.suffix != events.SUFFIX
            if hidden or path.stem == events.RUN or path.name in self.ended:
                continue
            lines = read_first_and_last(path)
            if lines is None:
                continue
            written = finite_number(lines[1].get("time"))
            state = find_process_state(path, lines[0], written or 0.0)
            cell = CellStatus(*lines, state, 0.0 if written is None else max(0.0, now - written))
            if cell.doing == events.ENDED:
                self.ended[path.name] = cell
            else:
                self.cells.append(cell)
        newest = max(self._news_times(first), default=0.0)
        self.age = max(0.0, now - newest) if newest else 0.0
        self.state = find_process_state(plan_file, first, newest)
        self.paces = self._mean_paces()

    def _news_times(self, first: Mapping[str, Any]) -> Iterator[float]:
        for line in (first, *(cell.news for cell in (*self.ended.values(), *self.cells))):
            if (written := finite_number(line.get("time"))) is not None:
                yield written

    @property
    def may_run(self) -> bool:
        """True for a run that lives, or whose state is unknown and whose last news are recent."""
        return self.state == "alive" or (self.state == "unknown" and self.age < _FORGOTTEN)

    def _mean_paces(self) -> Paces:
        units: dict[tuple[str, str], float] = defaultdict(float)
        seconds: dict[tuple[str, str], float] = defaultdict(float)
        for cell in (*self.ended.values(), *self.cells):
            for name, n, took in cell.measure_paces():
                units[cell.method, name] += n
                seconds[cell.method, name] += took
        return {key: seconds[key] / n for key, n in units.items()}

    def measure_progress(self) -> float:
        """Return the share of the planned cells that is done, from 0 to 1; running cells count in part."""
        planned = max(sum(self.planned.values()), len(self.ended))
        running = sum(cell.measure_progress() for cell in self.cells if cell.runs)
        return min(1.0, (len(self.ended) + running) / planned) if planned else 0.0

    def estimate_eta(self) -> Eta:
        """Estimate the time until the run ends."""
        running, total, longest = [cell for cell in self.cells if cell.runs], Eta(), 0.0
        for cell in running:
            eta = cell.estimate_eta(self.paces)
            total, longest = total + eta, max(longest, eta.seconds)
        for method, work in self._unstarted_work(running):
            total += estimate_eta(method, work, self.paces)
        return Eta(max(longest, total.seconds / max(1, len(running))), total.whole)

    def _unstarted_work(self, running: Sequence[CellStatus]) -> Iterator[tuple[str, Work | None]]:
        """Yield methods with cells to come, and their work, if it is known."""
        begun = defaultdict[str, list[Work]](list)
        for cell in (*self.ended.values(), *running):
            begun[cell.method].append(_read_work(cell.about.get("work")) or {})
        for method, count in self.planned.items():
            if count > len(begun[method]):
                rest = dict(self.work.get(method) or {})
                for work in begun[method]:
                    rest = {name: units - work.get(name, 0.0) for name, units in rest.items()}
                yield method, {name: units for name, units in rest.items() if units > 0} or None

    def summary(self) -> str:
        """Return the state of the whole run in one line."""
        planned = max(sum(self.planned.values()), len(self.ended))
        percent = int(100 * self.measure_progress())
        done = f"{len(self.ended)} of {_format_count(planned)} cells done ({percent}%)"
        if failed := sum(cell.news.get("state") in events.FAILED for cell in self.ended.values()):
            done += f", {failed} failed"
        if self.state == "gone":
            return f"{done}; stopped: its process is gone"
        if self.state == "unknown":
            where = f" on {self.node}" if self.node else ""
            age = format_duration(self.age)
            return f"{done}; last news {age} ago{where}: no lock shows here whether its process runs"
        return f"{done}, {self.estimate_eta()} left"

    def rows(self) -> list[tuple[str, ...]]:
        """Return the row of each cell in progress."""
        return [cell.format_row(self.paces) for cell in self.cells]

    def lines(self) -> list[str]:
        """Return the line of each cell in progress."""
        return [cell.format_line(self.paces) for cell in self.cells]


def find_run_folders(results: Path, campaign: str | None = None) -> Iterator[Path]:
    """Yield the event folders of all runs below a results folder, those of killed runs included."""
    roots = _list_entries(results) if campaign is None else [results / campaign]
    for root in roots:
        if campaign is not None or not root.name.startswith("."):
            for path in _list_entries(root / events.FOLDER):
                if (path / f"{events.RUN}{events.SUFFIX}").is_file():
                    yield path


def _list_entries(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            return sorted(Path(entry.path) for entry in islice(entries, _MOST))
    except OSError:
        return []


class EventTail:
    """New lines of a file that another process appends to."""

    def __init__(self, path: Path) -> None:
        self._path, self._at = path, 0

    def lines(self) -> list[dict[str, Any]]:
        """Return the whole lines since the last call."""
        try:
            with self._path.open("rb") as stream:
                stream.seek(self._at)
                text = stream.read()
        except OSError:
            return []
        whole = text[: text.rfind(b"\n") + 1]
        self._at += len(whole)
        return [line for part in whole.splitlines() if (line := parse_line(part)) is not None]


def _clean_text(value: Any) -> str:
    """Make a text of any file safe for a line of the terminal."""
    text = printable(value) if isinstance(value, str) else "?"
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 1]}…"


def _format_count(count: float) -> str:
    return f"{count:,.0f}" if abs(count) < 1e12 else "?"
