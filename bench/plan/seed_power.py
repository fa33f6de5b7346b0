"""Power analysis of a plan: seeds needed for a difference, and the smallest difference that seeds can show.

Equal keys of the training stages make runs of a seed pairs. The spread over seeds is given, or comes from
earlier records of the same specification.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from bench.comparison.confounders import describe_pairing
from bench.comparison.item_bootstrap import CampaignRun
from bench.comparison.method_family import choose_plain_rows, find_default_baseline
from bench.comparison.selection import Group, group_by, sort_runs_by_seed
from bench.errors import DataError, NewerRecordError, UnreadableRecordError
from bench.eval.recomputation import ScoreChecker, open_checker
from bench.plan.job import Job
from bench.plan.plan import Plan
from bench.records.fingerprint import SPECIFICATION, find_fact_differences
from bench.records.record import is_supervised
from bench.records.store import ResultStore
from bench.stats.seed_design import common_seeds
from bench.stats.seed_planning import POWER, Range, detectable_difference, plan_seeds
from bench.stats.seed_planning import SeedPlan as SeedPlan
from bench.stats.spread import Spread, spread_of_correlated, spread_of_pairs, spread_of_sides

LEVEL = 0.95
MOST_METHODS = 5  # above this number, only pairs with the first are listed
CORRELATIONS = (0.0, 0.9, 0.99)
"""Assumed correlations of pairs where the spread is given; runs of pairs would show the true one."""
POINTS = 100.0
_SAME = tuple(fact for fact in SPECIFICATION if fact.name != "arithmetic of training")  # changes last digits


@dataclass(frozen=True)
class Outlook:
    """Power of seeds under one assumed spread, in points."""

    spread: Spread
    correlation: float | None  # assumed for pairs
    needed: SeedPlan
    shows: Range | None  # smallest true difference that the planned seeds show; None for a single seed


@dataclass(frozen=True)
class PlannedPair:
    """Two methods of a plan on a suite, with one outlook per assumed spread."""

    profile: str
    suite: str
    first: str
    second: str
    shared: str | None  # what makes their runs of a seed pairs; None for independent runs
    seeds: int
    outlooks: tuple[Outlook, ...] = ()
    source: str | None = None  # campaign of the spread; None for a given one
    reason: str | None = None  # why the outlook is missing, and what to do


@dataclass(frozen=True)
class Detection:
    """Power of a plan's seeds."""

    points: float  # the wanted difference
    power: float
    level: float  # of each test, after Bonferroni over the family of one suite
    pairs: tuple[PlannedPair, ...]
    family: int  # tests of one suite's report, by its default
    baseline: str | None  # of that report; None for all pairs
    first: str | None  # listed against all others; None if all pairs of the family are listed
    aside: tuple[str, ...] = ()  # rows that the report will set aside


def plan_detection(wanted: Plan, points: float, spread: float | None = None) -> Detection:
    """Compute for pairs of a plan's methods the seeds that show ``points``, and the planned ones' power."""
    # ``spread`` is the standard deviation over seeds of each method, in points; by default it comes from
    # records of the same specification in any campaign of the results folder.
    order = list(dict.fromkeys(wanted.ids.values()))
    jobs = sorted(wanted.jobs, key=lambda job: order.index(job.place.method))
    suites = group_by(jobs, lambda job: (job.place.profile, job.suite))
    methods = [group_by(of_suite, lambda job: job.place.method) for of_suite in suites.values()]
    families = [_choose_pairs(by_method) for by_method in methods]
    size = max((family.size for family in families), default=0)
    level = 1 - (1 - LEVEL) / max(1, size)
    campaigns, checker = _list_stores(wanted), open_checker(wanted.store, wanted.spec.data)
    pairs = []
    for by_method, family in zip(methods, families, strict=True):
        for a, b in family.listed:
            pair = _MethodPair(wanted.store, by_method[a], by_method[b], checker)
            pairs.append(_plan_pair(pair, campaigns, points, spread, level))
    checker.memory.save()
    largest = max(families, key=lambda family: family.size, default=_PlannedFamily((), 0, None, None, ()))
    return Detection(points, POWER, level, tuple(pairs), size, largest.baseline, largest.first, largest.aside)


@dataclass(frozen=True)
class _PlannedFamily:
    """The tests that a report of one suite will make by default."""

    listed: tuple[tuple[str, str], ...]
    size: int
    baseline: str | None
    first: str | None
    aside: tuple[str, ...]


def _choose_pairs(by_method: Mapping[str, Sequence[Job]]) -> _PlannedFamily:
    """Choose the pairs of a suite by the rules of ``bench report``, which come before any score."""
    seeded = {}
    for method, jobs in by_method.items():
        is_tested = not is_supervised(jobs[0].record)
        seeded[method] = is_tested and any(job.record.seed is not None for job in jobs)
    chosen = choose_plain_rows(seeded) or tuple(by_method)
    rows = [row for row in chosen if not is_supervised(by_method[row][0].record)]
    aside = tuple(row for row in by_method if row not in rows)
    baseline = find_default_baseline(rows)
    if baseline is not None:
        pairs = [(row, baseline) for row in rows if row != baseline]
        return _PlannedFamily(tuple(pairs), len(pairs), baseline, None, aside)
    pairs = list(combinations(rows, 2))
    if len(rows) <= MOST_METHODS:
        return _PlannedFamily(tuple(pairs), len(pairs), None, None, aside)
    return _PlannedFamily(tuple(pairs[: len(rows) - 1]), len(pairs), None, rows[0], aside)


