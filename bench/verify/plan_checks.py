"""Verify a campaign's sealed plan, and compare it with the records."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from bench.errors import DataError
from bench.records.record import RunRecord
from bench.records.sealed_plan import FILE, find_foreign_plans, load_plan
from bench.records.timing import FIRST, SLACK
from bench.reports.planned_runs import campaign_plan_lines
from bench.verify.findings import Verification

_RESTORE = f"restore {FILE} from a copy, such as a commit or a bundle; without it readers see this finding"


def verify_plan(root: Path, base: Path, records: Mapping[str, RunRecord], verified: Verification) -> None:
    """Add what became of a campaign's plan; findings are a damaged plan, and records of another one.

    Missing runs, and runs beside the plan, are no findings: a reader has to judge them.
    """
    where = (root / FILE).relative_to(base).as_posix()
    try:
        plan = load_plan(root)
    except DataError as error:
        verified.add(where, [("plan", error.what, error.hint or "")])
        return
    if plan is not None and not FIRST <= datetime.fromisoformat(plan.sealed) <= datetime.now(UTC) + SLACK:
        what = f"it says that it was sealed on {plan.sealed}: before there was a bench, or still to come"
        verified.add(where, [("plan", what, "restore the plan as it was sealed")])
    for record in find_foreign_plans(plan, records.values()):
        name = next(name for name, other in records.items() if other is record)
        what = "it was made under another plan than the campaign's" if plan else "its plan is not here"
        verified.add(name, [("plan", what, _RESTORE)])
    verified.plans[root.name] = campaign_plan_lines(plan, list(records.values()))
