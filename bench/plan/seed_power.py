"""Before a campaign: how many seeds would show a difference, and the smallest that the planned seeds show.

Which methods' runs are pairs is known from the plan: from the keys of the stages that are to be trained. How
far seeds spread is not; it comes from earlier records of the same specification, or is given.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from bench.comparison.confounders import describe_pairing
from bench.comparison.item_bootstrap import CampaignRun
from bench.comparison.selection import Group, group_by, sort_runs_by_seed
from bench.errors import NewerRecordError, UnreadableRecordError
from bench.plan.job import Job
from bench.plan.plan import Plan
from bench.records.fingerprint import SPECIFICATION, find_fact_differences
from bench.records.store import ResultStore
from bench.stats.planning import POWER, Range, detectable_difference, plan_seeds
from bench.stats.planning import SeedPlan as SeedPlan
from bench.stats.seed_design import common_seeds
from bench.stats.spread import Spread, spread_of_correlated, spread_of_pairs, spread_of_sides

LEVEL = 0.95
MOST_METHODS = 5
"""Of more methods, only the first is planned against each other."""
CORRELATIONS = (0.0, 0.9, 0.99)
"""Of the pairs, where a spread is given: what it is shows only when pairs have run."""
POINTS = 100.0
_SAME = tuple(fact for fact in SPECIFICATION if fact.name != "arithmetic of training")  # it moves last digits


@dataclass(frozen=True)
class Outlook:
    """What seeds can show under one assumption on their spread; in points.

    Args:
        spread: The spread.
        correlation: Of the pairs, where it is assumed.
        needed: How many seeds, or pairs, show the difference asked for.
        shows: The smallest true difference that the planned seeds show; None of a single seed.
    """

    spread: Spread
    correlation: float | None
    needed: SeedPlan
    shows: Range | None


@dataclass(frozen=True)
class PlannedPair:
    """Two methods of a plan on a suite.

    Args:
        profile: Profile.
        suite: Suite.
        first: One method's id.
        second: The other's.
        shared: What makes their runs of a seed pairs; None where nothing does.
        seeds: How many are planned.
        outlooks: One, or one for each correlation; none where the reason says why.
        source: The campaign that the spread is from; None where it is given.
        reason: Why there is no outlook, and what to do.
    """

    profile: str
    suite: str
    first: str
    second: str
    shared: str | None
    seeds: int
    outlooks: tuple[Outlook, ...] = ()
    source: str | None = None
    reason: str | None = None


@dataclass(frozen=True)
class Detection:
    """What a plan's seeds can show.

    Args:
        points: The difference asked for.
        power: The chance to show it.
        level: Confidence of each test, after Bonferroni over the pairs of one suite.
        pairs: Pairs of methods, suite by suite.
        family: Pairs of methods of one suite.
        first: The method that alone was planned against the others, where there are many; else None.
    """

    points: float
    power: float
    level: float
    pairs: tuple[PlannedPair, ...]
    family: int
    first: str | None


def plan_detection(wanted: Plan, points: float, spread: float | None = None) -> Detection:
    """Say for the methods of a plan how many seeds show a difference, and what the planned ones show.

    Args:
        wanted: The plan.
        points: The true difference to show, in points.
        spread: Standard deviation over seeds of each method, in points; None to take it from finished records
            of the same specification in any campaign of the results folder.

    """
    order = list(dict.fromkeys(wanted.ids.values()))
    jobs = sorted(wanted.jobs, key=lambda job: order.index(job.place.method))
    suites = group_by(jobs, lambda job: (job.place.profile, job.suite))
    methods = [group_by(of_suite, lambda job: job.place.method) for of_suite in suites.values()]
    each = [_method_pairs(list(by_method)) for by_method in methods]
    family = max(map(len, each), default=0)
    level = 1 - (1 - LEVEL) / max(1, family)
    campaigns = _list_stores(wanted)
    found = [
        _plan_pair(_MethodPair(wanted.store, by_method[a], by_method[b]), campaigns, points, spread, level)
        for by_method, pairs in zip(methods, each, strict=True)
        for a, b in pairs
    ]
    first = order[0] if any(len(by_method) > MOST_METHODS for by_method in methods) else None
    return Detection(points, POWER, level, tuple(found), family, first)


def _method_pairs(methods: Sequence[str]) -> list[tuple[str, str]]:
    found = list(combinations(methods, 2))
    return found if len(methods) <= MOST_METHODS else found[: len(methods) - 1]


def _list_stores(wanted: Plan) -> list[ResultStore]:
    """The plan's own campaign first, then all others of the results folder."""
    folder, own = wanted.spec.results, wanted.store.campaign
    names = sorted(path.name for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []
    others = (name for name in names if name != own and not name.startswith("."))
    return [wanted.store, *(ResultStore(folder, name) for name in others)]


class _MethodPair:
    """The jobs of two methods on a suite, as groups of runs that are still to come."""

    def __init__(self, store: ResultStore, first: Sequence[Job], second: Sequence[Job]) -> None:
        self.jobs = first[0], second[0]
        self.groups = tuple(
            Group(
                jobs[0].place.method, tuple(sort_runs_by_seed(CampaignRun(store, job.record) for job in jobs))
            )
            for jobs in (first, second)
        )
        self.shared = describe_pairing(*self.groups)
        self.seeds = max(len(group.seeds) for group in self.groups)

    def pilot(self, store: ResultStore) -> list[Group] | None:
        """Finished runs of both in a campaign, of the jobs' specification; None where a side has none."""
        found = []
        for job in self.jobs:
            try:
                records, _ = store.seeds(job.place)
            except (NewerRecordError, UnreadableRecordError):  # it can't be read here, and need not be
                return None
            runs = [
                CampaignRun(store, record)
                for record in records.values()
                if record.status == "ok" and not find_fact_differences(record, job.record, _SAME)
            ]
            if not runs:
                return None
            found.append(Group(job.place.method, tuple(sort_runs_by_seed(runs))))
        return found

    def spread(self, store: ResultStore) -> Spread | str | None:
        """The spread of a campaign's finished runs, why they have none, or None where they are too few."""
        pilot = self.pilot(store)
        if pilot is None:
            return None
        if self.shared is not None:
            pilot = _keep_common_seeds(pilot)
            if describe_pairing(*pilot) is None:
                return None
        scores = [[POINTS * score for score in group.scores("avg")] for group in pilot]
        known = [len(one) for one, group in zip(scores, self.groups, strict=True) if not group.deterministic]
        if not known or min(known) < 2:
            return None
        try:
            found = spread_of_pairs(*scores) if self.shared is not None else spread_of_sides(*scores)
        except ValueError as error:  # equal scores
            return str(error)
        if found.design == "one side" and not any(group.deterministic for group in self.groups):
            return "the seeds of one side all score the same; no number of seeds can be planned from that"
        return found


def _keep_common_seeds(pilot: Sequence[Group]) -> list[Group]:
    common = common_seeds(pilot[0].seeds, pilot[1].seeds)
    return [
        Group(group.label, tuple(run for run in group.runs if run.record.seed in seeds))
        for group, seeds in zip(pilot, common, strict=True)
    ]


def _plan_pair(
    two: _MethodPair, campaigns: Sequence[ResultStore], points: float, given: float | None, level: float
) -> PlannedPair:
    """Plan one pair of methods."""
    place = two.jobs[0].place
    names = place.method, two.jobs[1].place.method
    facts = (place.profile, place.suite, *names, two.shared, two.seeds)
    if not two.seeds:
        return PlannedPair(*facts, reason="neither has seeds; bench compare tests them on the items")
    if given is not None:
        spreads = [(_assumed_spread(two, given, r), r) for r in (CORRELATIONS if two.shared else (None,))]
        return PlannedPair(*facts, tuple(_build_outlooks(spreads, two.seeds, points, level)))
    found = [(store, spread) for store in campaigns if (spread := two.spread(store)) is not None]
    known = [(store, spread) for store, spread in found if isinstance(spread, Spread)]
    if known:  # the largest pilot, of equal ones the first
        store, spread = max(known, key=lambda one: one[1].pilot or 0)
        return PlannedPair(
            *facts, tuple(_build_outlooks([(spread, None)], two.seeds, points, level)), source=store.campaign
        )
    if found:
        store, why = found[0]
        return PlannedPair(*facts, reason=f"{why} (campaign {store.campaign}); name one with --spread")
    what = "seeds that both have" if two.shared else "seeds of each"
    return PlannedPair(
        *facts,
        reason=f"no earlier records of this specification with two or more {what}: run a few seeds first, or "
        "name the standard deviation over seeds with --spread",
    )


def _assumed_spread(two: _MethodPair, sd: float, correlation: float | None) -> Spread:
    if correlation is not None:
        return spread_of_correlated(sd, correlation)
    if any(group.deterministic for group in two.groups):
        return Spread("one side", sd)
    return Spread("sides", sd, sd)


def _build_outlooks(
    spreads: Iterable[tuple[Spread, float | None]], seeds: int, points: float, level: float
) -> Iterator[Outlook]:
    for spread, correlation in spreads:
        shows = detectable_difference(spread, seeds, level=level) if seeds > 1 else None
        yield Outlook(spread, correlation, plan_seeds(points, spread, level=level), shows)