def _list_stores(wanted: Plan) -> list[ResultStore]:
    """Return the plan's own campaign, then all others of the results folder."""
    folder, stores = wanted.spec.results, [wanted.store]
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if path.is_dir() and not path.name.startswith(".") and path.name != wanted.store.campaign:
            stores.append(ResultStore(folder, path.name))
    return stores


class _MethodPair:
    """The jobs of two methods on a suite, as groups of planned runs."""

    def __init__(
        self, store: ResultStore, first: Sequence[Job], second: Sequence[Job], checker: ScoreChecker
    ) -> None:
        self.jobs, self.checker = (first[0], second[0]), checker
        groups = []
        for jobs in (first, second):
            runs = sort_runs_by_seed(CampaignRun(store, job.record) for job in jobs)
            groups.append(Group(jobs[0].place.method, tuple(runs)))
        self.groups = tuple(groups)
        self.shared = describe_pairing(*self.groups)
        self.seeds = max(len(group.seeds) for group in self.groups)

    def _find_pilot(self, store: ResultStore) -> list[Group] | None:
        """Return finished runs of the same specification in a campaign, if both sides have some.

        Raises DataError for scores that contradict a record's predictions.
        """
        pilot = []
        for job in self.jobs:
            try:
                records, _ = store.seeds(job.place)
            except (NewerRecordError, UnreadableRecordError):  # the pilot can do without it
                return None
            runs = []
            for record in records.values():
                if record.status == "ok" and not find_fact_differences(record, job.record, _SAME):
                    self.checker.require(store, record)
                    runs.append(CampaignRun(store, record))
            if not runs:
                return None
            pilot.append(Group(job.place.method, tuple(sort_runs_by_seed(runs))))
        return pilot

    def measure_spread(self, store: ResultStore) -> Spread | str | None:
        """Return the spread of a campaign's runs, a fault, or None for too few runs."""
        try:
            pilot = self._find_pilot(store)
        except DataError as error:
            return f"{error.where}: {error.what}"
        if pilot is None:
            return None
        if self.shared is not None:
            common = common_seeds(pilot[0].seeds, pilot[1].seeds)
            for side, (group, kept) in enumerate(zip(pilot, common, strict=True)):
                runs = tuple(run for run in group.runs if run.record.seed in kept)
                pilot[side] = Group(group.label, runs)
            if describe_pairing(*pilot) is None:
                return None
        scores = [(POINTS * np.asarray(group.scores("avg"))).tolist() for group in pilot]
        seeds = [len(side) for side, g in zip(scores, self.groups, strict=True) if not g.deterministic]
        if not seeds or min(seeds) < 2:
            return None
        try:
            spread = spread_of_pairs(*scores) if self.shared is not None else spread_of_sides(*scores)
        except ValueError as error:  # equal scores
            return str(error)
        if spread.design == "one side" and not any(group.deterministic for group in self.groups):
            return "the seeds of one side all score the same; no number of seeds can be planned from that"
        return spread


def _plan_pair(
    pair: _MethodPair, campaigns: Sequence[ResultStore], points: float, given: float | None, level: float
) -> PlannedPair:
    place = pair.jobs[0].place
    names = place.method, pair.jobs[1].place.method
    facts = (place.profile, place.suite, *names, pair.shared, pair.seeds)
    if not pair.seeds:
        return PlannedPair(*facts, reason="neither has seeds; bench compare tests them on the items")
    if given is not None:
        correlations = CORRELATIONS if pair.shared else (None,)
        spreads = [(_assumed_spread(pair, given, r), r) for r in correlations]
        return PlannedPair(*facts, tuple(_build_outlooks(spreads, pair.seeds, points, level)))
    spread, source, reason = None, None, None
    for store in campaigns:  # the largest pilot, of equal ones the first
        measured = pair.measure_spread(store)
        if isinstance(measured, Spread):
            if spread is None or (measured.pilot or 0) > (spread.pilot or 0):
                spread, source = measured, store.campaign
        elif measured is not None and reason is None:
            reason = f"{measured} (campaign {store.campaign}); name one with --spread"
    if spread is not None:
        outlooks = tuple(_build_outlooks([(spread, None)], pair.seeds, points, level))
        return PlannedPair(*facts, outlooks, source=source)
    seeds = "seeds that both have" if pair.shared else "seeds of each"
    missing = f"no earlier records of this specification with two or more {seeds}: run a few seeds first"
    missing += ", or name the standard deviation over seeds with --spread"
    return PlannedPair(*facts, reason=reason or missing)


def _assumed_spread(pair: _MethodPair, sd: float, correlation: float | None) -> Spread:
    if correlation is not None:
        return spread_of_correlated(sd, correlation)
    if any(group.deterministic for group in pair.groups):
        return Spread("one side", sd)
    return Spread("sides", sd, sd)


def _build_outlooks(
    spreads: Iterable[tuple[Spread, float | None]], seeds: int, points: float, level: float
) -> Iterator[Outlook]:
    for spread, correlation in spreads:
        shows = detectable_difference(spread, seeds, level=level) if seeds > 1 else None
        yield Outlook(spread, correlation, plan_seeds(points, spread, level=level), shows)
