"""The gate's verdicts of many builds, as ``bench check --json`` writes them: scores over builds."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

from bench.errors import DataError, InputError, unknown_name
from bench.gate.verdict import BAD, CellVerdict, Drop, Key, Question, Seeds, Status, cell_name
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
"""The newest format of the JSON that is known; 1, of older ones, names none."""
LARGEST = 16 * 2**20
"""Bytes of a verdict; those of a hundred cells have one."""
MOST = 10_000
"""Verdicts of a folder."""
AVERAGE_KEY: Key = ("", "average", "")
"""Under which the average over cells is followed, of however many it is."""


@dataclass(frozen=True)
class Build:
    """One verdict.

    Args:
        file: Its file below the folder, without ".json".
        date: When it was made, in UTC; None where the file doesn't say.
        commit: Of what was checked; "" where the file doesn't say.
        bench: Version; "" where the file doesn't say.
        sentence: The verdict in one line.
        exit_code: That of ``bench check``.
        tolerance: In the metric's unit.
        strict: Changed numbers failed.
        cells: Verdicts of the cells.
        overall: That of the average over cells, None where there is none.
    """

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
        """Every verdict by the cell that is followed."""
        found = [(cell.key, cell) for cell in self.cells]
        return found if self.overall is None else [*found, (AVERAGE_KEY, self.overall)]


@dataclass(frozen=True)
class GatePoint:
    """One cell in one build.

    Args:
        build: The build.
        cell: Its verdict.
        step: The reference has another score than in the build before.
    """

    build: Build
    cell: CellVerdict
    step: bool = False

    @property
    def failed(self) -> bool:
        """True if it failed the gate."""
        return self.cell.status in (*BAD, Status.DIFFERENT)

    @property
    def allowed(self) -> float | None:
        """The drop above which the gate fails: the tolerance, or more where the seeds or items must show it.

        They show it by the interval, whose lower end passes 0, or by the limit of the reference's own spread:
        the smaller of both is enough. None where there are no scores.
        """
        average = self.cell.average
        if average is None:
            return None
        half = None if average.low is None else average.drop - average.low
        shown = [value for value in (half, self.cell.limit) if value is not None]
        return max(self.build.tolerance, min(shown)) if shown else self.build.tolerance

    @property
    def below(self) -> float | None:
        """The score below which the gate fails, None where there are no scores."""
        average, allowed = self.cell.average, self.allowed
        return None if average is None or allowed is None else average.reference - allowed


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
    """The verdicts of a folder.

    Args:
        builds: In order, the oldest first.
        by_date: The order is that of their dates; else at least one has none, and it is that of file names.
    """

    builds: tuple[Build, ...]
    by_date: bool

    def lines(self, methods: Sequence[str] | None = None) -> list[CellHistory]:
        """Return every cell's line, the average over cells last.

        Args:
            methods: Only these; "average" is that over cells. None for all.

        Raises:
            InputError: a method that no build has.
        """
        found: dict[Key, list[GatePoint]] = {}
        last: dict[Key, float] = {}
        for build in self.builds:
            for key, cell in build.by_key:
                step = False
                if cell.average is not None:
                    now = cell.average.reference
                    step = abs(now - last.get(key, now)) > 1e-9
                    last[key] = now
                found.setdefault(key, []).append(GatePoint(build, cell, step))
        known = sorted({key[1] for key in found})
        for name in methods or ():
            if name not in known:
                raise unknown_name("method of a build", name, known, where="--methods")
        ordered = sorted(found, key=lambda key: (key == AVERAGE_KEY, key))
        return [
            CellHistory(key, tuple(found[key])) for key in ordered if methods is None or key[1] in methods
        ]


def read_history(folder: Path) -> History:
    """Read every verdict at any depth of a folder.

    Args:
        folder: Files ``*.json``, all of them verdicts; hidden ones are left out.

    Raises:
        InputError: no folder, or none or too many in it.
        DataError: a file that is no verdict; it names the file.
    """
    if not folder.is_dir():
        raise InputError(
            f"{folder} is no folder",
            where="bench history",
            expected="a folder of verdicts of bench check --json",
        )
    paths = [
        Path(top, name)
        for top, folders, names in os.walk(folder)
        for name in names
        if name.endswith(".json") and not name.startswith(".")
    ]
    paths = [path for path in paths if path.is_file()]
    if not paths:
        raise InputError(
            f"{folder} has no verdict",
            where="bench history",
            expected="files *.json at any depth",
            hint="bench check --json FILE writes one",
        )
    if len(paths) > MOST:
        raise InputError(
            f"{folder} has {len(paths)} files", where="bench history", expected=f"at most {MOST}"
        )
    paths.sort(key=lambda path: _natural_sort_key(path.relative_to(folder).as_posix()))
    builds = [_read_build(path, path.relative_to(folder).as_posix()) for path in paths]
    dated = [build.date for build in builds if build.date is not None]
    if len(dated) < len(builds):
        return History(tuple(builds), by_date=False)
    in_order = sorted(zip(dated, range(len(builds)), strict=True))
    return History(tuple(builds[place] for _, place in in_order), by_date=True)


def _natural_sort_key(name: str) -> list[tuple[int, int, str]]:
    """Sort key that takes digits as numbers: build-9 before build-10."""
    parts = re.findall(r"[0-9]{1,18}|[^0-9]+", name)
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts]


def _read_build(path: Path, name: str) -> Build:
    try:
        with path.open("rb") as stream:
            content = stream.read(LARGEST + 1)
    except OSError as error:
        raise DataError(f"it can't be read: {error.strerror}", where=str(path)) from error
    if len(content) > LARGEST:
        raise DataError(f"it is larger than {LARGEST >> 20} MiB", where=str(path), expected=_EXPECTED)
    try:
        data = json.loads(content.decode("utf-8"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise DataError(f"this is not JSON: {error}", where=str(path), expected=_EXPECTED) from error
    if isinstance(data, dict) and is_whole_number(data.get("format")) and data["format"] > FORMAT:
        raise DataError("it was written by a newer bench", where=str(path), hint="update bench")
    if (place := find_fault(data, _SHAPE)) is not None:
        raise DataError(
            f"'{place[:80]}' is missing or has a wrong type or value",
            where=str(path),
            expected=_EXPECTED,
            hint="move other files out of the folder",
        )
    return _parse_build(data, name.removesuffix(".json"), path)


_EXPECTED = "a verdict as bench check --json writes it"


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


def _parse_build(data: Mapping[str, Any], name: str, path: Path) -> Build:
    facts = data.get("build", {})
    overall = data.get("overall")
    return Build(
        file=name,
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


def _parse_date(value: str | None, path: Path) -> datetime | None:
    """A date with its time in UTC; one without a zone is taken as UTC."""
    if value is None:
        return None
    try:
        found = datetime.fromisoformat(value)
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise DataError(
            f"'{value[:40]}' is no date",
            where=str(path),
            expected="build.date in ISO 8601, such as 2026-01-31T12:00:00+00:00",
        ) from error


def _parse_verdict(facts: Mapping[str, Any]) -> CellVerdict:
    seeds, new_seeds = (tuple(facts[name]) for name in ("seeds", "new_seeds"))
    names = ("reference", "new", "low", "high", "p", "adjusted_p")
    drops = {task: Drop(**{name: drop.get(name) for name in names}) for task, drop in facts["drops"].items()}
    given = facts.get("question")
    return CellVerdict(
        (facts["profile"], facts["method"], facts["suite"]),
        Status(facts["status"]),
        seeds,
        new_seeds,
        drops,
        facts.get("test"),
        facts.get("limit"),
        tuple(facts["reasons"]),
        Question(given) if given is not None else _infer_question(seeds),
        facts.get("stage"),
        facts.get("sees"),
    )


def _infer_question(seeds: Seeds) -> Question:
    """What a cell of a format without questions answered."""
    return Question.RECOMPUTE if None in seeds else Question.RETRAIN


def _one_of(*allowed: object) -> Any:
    return lambda value: isinstance(value, str | int) and not isinstance(value, bool) and value in allowed


def _is_score(value: Any) -> bool:
    """True for a correlation or an accuracy, with room for rounding."""
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
    },
)
