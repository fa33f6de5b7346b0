"""What a campaign planned before its results, what is missing of it, and what is there besides, in words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from bench.comparison.selection import format_seeds, group_by
from bench.records.imported import is_imported
from bench.records.record import RunRecord
from bench.records.sealed_plan import PlannedCell, SealedPlan, find_foreign_plans, review_plan

if TYPE_CHECKING:
    from pandas import DataFrame

    from bench.reports.campaign import Campaign

NO_PLAN = "No plan precedes these runs (bench run --plan)."
PLANNED, MISSING, BESIDE = "Planned", "Planned, but missing:", "Beside the plan:"
EARLY = "Planned, but made without the plan, or before it was sealed:"
"""How notes on a plan begin."""
_POINTS, _MOST_NAMES = 100, 12
_PLACE = ["campaign", "profile", "method", "seed", "suite"]
Show = Callable[[str], str]


def describe_plan(plan: SealedPlan, show: Show = str) -> str:
    """Return a plan in one line: its date, identity, runs and tests."""
    date = plan.sealed[:16].replace("T", " ")
    margin = f"margin {_POINTS * plan.margin:g}"
    tests = f"against {show(plan.baseline)}" if plan.baseline and plan.family == "baseline" else "all pairs"
    methods = dict.fromkeys(cell.method for cell in plan.cells)
    runs = _list_runs(((cell.method, cell.seed) for cell in plan.cells), show)
    if len(methods) > _MOST_NAMES:
        seeds = sorted({cell.seed for cell in plan.cells if cell.seed is not None})
        runs = f"{len(methods)} methods" + (f", {format_seeds(seeds)}" if seeds else "")
    suites = ", ".join(dict.fromkeys(cell.suite for cell in plan.cells))
    return (
        f"{PLANNED} {date} UTC (sha256 {plan.identity[:12]}): {runs}; on {suites}; tests {tests}, {margin}."
    )


def review_lines(
    plan: SealedPlan,
    records: Sequence[RunRecord],
    cells: Sequence[PlannedCell] | None = None,
    show: Show = str,
) -> list[str]:
    """Return what is missing of a plan, or of some of its cells, and the records that it doesn't explain."""
    review = review_plan(plan, records, cells)
    lines = []
    if review.missing:
        lines.append(f"{MISSING} {_list_runs(((cell.method, cell.seed) for cell in review.missing), show)}.")
    elif not review.changed and not review.early:
        lines.append("No planned run is missing.")
    if review.beside:
        lines.append(f"{BESIDE} {_list_records(review.beside, show)}.")
    else:
        lines.append("No run is beside the plan.")
    if review.changed:
        lines.append(f"Not as planned, by their keys: {_list_records(review.changed, show)}.")
    if review.early:
        lines.append(f"{EARLY} {_list_records(review.early, show)}.")
    return lines


def campaign_plan_lines(plan: SealedPlan | None, records: Sequence[RunRecord]) -> list[str]:
    """Return the whole plan of a campaign and its review, or that there is none."""
    foreign = list(find_foreign_plans(plan, records))
    lines = [f"Made under another plan, which is not here: {_list_records(foreign, str)}."] if foreign else []
    if plan is None:
        return lines or [NO_PLAN]
    return [describe_plan(plan), *review_lines(plan, records), *lines]


def plan_notes(campaign: Campaign, records: Sequence[RunRecord]) -> list[str]:
    """Return the notes on the plans of the table of one profile and suite."""
    notes: list[str] = []
    for store in campaign.stores if campaign.whole else ():
        plan = campaign.plans.get(store.campaign)
        own = [record for record in records if campaign.home(record) == store]
        lines = list(_table_lines(campaign, plan, own, records[0]))
        notes += [f"{store.campaign}: {line}" for line in lines] if campaign.several else lines
    return list(dict.fromkeys(notes))


