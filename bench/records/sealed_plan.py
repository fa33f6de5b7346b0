"""The plan of a campaign: methods, seeds, suites and tests, sealed in its folder before the first result.

``results/CAMPAIGN/plan.json`` lists the cells with the keys that their records will have. The seal guards
against damage. It can be computed again with another date: only a copy of the identity that others hold from
before, such as a commit or a message, proves when the plan was made.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from bench.errors import DataError
from bench.records.filesystem import read_regular_file
from bench.records.record import RecordPlace, RunRecord
from bench.schema import Block, ListOf, Maybe, find_fault, is_count, is_label, is_number

FILE = "plan.json"
SCHEMA = 1
FAMILIES = ("baseline", "all")
_HINT = "restore the file that was sealed, or move it and the records of its campaign away"
_CELL = Block(
    {"profile": is_label, "method": is_label, "seed": Maybe(is_count), "suite": is_label, "key": is_label},
    closed=True,
)
_PLAN = Block(
    {
        "schema": is_count,
        "bench": is_label,
        "sealed": is_label,
        "cells": ListOf(_CELL, least=1),
        "baseline": Maybe(is_label),
        "family": is_label,
        "margin": is_number,
        "sha256": is_label,
    },
    closed=True,
)


@dataclass(frozen=True)
class PlannedCell:
    """A run on a suite: the place and the key of its record."""

    profile: str
    method: str
    seed: int | None
    suite: str
    key: str

    @property
    def place(self) -> RecordPlace:
        """Place of its record."""
        return RecordPlace(self.profile, self.method, self.seed, self.suite)


@dataclass(frozen=True)
class SealedPlan:
    """A plan.

    Args:
        cells: The planned runs, in their order.
        baseline: Row that the others are compared with, if any.
        family: One of FAMILIES: rows against the baseline, or all pairs.
        margin: Largest difference that counts as none, in the metric's unit.
        sealed: Date and time in UTC, ISO 8601.
        bench: Version of the program.
    """

    cells: tuple[PlannedCell, ...]
    baseline: str | None
    family: str
    margin: float
    sealed: str
    bench: str

    @property
    def identity(self) -> str:
        """sha256 of what is planned, without date and version: records made under the plan name it."""
        return _hash_json(_plan_facts(replace(self, sealed="", bench="")))


@dataclass(frozen=True)
class PlanReview:
    """What became of a plan, as far as the records show.

    Args:
        missing: Planned runs without a finished record.
        beside: Finished records of no planned run.
        changed: Finished records of planned runs under another specification.
        early: Finished records of planned runs that don't name the plan, or started before it was sealed.
    """

    missing: tuple[PlannedCell, ...] = ()
    beside: tuple[RunRecord, ...] = ()
    changed: tuple[RunRecord, ...] = ()
    early: tuple[RunRecord, ...] = ()


def review_plan(
    plan: SealedPlan, records: Iterable[RunRecord], cells: Sequence[PlannedCell] | None = None
) -> PlanReview:
    """Compare a plan, or some of its cells, with the records of its campaign, or with those of a table."""
    planned = {cell.place: cell for cell in (plan.cells if cells is None else cells)}
    done = {record.place: record for record in records if record.status == "ok"}
    missing = tuple(cell for place, cell in planned.items() if place not in done)
    beside = tuple(record for place, record in done.items() if place not in planned)
    held = [(planned[place], record) for place, record in done.items() if place in planned]
    changed = tuple(record for cell, record in held if record.key != cell.key)
    early = tuple(record for _, record in held if _precedes_plan(plan, record))
    return PlanReview(missing, beside, changed, early)


def _precedes_plan(plan: SealedPlan, record: RunRecord) -> bool:
    """Return whether a record doesn't name the plan, or started before it."""
    if record.timing.get("plan") != plan.identity:
        return True
    started = _parse_time(str(record.timing.get("started", "")))
    sealed = _parse_time(plan.sealed)
    return started is None or sealed is None or started < sealed


def _parse_time(text: str) -> datetime | None:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return time if time.tzinfo is not None else None


def find_foreign_plans(plan: SealedPlan | None, records: Iterable[RunRecord]) -> Iterator[RunRecord]:
    """Yield the records that name another plan than their campaign's: it was replaced or removed."""
    identity = plan.identity if plan else None
    for record in records:
        named = record.timing.get("plan")
        if named is not None and named != identity:
            yield record


def load_plan(campaign: Path) -> SealedPlan | None:
    """Return the plan in a campaign's folder, if there is one; raises DataError for a damaged file."""
    path = campaign / FILE
    if not path.is_symlink() and not path.exists():
        return None
    try:
        if path.is_symlink():
            raise ValueError("it is a link")
        return parse_plan(read_regular_file(path))
    except (OSError, ValueError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or error
        what = f"this plan can't be used: {reason}"
        raise DataError(what, where=str(path), hint=_HINT) from error


def parse_plan(content: bytes) -> SealedPlan:
    """Return the plan in a file's content; raises ValueError for another content, or a broken seal."""
    data = json.loads(content.decode("utf-8"))
    schema = data.get("schema") if isinstance(data, dict) else None
    if isinstance(schema, int) and schema > SCHEMA:
        raise ValueError(f"schema {schema} is newer than this bench: upgrade cse-bench")
    if place := find_fault(data, _PLAN):
        raise ValueError(f"'{place}' is missing, unknown or isn't what it should be")
    cells = tuple(PlannedCell(**cell) for cell in data["cells"])
    values = {name: data[name] for name in ("baseline", "family", "margin", "sealed", "bench")}
    plan = SealedPlan(cells, **values)
    if len({cell.place for cell in cells}) < len(cells):
        raise ValueError("a run stands in it twice")
    if plan.family not in FAMILIES or not 0 < plan.margin <= 1 or _parse_time(plan.sealed) is None:
        raise ValueError("its family, margin or date isn't what it should be")
    if plan_to_json(plan).encode("utf-8") != content.replace(b"\r\n", b"\n"):
        raise ValueError("it was changed since it was sealed")
    return plan


def plan_to_json(plan: SealedPlan) -> str:
    """Return the text of a plan's file, with its seal."""
    facts = _plan_facts(plan)
    return (
        json.dumps(facts | {"sha256": _hash_json(facts)}, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    )


def _plan_facts(plan: SealedPlan) -> dict[str, Any]:
    return {"schema": SCHEMA, **asdict(plan)}


def _hash_json(facts: dict[str, Any]) -> str:
    text = json.dumps(facts, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()
