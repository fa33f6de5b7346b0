"""History of the gate: verdicts of many builds from the files of ``bench check --json``."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

from bench.comparison.row_lookup import find_row
from bench.errors import DataError, InputError
from bench.gate.verdict import BAD, CellVerdict, Drop, Key, Question, Status, cell_name
from bench.schema import (
    Block,
    ListOf,
    MapOf,
    Maybe,
    find_fault,
    is_boolean,
    is_count,
    is_number,
    is_text,
    is_whole_number,
)

FORMAT = 2
"""The newest known format of the JSON; 1 is not written in the file."""
LARGEST = 16 * 2**20
"""Most bytes of a verdict; a hundred cells take 1 MiB."""
MOST = 10_000
"""Most verdicts of a folder."""
AVERAGE_KEY: Key = ("", "average", "")
"""Key of the average over cells, of any number of cells."""


@dataclass(frozen=True)
class Build:
    """One verdict of ``bench check``, from a file below the folder; older ones lack date, commit, version."""

    file: str
    date: datetime | None
    commit: str
    bench: str
    sentence: str
    exit_code: int
    tolerance: float
    strict: bool
    cells: tuple[CellVerdict, ...]
    overall: CellVerdict | None = None

    @property
    def by_key(self) -> list[tuple[Key, CellVerdict]]:
        """The verdicts with the keys of their cells."""
        verdicts = [(cell.key, cell) for cell in self.cells]
        return verdicts if self.overall is None else [*verdicts, (AVERAGE_KEY, self.overall)]


@dataclass(frozen=True)
class GatePoint:
    """One cell in one build; ``step`` is True if the reference's score is not that of the build before."""

    build: Build
    cell: CellVerdict
    step: bool = False

    @property
    def failed(self) -> bool:
        """True if it failed the gate."""
        return self.cell.status in (*BAD, Status.DIFFERENT)

    @property
    def allowed_drop(self) -> float | None:
        """The drop above which the gate fails, if known: the tolerance, or more for seeds or items."""
        average = self.cell.average
        if average is None:
            return None
        half = None if average.low is None else average.drop - average.low
        bounds = [bound for bound in (half, self.cell.limit) if bound is not None]
        return max(self.build.tolerance, min(bounds, default=0.0))

    @property
    def below(self) -> float | None:
        """The score below which the gate fails, if there are scores."""
        average, allowed_drop = self.cell.average, self.allowed_drop
        return None if average is None or allowed_drop is None else average.reference - allowed_drop


@dataclass(frozen=True)
class CellHistory:
    """A cell over the builds that have it, in their order."""

    key: Key
    points: tuple[GatePoint, ...]

    @property
    def title(self) -> str:
        """The cell's name."""
        return "average over the cells" if self.key == AVERAGE_KEY else cell_name(self.key)


@dataclass(frozen=True)
class History:
    """The verdicts of a folder by date; by file name if a date is missing."""

    builds: tuple[Build, ...]
    by_date: bool

    def lines(self, methods: Sequence[str] | None = None) -> list[CellHistory]:
        """Return the history of every cell of these methods (default all), the method "average" last."""
        points: dict[Key, list[GatePoint]] = {}
        last: dict[Key, float] = {}
        for build in self.builds:
            for key, cell in build.by_key:
                step = False
                if cell.average is not None:
                    now = cell.average.reference
                    step = abs(now - last.get(key, now)) > 1e-9
                    last[key] = now
                points.setdefault(key, []).append(GatePoint(build, cell, step))
        known = sorted({key[1] for key in points})
        wanted = known
        if methods is not None:
            wanted = [find_row(name, known, where="--methods") for name in methods]
        ordered = sorted(points, key=lambda key: (key == AVERAGE_KEY, key))
        return [CellHistory(key, tuple(points[key])) for key in ordered if key[1] in wanted]


def read_history(folder: Path) -> History:
    """Read every verdict ``*.json`` at any depth of a folder; hidden files are ignored."""
    where = "bench check --history"
    if not folder.is_dir():
        expected = "a folder of verdicts of bench check --json"
        raise InputError(f"{folder} is no folder", where=where, expected=expected)
    paths = []
    for top, _, names in os.walk(folder):
        paths += [Path(top, name) for name in names if name.endswith(".json") and name[0] != "."]
    paths = [path for path in paths if path.is_file()]
    if not paths:
        hint = "bench check --json FILE writes one"
        raise InputError(
            f"{folder} has no verdict", where=where, expected="files *.json at any depth", hint=hint
        )
    if len(paths) > MOST:
        raise InputError(f"{folder} has {len(paths)} files", where=where, expected=f"at most {MOST}")
    paths.sort(key=lambda path: _natural_sort_key(path.relative_to(folder).as_posix()))
    builds = [_read_build(path, path.relative_to(folder).as_posix()) for path in paths]
    dated = [build.date for build in builds if build.date is not None]
    if len(dated) < len(builds):
        return History(tuple(builds), by_date=False)
    in_order = sorted(zip(dated, range(len(builds)), builds, strict=True))
    return History(tuple(build for *_, build in in_order), by_date=True)