def add_planned_column(frame: DataFrame, campaign: Campaign) -> DataFrame:
    """Return a frame of records with the column "planned", and a row of status "missing" a planned run.

    A record of a planned run counts as planned if it has the planned key, and was made under the plan.
    """
    from pandas import DataFrame, concat, isna

    rows, apart = [], set[tuple[Any, ...]]()
    planned = dict[tuple[Any, ...], None]()
    for store in campaign.stores:
        plan = campaign.plans.get(store.campaign)
        if plan is None:
            continue
        own = [record for record in campaign.records if campaign.home(record) == store]
        cells = [cell for cell in plan.cells if _is_asked_for(campaign, cell)]
        review = review_plan(plan, own, cells)
        planned |= {(store.campaign, *_list_place(cell)): None for cell in cells}
        apart |= {(store.campaign, *_list_place(record)) for record in (*review.changed, *review.early)}
    places = []
    for row in frame[_PLACE].itertuples(index=False):
        places.append(tuple(None if isna(value) else value for value in row))
    for place in planned:
        if place not in places:
            rows.append({**dict(zip(_PLACE, place, strict=True)), "status": "missing"})
    states = [place in planned and place not in apart for place in places] + [True] * len(rows)
    missing = DataFrame(rows, columns=list(frame.columns)).astype(frame.dtypes.to_dict())
    whole = concat([frame, missing], ignore_index=True) if rows else frame
    return whole.assign(planned=states)


def _list_place(of: PlannedCell | RunRecord) -> tuple[Any, ...]:
    return of.profile, of.method, of.seed, of.suite


def _is_asked_for(campaign: Campaign, cell: PlannedCell) -> bool:
    """Return whether a report is of the profile, suite and method of a planned run."""
    profile, suite = campaign.chosen
    asked = profile in (None, cell.profile) and suite in (None, cell.suite)
    return asked and (not campaign.named or cell.method in campaign.named)


def _table_lines(
    campaign: Campaign, plan: SealedPlan | None, own: Sequence[RunRecord], of: RunRecord
) -> Iterator[str]:
    foreign = list(find_foreign_plans(plan, own))
    if foreign:
        named = _list_records(foreign, campaign.shown)
        yield f"Made under another plan, which is not here: {named}."
    if plan is None:
        if not foreign and not all(map(is_imported, own)):
            yield NO_PLAN
        return
    asked = [cell for cell in plan.cells if _is_asked_for(campaign, cell)]
    cells = [cell for cell in asked if (cell.profile, cell.suite) == (of.profile, of.suite)]
    yield describe_plan(plan, campaign.shown)
    yield from review_lines(plan, own, cells, campaign.shown)
    tables = {(record.profile, record.suite) for record in campaign.records}
    without = [cell for cell in asked if (cell.profile, cell.suite) not in tables]
    for suite, lacking in group_by(without, lambda cell: cell.suite).items():
        runs = _list_runs(((cell.method, cell.seed) for cell in lacking), campaign.shown)
        yield f"{MISSING} all of {suite}, {runs}."
    yield from _test_differences(campaign, plan, own)


def _test_differences(campaign: Campaign, plan: SealedPlan, own: Sequence[RunRecord]) -> Iterator[str]:
    """Yield the tests of a report that are not the planned ones."""
    differences = []
    if review_plan(plan, own).beside:  # they count in means, tests and corrections
        differences.append("with runs beside the plan")
    if campaign.margin != plan.margin:
        differences.append(f"margin {_POINTS * campaign.margin:g}")
    if campaign.baseline not in (None, plan.baseline):
        differences.append(f"baseline {campaign.shown(str(campaign.baseline))}")
    if campaign.family_kind not in (None, plan.family):
        kind = "all pairs" if campaign.family_kind == "all" else "against the baseline"
        differences.append(f"tests {kind}")
    if campaign.rank_supervised:
        differences.append("supervised rows ranked")
    if campaign.last:
        differences.append("the last checkpoint")
    if campaign.rounded:
        differences.append("rounded scores")
    if campaign.named:
        differences.append("methods chosen by --methods")
    if differences:
        yield f"Not the planned analysis: {', '.join(differences)}."


def _list_records(records: Iterable[RunRecord], show: Show) -> str:
    return _list_runs(((record.method, record.seed) for record in records), show)


def _list_runs(runs: Iterable[tuple[str, int | None]], show: Show) -> str:
    """Return methods with their seeds; methods of the same seeds together."""
    by_seeds: dict[tuple[int, ...], list[str]] = {}
    for method, own in group_by(runs, lambda run: run[0]).items():
        seeds = tuple(sorted({seed for _, seed in own if seed is not None}))
        by_seeds.setdefault(seeds, []).append(show(method))
    parts = []
    for seeds, methods in by_seeds.items():
        parts.append(", ".join(methods) + (f" {format_seeds(seeds)}" if seeds else ""))
    return "; ".join(parts)
