"""Drops of scores over the seeds of both sides: tests, limits and the smallest detectable drop.

The gate compares one specification with itself, so two runs of one seed are a pair, also on two machines.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from bench.errors import DataError, InputError
from bench.gate.verdict import AVERAGE, POWER, Drop, Key, Seeds, cell_name
from bench.records.fingerprint import machine_facts
from bench.records.record import ALL, RunRecord, Score
from bench.stats.argument_checks import make_generator
from bench.stats.difference_test import PAIRED, WELCH, pair_test
from bench.stats.seed_design import SeedDesign, choose_design
from bench.stats.seeds import satterthwaite, side_parts

_MIXED = "score"  # the metric of an average over several metrics


@dataclass(frozen=True)
class Sides:
    """Finished records of one cell, by seed: compared ones (``then``, ``now``) and all of both sides."""

    then: tuple[RunRecord, ...]
    now: tuple[RunRecord, ...]
    test: str | None
    reference: tuple[RunRecord, ...]
    new: tuple[RunRecord, ...]
    same_machine: bool

    @property
    def same_seeds(self) -> bool:
        """True if the runs of both sides are pairs, also a single pair."""
        return list_record_seeds(self.then) == list_record_seeds(self.now)

    @property
    def common(self) -> list[tuple[RunRecord, RunRecord]]:
        """(reference, new) of every common seed, compared or not, in the order of the seeds."""
        now = {record.seed: record for record in self.new}
        then = sort_records_by_seed(self.reference)
        return [(record, now[record.seed]) for record in then if record.seed in now]

    @property
    def has_limit(self) -> bool:
        """True if the reference's spread limits the drop; one pair from one machine needs equal bytes."""
        return len(self.reference) > 1 and not (self.test is None and self.same_machine)

    @property
    def uncertain(self) -> bool:
        """True if chance may cause the drop, so that its seeds have to show it."""
        return self.test is not None or self.has_limit


def cell_key(record: RunRecord) -> Key:
    """Return profile, method and suite."""
    return record.profile, record.method, record.suite


def sort_records_by_seed(records: Sequence[RunRecord]) -> list[RunRecord]:
    """Return the records in the order of their seeds."""
    return sorted(records, key=lambda record: -1 if record.seed is None else record.seed)


def list_record_seeds(records: Sequence[RunRecord]) -> Seeds:
    """Return the seeds, in order; None of a deterministic method."""
    return tuple(record.seed for record in sort_records_by_seed(records))


def name_run(record: RunRecord) -> str:
    """Name a run in messages."""
    return "the run" if record.seed is None else f"seed {record.seed}"


def choose_seed_design(
    then: Sequence[RunRecord], now: Sequence[RunRecord], *, pairs: bool = True
) -> SeedDesign:
    """Choose the test over both sides' seeds; ``pairs`` is False for means of unpaired runs."""
    seeds = []
    for side in (then, now):
        seeds.append([seed for seed in list_record_seeds(side) if seed is not None])
    return choose_design(*seeds, pairs=pairs, pair_subset=True)


def name_test(design: SeedDesign) -> str:
    """Return the name of the test in verdicts: "paired t" or "Welch"."""
    return PAIRED if design.paired else WELCH


def choose_sides(key: Key, then: Sequence[RunRecord], now: Sequence[RunRecord]) -> Sides:
    """Choose the compared runs of one specification, and their test, from the seeds alone."""
    design = choose_seed_design(then, now)
    used = []
    for side, seeds in zip((then, now), design.seeds, strict=True):
        ordered = sort_records_by_seed(side)
        used.append(tuple(record for record in ordered if record.seed is None or record.seed in seeds))
    test = name_test(design) if min(len(then), len(now)) > 1 else None
    if test is None and list_record_seeds(used[0]) != list_record_seeds(used[1]):
        raise InputError(
            f"{cell_name(key)} has seeds {list_record_seeds(then)} in the reference and "
            f"{list_record_seeds(now)} here",
            expected="two seeds or more on both sides, or one common seed",
        )
    machines = {tuple(machine_facts(record).items()) for side in used for record in side}
    return Sides(used[0], used[1], test, tuple(then), tuple(now), same_machine=len(machines) == 1)


