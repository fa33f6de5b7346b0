"""``bench check``'s decision: new records against a reference, cell by cell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev

from bench.errors import DataError, InputError, NotComparableError
from bench.gate.verdict import AVERAGE, CellVerdict, Drop, Gate, Key, Seeds, Status, cell_name
from bench.records.facts import BREAKING, differing, family_of, machine, machine_warnings, same_result
from bench.records.record import ALL, RunRecord
from bench.stats.correction import holm
from bench.stats.seeds import welch

SPREADS = 3
"""Standard deviations of the reference's seeds that a repetition may fall by."""


@dataclass(frozen=True)
class _Pair:
    """Finished records of one cell that are compared; only ``tested`` ones have an interval."""

    then: list[RunRecord]
    now: list[RunRecord]
    tested: bool
    same_machine: bool


def judge(
    reference: Sequence[RunRecord],
    new: Sequence[RunRecord],
    *,
    tolerance: float = 0.005,
    level: float = 0.95,
    repeated: bool = False,
) -> Gate:
    """Compare new records with a reference.

    A cell regresses where its average falls by more than the tolerance and the lower end of Welch's interval
    of the drop is above 0; the intervals hold together (Bonferroni over the cells that changed at all). A
    deterministic method, and one with a single seed on a side, has no interval: the tolerance alone decides,
    on the seeds that both sides have. Tasks are tested too (Holm over all of them), and decide
    nothing.

    A repetition should give equal bytes on equal versions and CPU. Where it doesn't, it regresses as above,
    or where it falls by more than three standard deviations of the reference's seeds: a broken method often
    spreads too widely for Welch. On other versions or another CPU that alone counts.

    Args:
        reference: Finished records.
        new: The new ones, failed ones among them; those of other cells are named, not compared.
        tolerance: In the metric's unit.
        level: Confidence level of the averages' intervals, all together.
        repeated: The new records repeat the reference's specification seed by seed.

    Raises:
        NotComparableError: the reference's own seeds have different specifications.
        InputError: a single seed on a side that the other side hasn't.
        DataError: a finished record that lacks a score.
    """
    then, now = _by_cell(reference), _by_cell(new)
    cells: dict[Key, CellVerdict] = {}
    pairs: dict[Key, _Pair] = {}
    for key, records in then.items():
        settled = _settled(key, records, now.get(key, []), repeated)
        if settled is None:
            pairs[key] = _pair(key, records, now[key])
        else:
            cells[key] = settled
    tested = sum(pair.tested for pair in pairs.values())
    drops = {key: _drops(pair, 1 - (1 - level) / tested if tested else level) for key, pair in pairs.items()}
    _add_holm(drops)
    for key, found in drops.items():
        cells[key] = _decided(key, pairs[key], found, tolerance, repeated)
    warnings = machine_warnings(
        [record for key in then if key in now for record in then[key]],
        [record for key in then for record in _finished(now.get(key, []))],
    )
    if extra := sorted(now.keys() - then.keys()):
        warnings += (f"not in the reference: {', '.join(cell_name(key) for key in extra)}",)
    return Gate(tuple(cells[key] for key in sorted(cells)), tolerance, level, tested, repeated, warnings)


def _by_cell(records: Sequence[RunRecord]) -> dict[Key, list[RunRecord]]:
    cells: dict[Key, list[RunRecord]] = {}
    for record in records:
        cells.setdefault((record.profile, record.method, record.suite), []).append(record)
    return cells


def _finished(records: Sequence[RunRecord]) -> list[RunRecord]:
    return [record for record in records if record.status == "ok"]


def _seeds(records: Sequence[RunRecord]) -> Seeds:
    return tuple(record.seed for record in _by_seed(records))


def _settled(key: Key, then: list[RunRecord], now: list[RunRecord], repeated: bool) -> CellVerdict | None:
    """Return the verdict where it takes no statistics, else None."""
    if len(set(map(family_of, then))) > 1:
        raise NotComparableError(
            f"the reference's seeds of {cell_name(key)} have different specifications",
            hint="run one specification in a campaign of its own",
        )
    done = _finished(now)
    seeds = _seeds(then), _seeds(done)
    if not now:
        return CellVerdict(key, Status.MISSING, *seeds, reasons=("there is no record of it",))
    if len(done) < len(now):
        broken = (record for record in now if record.status == "failed")
        reasons = tuple(f"{_run_name(record)}: {record.reason}" for record in broken)
        return CellVerdict(key, Status.FAILED, *seeds, reasons=reasons)
    if lines := [str(each) for record in done for each in differing(then[0], record, BREAKING)]:
        return CellVerdict(key, Status.DIFFERENT, *seeds, reasons=tuple(dict.fromkeys(lines)))
    if repeated and (absent := [r for r in then if r.seed not in seeds[1]]):
        reasons = tuple(f"there is no record of {_run_name(record)}" for record in absent)
        return CellVerdict(key, Status.MISSING, *seeds, reasons=reasons)
    shared = [record for record in then if record.seed in seeds[1]]
    if len(shared) == len(done) and all(map(same_result, _by_seed(shared), _by_seed(done))):
        drops = _drops(_Pair(shared, done, tested=False, same_machine=True), 0.95)
        return CellVerdict(key, Status.EQUAL, *seeds, drops=drops)
    return None


