"""Seal the plan of a campaign before its first result."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock, Timeout

from bench.comparison.method_family import DEFAULT_BASELINE
from bench.comparison.row_lookup import find_row, search_rows
from bench.comparison.selection import format_seeds, group_by
from bench.errors import InputError, NotComparableError, StorageError
from bench.plan.plan import Plan
from bench.records.filesystem import write_atomically
from bench.records.sealed_plan import FILE, PlannedCell, SealedPlan, load_plan, plan_to_json
from bench.records.store import ResultStore
from bench.version import __version__

_PATIENCE = 10.0  # seconds to wait for another process that seals
_OTHER = "name another --campaign"


def propose_plan(plan: Plan, baseline: str | None, family: str | None, margin: float) -> SealedPlan:
    """Return the plan of a whole run, to be sealed now.

    Args:
        plan: The run.
        baseline: Method id; None for simcse if two seeds of it are planned.
        family: "baseline" or "all"; None for the first, if there is a baseline.
        margin: In the metric's unit.

    Raises:
        InputError: a baseline that isn't planned, or a family that lacks one.
    """
    rows = list(dict.fromkeys(job.cell.method for job in plan.jobs))
    records = [job.record for job in plan.jobs]
    if baseline is not None:
        row = find_row(baseline, rows, records, where="--baseline")
    else:
        default = search_rows(DEFAULT_BASELINE, rows, records)
        row = default[0] if len(default) == 1 else DEFAULT_BASELINE
    seeds = {job.cell.seed for job in plan.jobs if job.cell.method == row}
    baseline = row if baseline is not None or len(seeds) > 1 else None
    if family == "baseline" and baseline is None:
        what = "no baseline is planned"
        raise InputError(what, where="--family baseline", expected="--baseline METHOD as well")
    cells = [PlannedCell(**asdict(job.place), key=job.key) for job in plan.jobs]
    kind = family or ("baseline" if baseline else "all")
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return SealedPlan(tuple(cells), baseline, kind, margin, now, __version__)


def seal_plan(store: ResultStore, proposed: SealedPlan) -> SealedPlan:
    """Write a plan into its campaign's folder; return it, or the equal plan that was sealed there before.

    Raises:
        InputError: the campaign has records, so that the plan would come after results.
        NotComparableError: another plan is sealed there.
        StorageError: the file can't be written.
    """
    store.prepare()
    path = store.root / FILE
    try:
        with FileLock(store.root / ".locks" / f"{FILE}.lock", timeout=_PATIENCE):
            sealed = load_plan(store.root)
            records = [file for file in store.root.glob("*/*/*/*.json") if not file.name.startswith(".")]
            if sealed is None and records:
                what = f"{len(records):,} records are here already: a plan comes before results"
                raise InputError(what, where=f"--plan, {store.root}", hint=_OTHER)
            if sealed is not None:
                check_equal_plans(sealed, proposed, path, has_records=bool(records))
                return sealed
            write_atomically(path, plan_to_json(proposed).encode("utf-8"))
    except Timeout as error:
        raise StorageError("another process is sealing a plan", where=str(path), hint="try again") from error
    except (OSError, NotImplementedError) as error:
        reason = getattr(error, "strerror", None) or error
        raise StorageError(f"the plan can't be written: {reason}", where=str(path)) from error
    return proposed


def check_equal_plans(sealed: SealedPlan, other: SealedPlan, path: Path, *, has_records: bool = True) -> None:
    """Raise NotComparableError for another plan than the sealed one, with their differences."""
    if sealed.identity == other.identity:
        return
    tests = []
    for name in ("baseline", "family", "margin"):
        was, now = getattr(sealed, name), getattr(other, name)
        if was != now:
            tests.append(f"{name} {_format_setting(was)} there, {_format_setting(now)} here")
    # keys of equal runs differ where an option, a text or a version does
    before, after = set(sealed.cells), set(other.cells)
    cells = [
        f"{text} only {where}"
        for text, where in (
            (describe_cells(cell for cell in sealed.cells if cell not in after), "there"),
            (describe_cells(cell for cell in other.cells if cell not in before), "here"),
        )
        if text
    ]
    what = f"another plan is sealed there: {'; '.join([*cells, *tests])}"
    hint = _OTHER if has_records else f"delete it, as it has no results yet, or {_OTHER}"
    raise NotComparableError(what, where=str(path), hint=hint)


def _format_setting(value: str | float | None) -> str:
    """Return a setting as the command line takes it: margins in points."""
    return f"{100 * value:g}" if isinstance(value, float) else value or "none"


def describe_cells(cells: Iterable[PlannedCell]) -> str:
    """Return runs in words, such as "simcse seeds 1-3 on mini, untrained on mini"."""
    parts = []
    for (method, suite), of_method in group_by(cells, lambda cell: (cell.method, cell.suite)).items():
        seeds = sorted({cell.seed for cell in of_method if cell.seed is not None})
        parts.append(f"{method}{f' {format_seeds(seeds)}' if seeds else ''} on {suite}")
    return ", ".join(parts)