def measure_drops(sides: Sides, level: float) -> dict[str, Drop]:
    """Return the tested drop of every task and, the last, of the average with its interval at this level."""
    metric = sides.then[0].metric
    tasks = [s.task for s in sides.then[0].scores if (s.subset, s.metric) == (ALL, metric)]
    drops = {}
    for task in sorted(tasks, key=lambda task: task == AVERAGE):
        was = [require_score(record, task) for record in sides.then]
        is_now = [require_score(record, task) for record in sides.now]
        drop = Drop(fmean(was), fmean(is_now))
        if sides.test is not None:
            test = pair_test(was, is_now, paired=sides.test == PAIRED, level=level)
            low, high = test.interval if task == AVERAGE and test.interval else (None, None)
            p = test.p
            if test.interval is not None and test.interval[0] == test.interval[1]:
                if sides.same_machine:  # without chance
                    p = float(drop.drop == 0)
                else:  # with chance, though unobserved: the limit decides
                    low = high = None
            drop = replace(drop, low=low, high=high, p=p)
        drops[task] = drop
    return drops


def compute_drop_limit(sides: Sides, level: float) -> float | None:
    """Return the largest drop that the reference's own spread over seeds explains; None for a single run.

    t s sqrt(1 / n_then + 1 / n_now), with s and its degrees of freedom from the reference. New runs of the
    same method exceed it by chance in at most (1 - level) / 2, for any correlation.
    """
    if not sides.has_limit:
        return None
    spread = stdev(require_score(record, AVERAGE) for record in sides.reference)
    quantile = float(stdtrit(len(sides.reference) - 1, (1 + level) / 2))
    return quantile * spread * math.sqrt(1 / len(sides.then) + 1 / len(sides.now))


def require_score(record: RunRecord, task: str) -> float:
    """Return a record's score of a task; raises DataError without one."""
    value = record.score(task)
    if value is None:
        what = f"the record of {record.method}, {name_run(record)}, has no score of {task} on {record.suite}"
        raise DataError(what, hint="run the cell again")
    return value


def average_cells(cells: Mapping[Key, Sides]) -> tuple[Key, Sides] | None:
    """Return the average over seeded cells, equal ones among them, as a cell of its own with its key.

    Each of its runs is the mean of the cells' runs of one seed. A cell needs two seeds per side to count.
    None for fewer than two cells or common seeds, and if only some cells are pairs.
    """
    seeded = []
    for sides in cells.values():
        if sides.then[0].seed is not None and min(len(sides.then), len(sides.now)) > 1:
            seeded.append(sides)
    if len(seeded) < 2 or len({sides.same_seeds for sides in seeded}) > 1:
        return None
    name = f"average of {len(seeded)} cells"
    then = _average_by_seed(name, [sides.then for sides in seeded])
    now = _average_by_seed(name, [sides.now for sides in seeded])
    reference = _average_by_seed(name, [sides.reference for sides in seeded])
    new = _average_by_seed(name, [sides.new for sides in seeded])
    if min(len(then), len(now)) < 2:
        return None
    test = name_test(choose_seed_design(then, now, pairs=seeded[0].same_seeds))
    same_machine = all(sides.same_machine for sides in seeded)
    return ("", name, ""), Sides(then, now, test, reference, new, same_machine)


def _average_by_seed(name: str, cells: Sequence[Sequence[RunRecord]]) -> tuple[RunRecord, ...]:
    """Return one record a common seed, in the order of the seeds: the mean of the cells' averages."""
    by_seed = [{record.seed: record for record in sort_records_by_seed(cell)} for cell in cells]
    common = set.intersection(*map(set, by_seed))
    averages = []
    for seed in by_seed[0]:
        if seed in common:
            averages.append(_average_records(name, [records[seed] for records in by_seed]))
    return tuple(averages)