def _run_name(record: RunRecord) -> str:
    return "the run" if record.seed is None else f"seed {record.seed}"


def _by_seed(records: Sequence[RunRecord]) -> list[RunRecord]:
    return sorted(records, key=lambda record: -1 if record.seed is None else record.seed)


def _pair(key: Key, then: list[RunRecord], now: list[RunRecord]) -> _Pair:
    """Choose what is compared: all seeds with at least two on both sides, else those that both have."""
    tested = min(len(then), len(now)) > 1
    if not tested:
        common = {record.seed for record in then} & {record.seed for record in now}
        if not common:
            raise InputError(
                f"{cell_name(key)} has seeds {_seeds(then)} in the reference and {_seeds(now)} here",
                expected="two seeds or more on both sides, or one that both have",
            )
        then, now = ([record for record in side if record.seed in common] for side in (then, now))
    machines = [{tuple(machine(record).items()) for record in side} for side in (then, now)]
    return _Pair(then, now, tested, machines[0] == machines[1] and len(machines[0]) == 1)


def _drops(pair: _Pair, level: float) -> dict[str, Drop]:
    """Return the drop of every task, and of the average with its interval at this level, the last."""
    metric = pair.then[0].metric
    tasks = [s.task for s in pair.then[0].scores if (s.subset, s.metric) == (ALL, metric)]
    found = {}
    for task in sorted(tasks, key=lambda task: task == AVERAGE):
        was, is_now = ([_score(record, task) for record in side] for side in (pair.then, pair.now))
        found[task] = Drop(fmean(was), fmean(is_now))
        if pair.tested:
            test = welch(was, is_now, level)
            found[task] = replace(found[task], low=test.low, high=test.high, p=test.p)
    return found


def _score(record: RunRecord, task: str) -> float:
    value = record.score(task)
    if value is None:
        raise DataError(
            f"the record of {record.method}, {_run_name(record)}, has no score of {task} on {record.suite}",
            hint="run the cell again",
        )
    return value


def _add_holm(drops: Mapping[Key, dict[str, Drop]]) -> None:
    """Add the p of every tested task after Holm over all of them."""
    tested = {
        f"{number}/{task}": (tasks, task, drop)
        for number, tasks in enumerate(drops.values())
        for task, drop in tasks.items()
        if task != AVERAGE
    }
    p = {name: drop.p for name, (_, _, drop) in tested.items() if drop.p is not None}
    for name, adjusted in (holm(p, "every task of every tested cell").comparisons if p else {}).items():
        tasks, task, drop = tested[name]
        tasks[task] = replace(drop, adjusted_p=adjusted.adjusted)


def _decided(key: Key, pair: _Pair, drops: dict[str, Drop], tolerance: float, repeated: bool) -> CellVerdict:
    average = drops.get(AVERAGE)
    if average is None:
        raise DataError(f"the reference of {cell_name(key)} has no average")
    reasons: list[str] = []
    if not pair.tested:
        reasons.append("a deterministic method" if pair.then[0].seed is None else "one seed on a side")
        reasons[0] += ": no interval, the tolerance alone decides"
    if pair.same_machine and _seeds(pair.then) == _seeds(pair.now):
        reasons.append("other bytes on equal versions and CPU: the program's numbers have changed")
    shown, spread = average.low is None or average.low > 0, None
    if repeated and pair.tested:
        spread = SPREADS * stdev(_score(record, AVERAGE) for record in pair.then)
        shown = average.drop > spread or (shown and pair.same_machine)
    if average.drop > tolerance:
        status = Status.REGRESSION if shown else Status.UNCLEAR
    else:
        gained = -average.drop > tolerance and (average.high is None or average.high < 0)
        status = Status.IMPROVED if gained else Status.OK
    if status is Status.UNCLEAR:
        noise = (
            "the interval" if spread is None else f"{SPREADS} standard deviations of the reference's seeds"
        )
        reasons.append(f"no more than noise, by {noise}")
    return CellVerdict(
        key, status, _seeds(pair.then), _seeds(pair.now), drops, spread=spread, reasons=tuple(reasons)
    )
