"""What the seeds of both sides say of a drop: pairs where both have the same seeds, Welch's test elsewhere.

The gate compares one specification with itself, so the design alone decides. A seed decides what a run draws,
first weights, batches and dropout: two runs of one seed are a pair, also where they come from two machines.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev

from scipy.special import stdtrit

from bench.errors import DataError, InputError
from bench.gate.verdict import AVERAGE, Drop, Key, Seeds, cell_name
from bench.records.fingerprint import machine_facts
from bench.records.record import ALL, RunRecord
from bench.stats.pair_test import PAIRED, WELCH, pair_test
from bench.stats.seed_design import SeedDesign, choose_design


@dataclass(frozen=True)
class Sides:
    """Finished records of one cell that are compared.

    Args:
        then: The reference's, by seed.
        now: The new ones, by seed.
        test: "paired t", "Welch", or None where a side has a single run.
        reference: All of the reference's, ``then`` among them: their spread over seeds is the limit's.
        new: All of the new ones, ``now`` among them.
        same_machine: All were made with equal versions, settings and hardware.
    """

    then: tuple[RunRecord, ...]
    now: tuple[RunRecord, ...]
    test: str | None
    reference: tuple[RunRecord, ...]
    new: tuple[RunRecord, ...]
    same_machine: bool

    @property
    def same_seeds(self) -> bool:
        """True if the runs of both sides are pairs, one pair among them."""
        return list_record_seeds(self.then) == list_record_seeds(self.now)

    @property
    def common(self) -> list[tuple[RunRecord, RunRecord]]:
        """(reference, new) of every seed that both sides have, compared or not, in the seeds' order."""
        now = {record.seed: record for record in self.new}
        return [
            (record, now[record.seed])
            for record in sort_records_by_seed(self.reference)
            if record.seed in now
        ]

    @property
    def has_limit(self) -> bool:
        """True if the reference has a spread over seeds that says how far a drop may go by chance.

        It is of no use for one pair from one machine, which has equal bytes if nothing changed.
        """
        return len(self.reference) > 1 and not (self.test is None and self.same_machine)

    @property
    def uncertain(self) -> bool:
        """True if chance may have made the drop, so that its seeds have to show it."""
        return self.test is not None or self.has_limit


def sort_records_by_seed(records: Sequence[RunRecord]) -> list[RunRecord]:
    """Return the records in the order of their seeds."""
    return sorted(records, key=lambda record: -1 if record.seed is None else record.seed)


def list_record_seeds(records: Sequence[RunRecord]) -> Seeds:
    """Return the seeds, in order; None for a deterministic method's."""
    return tuple(record.seed for record in sort_records_by_seed(records))


def name_run(record: RunRecord) -> str:
    """For messages."""
    return "the run" if record.seed is None else f"seed {record.seed}"


def choose_seed_design(
    then: Sequence[RunRecord], now: Sequence[RunRecord], *, pairs: bool = True
) -> SeedDesign:
    """Choose the test over the seeds of both sides.

    Both sides have one specification, so the runs of a seed are pairs. One or two seeds are enough where a
    side has no others: a gate may repeat only some seeds of its reference.

    Args:
        then: Records of the reference.
        now: The new ones.
        pairs: False where the runs of a seed are no pairs: means over cells that aren't.
    """
    first, second = (
        [record.seed for record in sort_records_by_seed(side) if record.seed is not None]
        for side in (then, now)
    )
    return choose_design(first, second, pairs=pairs, pair_subset=True)


def name_test(design: SeedDesign) -> str:
    """Return the name of the test in verdicts: "paired t" or "Welch"."""
    return PAIRED if design.paired else WELCH


def choose_sides(key: Key, then: Sequence[RunRecord], now: Sequence[RunRecord]) -> Sides:
    """Choose the runs that are compared, and the test, from the seeds alone.

    ``choose_seed_design`` chooses. Runs of the seeds that both sides have are pairs where these are enough;
    the others aren't compared. Elsewhere Welch's test compares all runs. A single run has no test.

    Args:
        key: The cell.
        then: Finished records of the reference, of one specification.
        now: Finished records of the same specification.

    Raises:
        InputError: a single seed on a side that the other side hasn't.
    """
    design = choose_seed_design(then, now)
    one, other = (
        tuple(record for record in sort_records_by_seed(side) if record.seed is None or record.seed in used)
        for side, used in zip((then, now), design.seeds, strict=True)
    )
    has_test = min(len(then), len(now)) > 1
    if not has_test and list_record_seeds(one) != list_record_seeds(other):
        raise InputError(
            f"{cell_name(key)} has seeds {list_record_seeds(then)} in the reference and "
            f"{list_record_seeds(now)} here",
            expected="two seeds or more on both sides, or one that both have",
        )
    machines = [{tuple(machine_facts(record).items()) for record in side} for side in (one, other)]
    return Sides(
        one,
        other,
        test=name_test(design) if has_test else None,
        reference=tuple(then),
        new=tuple(now),
        same_machine=machines[0] == machines[1] and len(machines[0]) == 1,
    )


def measure_drops(sides: Sides, level: float) -> dict[str, Drop]:
    """Return the drop of every task, tested, and of the average with its interval at this level, the last.

    Args:
        sides: What is compared.
        level: Confidence level of the average's interval.

    Raises:
        DataError: a record that lacks a score.
    """
    metric = sides.then[0].metric
    tasks = [s.task for s in sides.then[0].scores if (s.subset, s.metric) == (ALL, metric)]
    found = {}
    for task in sorted(tasks, key=lambda task: task == AVERAGE):
        was, is_now = ([_require_score(record, task) for record in side] for side in (sides.then, sides.now))
        found[task] = Drop(fmean(was), fmean(is_now))
        if sides.test is not None:
            test = pair_test(was, is_now, paired=sides.test == PAIRED, level=level)
            low, high = test.interval if task == AVERAGE and test.interval else (None, None)
            p = test.p
            if test.interval is not None and test.interval[0] == test.interval[1]:
                if sides.same_machine:  # chance has no part there
                    p = float(found[task].drop == 0)
                else:  # it has, though it was not seen: the limit decides
                    low = high = None
            found[task] = replace(found[task], low=low, high=high, p=p)
    return found


def compute_drop_limit(sides: Sides, level: float) -> float | None:
    """The drop of the average beyond which the reference's own spread over seeds doesn't explain it.

    t s sqrt(1 / n_then + 1 / n_now), with s and its degrees of freedom from the reference alone: for new runs
    that are no more than other draws of the same method, correlated or not, it is passed by chance in at most
    (1 - level) / 2. A break that spreads widely over the seeds can't hide behind a spread of its own.

    Args:
        sides: What is compared.
        level: Confidence level; one minus it is shared by both directions, as in an interval.

    Returns:
        The limit, 0 where the reference's seeds agree; None for a reference with a single run.
    """
    if not sides.has_limit:
        return None
    spread = stdev(_require_score(record, AVERAGE) for record in sides.reference)
    quantile = float(stdtrit(len(sides.reference) - 1, (1 + level) / 2))
    return quantile * spread * math.sqrt(1 / len(sides.then) + 1 / len(sides.now))


def _require_score(record: RunRecord, task: str) -> float:
    value = record.score(task)
    if value is None:
        raise DataError(
            f"the record of {record.method}, {name_run(record)}, has no score of {task} on {record.suite}",
            hint="run the cell again",
        )
    return value