def _average_records(name: str, records: Sequence[RunRecord]) -> RunRecord:
    metrics = {record.metric for record in records}
    values = [value for record in records if (value := record.score(AVERAGE)) is not None]
    scores: tuple[Score, ...] = ()
    if len(values) == len(records):  # otherwise the reader of the score names the missing one
        metric = metrics.pop() if len(metrics) == 1 else _MIXED
        scores = (Score(AVERAGE, ALL, metric, fmean(values), len(values)),)
    return replace(records[0], profile="", method=name, suite="", scores=scores, predictions=None)


_DRAWS = 5_000
_SEED = 1
_LEAST = 1e-70  # variance of a reference that doesn't vary, whose degrees of freedom would be 0 / 0


def smallest_detectable_drop(
    sides: Sides, level: float, tolerance: float, power: float = POWER, *, correlation: float = 0.0
) -> float | None:
    """Return the smallest true drop of a cell's average that fails the gate with a chance of ``power``.

    For a deterministic cell it is the tolerance; None for a reference with a single seed. For a seeded one
    new runs are drawn with the reference's spread on both sides, and the gate's own rule is applied to each
    draw. A draw fails from some true drop on, and the result is the quantile of these. The reference's mean
    and spread are drawn as well (of a normal distribution, with the prior 1 / sigma). ``correlation`` is that
    of both runs of a seed, in [0, 1); 0 is the worst case.
    """
    if not 0 < power < 1 or not 0 <= correlation < 1:
        raise ValueError(f"power={power}, correlation={correlation}; expected (0, 1) and [0, 1)")
    if sides.then[0].seed is None:
        return tolerance
    if len(sides.reference) < 2:
        return None
    if sides.test is None and min(len(sides.then), len(sides.now)) > 1:  # equal bytes had no test
        sides = replace(sides, test=name_test(choose_seed_design(sides.then, sides.now)))
    drawn, errors = _simulate_drops(sides, level, correlation)
    bounds = [bound for bound in (errors, compute_drop_limit(sides, level)) if bound is not None]
    needed = np.minimum.reduce(np.broadcast_arrays(*bounds)) if bounds else 0.0
    return max(tolerance, float(np.quantile(np.maximum(needed, tolerance) - drawn, power)))


def _simulate_drops(
    sides: Sides, level: float, correlation: float
) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
    """Draw drops of unchanged new runs, and half the width of their intervals if there is a test."""
    rng, new = make_generator(_SEED, "sight"), len(sides.now)
    then = np.array([record.score(AVERAGE) for record in sides.then], dtype=np.float64)
    reference = np.array([record.score(AVERAGE) for record in sides.reference], dtype=np.float64)
    freedom = len(reference) - 1
    sigma = reference.std(ddof=1) * np.sqrt(freedom / rng.chisquare(freedom, (_DRAWS, 1)))
    mean = reference.mean() + sigma * rng.normal(size=(_DRAWS, 1)) / math.sqrt(len(reference))
    noise = sigma * rng.normal(size=(_DRAWS, new))
    if sides.same_seeds:
        now = mean + correlation * (then - mean) + math.sqrt(1 - correlation**2) * noise
    else:
        now = mean + noise
    drawn = then.mean() - now.mean(axis=1)
    if sides.test is None:
        return drawn, None
    if sides.test == PAIRED:
        variance = (then - now).var(axis=1, ddof=1) / new
        degrees: float | NDArray[np.float64] = new - 1
    else:
        was = np.full(_DRAWS, max(then.var(ddof=1) / len(then), _LEAST))
        is_now = now.var(axis=1, ddof=1) / new
        variance = was + is_now
        degrees = satterthwaite(side_parts((was, len(then) - 1), (is_now, new - 1)))
    return drawn, stdtrit(degrees, (1 + level) / 2) * np.sqrt(variance)