def _natural_sort_key(name: str) -> list[tuple[int, int, str]]:
    """Return a sort key with digits as numbers: build-9 before build-10."""
    parts = re.findall(r"[0-9]{1,18}|[^0-9]+", name)
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts]


def _read_build(path: Path, name: str) -> Build:
    try:
        with path.open("rb") as stream:
            content = stream.read(LARGEST + 1)
    except OSError as error:
        raise DataError(f"unreadable: {error.strerror}", where=str(path)) from error
    if len(content) > LARGEST:
        raise DataError(f"larger than {LARGEST >> 20} MiB", where=str(path), expected=_EXPECTED)
    try:
        data = json.loads(content.decode("utf-8"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise DataError(f"not JSON: {error}", where=str(path), expected=_EXPECTED) from error
    if isinstance(data, dict) and is_whole_number(data.get("format")) and data["format"] > FORMAT:
        raise DataError("written by a newer bench", where=str(path), hint="update bench")
    if (place := find_fault(data, _SHAPE)) is not None:
        what, hint = f"'{place[:80]}' is missing or wrong", "move other files out of the folder"
        raise DataError(what, where=str(path), expected=_EXPECTED, hint=hint)
    facts, overall = data.get("build", {}), data.get("overall")
    return Build(
        file=name.removesuffix(".json"),
        date=_parse_date(facts.get("date"), path),
        commit=facts.get("commit", ""),
        bench=facts.get("bench", ""),
        sentence=data["sentence"],
        exit_code=data["exit_code"],
        tolerance=data["tolerance"],
        strict=data.get("strict", False),
        cells=tuple(map(_parse_verdict, data["cells"])),
        overall=None if overall is None else _parse_verdict(overall),
    )


_EXPECTED = "a verdict of bench check --json"


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


def _parse_date(value: str | None, path: Path) -> datetime | None:
    """Return a date with its time in UTC, the default zone."""
    if value is None:
        return None
    try:
        date = datetime.fromisoformat(value)
        return date.replace(tzinfo=UTC) if date.tzinfo is None else date.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        expected = "build.date in ISO 8601, such as 2026-01-31T12:00:00+00:00"
        raise DataError(f"'{value[:40]}' is no date", where=str(path), expected=expected) from error


def _parse_verdict(facts: Mapping[str, Any]) -> CellVerdict:
    seeds, new_seeds = (tuple(facts[name]) for name in ("seeds", "new_seeds"))
    names = ("reference", "new", "low", "high", "p", "adjusted_p")
    drops = {task: Drop(**{name: drop.get(name) for name in names}) for task, drop in facts["drops"].items()}
    # format 1 has no questions
    question = facts.get("question") or (Question.RECOMPUTE if None in seeds else Question.RETRAIN)
    return CellVerdict(
        (facts["profile"], facts["method"], facts["suite"]),
        Status(facts["status"]),
        seeds,
        new_seeds,
        drops,
        facts.get("test"),
        facts.get("limit"),
        tuple(facts["reasons"]),
        Question(question),
        facts.get("stage"),
        facts.get("sees"),
    )


def _one_of(*accepted: object) -> Any:
    return lambda value: isinstance(value, str | int) and not isinstance(value, bool) and value in accepted


def _is_score(value: Any) -> bool:
    """True for a correlation or an accuracy, but for rounding."""
    return is_number(value) and abs(value) <= 1.001


def _is_nonnegative(value: Any) -> bool:
    return is_number(value) and value >= 0


_DROP = Block(
    required={"reference": _is_score, "new": _is_score},
    optional={"drop": is_number, **dict.fromkeys(("low", "high", "p", "adjusted_p"), Maybe(is_number))},
)
_CELL = Block(
    required={
        **dict.fromkeys(("profile", "method", "suite"), is_text),
        "status": _one_of(*map(str, Status)),
        **dict.fromkeys(("seeds", "new_seeds"), ListOf(Maybe(is_whole_number))),
        "drops": MapOf(_DROP),
        "reasons": ListOf(is_text),
    },
    optional={
        "question": _one_of(*map(str, Question)),
        **dict.fromkeys(("test", "stage"), Maybe(is_text)),
        **dict.fromkeys(("limit", "sees"), Maybe(_is_nonnegative)),
    },
)
_SHAPE = Block(
    required={
        "sentence": is_text,
        "exit_code": _one_of(0, 1, 3),
        "tolerance": _is_nonnegative,
        "cells": ListOf(_CELL),
    },
    optional={
        "format": is_whole_number,
        "level": is_number,
        "tested": is_count,
        "repeated": is_boolean,
        "strict": is_boolean,
        "rescored": is_count,
        "warnings": ListOf(is_text),
        "build": MapOf(is_text),
        "overall": Maybe(_CELL),
        "known_values": is_count,
        "wrong_values": ListOf(_CELL),
    },
)
