"""``bench check``'s decision on records: new ones against a reference, cell by cell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from bench.errors import DataError, NotComparableError
from bench.gate.cell_average import average_cells
from bench.gate.divergence import find_first_change
from bench.gate.drops import (
    Sides,
    choose_sides,
    compute_drop_limit,
    list_record_seeds,
    measure_drops,
    name_run,
    sort_records_by_seed,
)
from bench.gate.sensitivity import smallest_detectable_drop
from bench.gate.verdict import AVERAGE, CellVerdict, Drop, Gate, Key, Question, Status, cell_name
from bench.records.fingerprint import (
    GATED,
    JUDGED,
    compute_family_key,
    find_fact_differences,
    machine_warnings,
)
from bench.records.record import RecordPlace, RunRecord, is_same_measurement
from bench.stats.correction import holm

SPREAD = "the reference's own spread over seeds"


def judge(
    reference: Sequence[RunRecord],
    new: Sequence[RunRecord],
    *,
    tolerance: float = 0.005,
    level: float = 0.95,
    repeated: bool = False,
    strict: bool = False,
    moved: Mapping[RecordPlace, float] | None = None,
) -> Gate:
    """Compare new records with a reference.

    A cell regresses where its average falls by more than the tolerance and its seeds show it: the interval of
    the drop lies above 0, or the drop is beyond the limit that the reference's own spread sets. The interval
    is that of the paired t test over the seeds that both sides have, where these are enough, else Welch's;
    see :mod:`bench.gate.drops`. Of unchanged code, each of the two shows a drop by chance in at most
    (1 - level) / 2 of all gates, over all cells together (Bonferroni over those that changed at all).

    A deterministic method has neither, and the tolerance alone decides. One pair of seeds has no interval: on
    equal versions and hardware, where equal code gives equal bytes, the tolerance decides, elsewhere the
    limit too. Tasks are tested as well (Holm over all of them), and decide nothing.

    Where a cell passes although its numbers changed where equal ones were due (:mod:`bench.gate.divergence`),
    its verdict names the first stage, and it fails if the gate is strict.

    Args:
        reference: Finished records.
        new: The new ones, failed ones among them; those of other cells are named, not compared.
        tolerance: In the metric's unit.
        level: Confidence level of the averages' intervals, all together.
        repeated: The new records repeat the reference's specification seed by seed.
        strict: Changed numbers fail.
        moved: Largest difference of a similarity of deterministic cells, by place, as far as known.

    Raises:
        NotComparableError: the reference's own seeds have different specifications.
        InputError: a single seed on a side that the other side hasn't.
        DataError: a finished record that lacks a score.
    """
    then, now = _group_by_cell(reference), _group_by_cell(new)
    cells, equal, compared = _partition_cells(then, now, repeated)
    overall = average_cells({**equal, **compared})
    if overall is not None:  # it has changed where one of its cells has
        seeded = any(sides.then[0].seed is not None for sides in compared.values())
        (compared if seeded else equal)[overall[0]] = overall[1]
    decided, tested = _decide_cells(equal, compared, tolerance, level)
    for key, verdict in decided.items():
        cells[key] = (
            _add_first_change(verdict, compared[key], moved or {}, strict)
            if key in compared and key in then
            else verdict
        )
    average = cells.pop(overall[0]) if overall is not None else None
    ordered = tuple(replace(cells[key], question=choose_question(then[key])) for key in sorted(cells))
    return Gate(ordered, tolerance, level, tested, repeated, _collect_warnings(then, now), strict, average)


def _partition_cells(
    then: Mapping[Key, list[RunRecord]], now: Mapping[Key, list[RunRecord]], repeated: bool
) -> tuple[dict[Key, CellVerdict], dict[Key, Sides], dict[Key, Sides]]:
    """Part the cells: verdicts that take no numbers, cells with equal numbers, and with others."""
    cells: dict[Key, CellVerdict] = {}
    equal: dict[Key, Sides] = {}
    compared: dict[Key, Sides] = {}
    for key, records in then.items():
        done = _select_finished(now.get(key, []))
        if (settled := _judge_without_statistics(key, records, now.get(key, []), repeated)) is not None:
            cells[key] = settled
        elif (same := _match_equal_runs(records, done)) is not None:
            equal[key] = same
        else:
            compared[key] = choose_sides(key, records, done)
    return cells, equal, compared


def _collect_warnings(
    then: Mapping[Key, list[RunRecord]], now: Mapping[Key, list[RunRecord]]
) -> tuple[str, ...]:
    """What else differs: versions and hardware of cells that both sides have, cells that one side has."""
    found = machine_warnings(
        [record for key in then if key in now for record in then[key]],
        [record for key in then for record in _select_finished(now.get(key, []))],
    )
    changed = (find_fact_differences(then[key][0], now[key][0], JUDGED) for key in then if now.get(key))
    found += tuple(dict.fromkeys(str(line) for lines in changed for line in lines))
    if extra := sorted(now.keys() - then.keys()):
        found += (f"not in the reference: {', '.join(cell_name(key) for key in extra)}",)
    return found


def choose_question(records: Sequence[RunRecord]) -> Question:
    """Return which question a cell answers: one without seeds is computed again, the others are trained."""
    return Question.RECOMPUTE if all(record.seed is None for record in records) else Question.RETRAIN


def _group_by_cell(records: Sequence[RunRecord]) -> dict[Key, list[RunRecord]]:
    cells: dict[Key, list[RunRecord]] = {}
    for record in records:
        cells.setdefault((record.profile, record.method, record.suite), []).append(record)
    return cells


def _select_finished(records: Sequence[RunRecord]) -> list[RunRecord]:
    return [record for record in records if record.status == "ok"]


def _judge_without_statistics(
    key: Key, then: list[RunRecord], now: list[RunRecord], repeated: bool
) -> CellVerdict | None:
    """Return the verdict where it takes no statistics, else None."""
    if len(set(map(compute_family_key, then))) > 1:
        raise NotComparableError(
            f"the reference's seeds of {cell_name(key)} have different specifications",
            hint="run one specification in a campaign of its own",
        )
    done = _select_finished(now)
    seeds = list_record_seeds(then), list_record_seeds(done)
    if not now:
        return CellVerdict(key, Status.MISSING, *seeds, reasons=("there is no record of it",))
    if len(done) < len(now):
        broken = (record for record in now if record.status == "failed")
        reasons = tuple(f"{name_run(record)}: {record.reason}" for record in broken)
        return CellVerdict(key, Status.FAILED, *seeds, reasons=reasons)
    if lines := [str(each) for record in done for each in find_fact_differences(then[0], record, GATED)]:
        return CellVerdict(key, Status.DIFFERENT, *seeds, reasons=tuple(dict.fromkeys(lines)))
    if repeated and (absent := [r for r in then if r.seed not in seeds[1]]):
        reasons = tuple(f"there is no record of {name_run(record)}" for record in absent)
        return CellVerdict(key, Status.MISSING, *seeds, reasons=reasons)
    return None


def _match_equal_runs(then: Sequence[RunRecord], done: Sequence[RunRecord]) -> Sides | None:
    """Return both sides where every new run has the numbers of the reference's of its seed, else None."""
    seeds = list_record_seeds(done)
    shared, now = (
        sort_records_by_seed([record for record in then if record.seed in seeds]),
        sort_records_by_seed(done),
    )
    if len(shared) < len(now) or not all(map(is_same_measurement, shared, now)):
        return None
    return Sides(
        tuple(shared), tuple(now), None, tuple(sort_records_by_seed(then)), tuple(now), same_machine=True
    )


def _decide_cells(
    equal: Mapping[Key, Sides], compared: Mapping[Key, Sides], tolerance: float, level: float
) -> tuple[dict[Key, CellVerdict], int]:
    """Return a verdict on every cell with numbers on both sides, and how many were tested."""
    tested = sum(sides.uncertain for sides in compared.values())
    share = (1 - level) / tested if tested else 1 - level
    found = {key: measure_drops(sides, 1 - share) for key, sides in compared.items()}
    correct_drops(found, tested)
    cells = {
        key: _decide_cell(key, sides, found[key], compute_drop_limit(sides, 1 - share), tolerance)
        for key, sides in compared.items()
    }
    for key, sides in equal.items():
        seeds = list_record_seeds(sides.reference), list_record_seeds(sides.new)
        found_equal = measure_drops(replace(sides, test=None), level)
        cells[key] = CellVerdict(
            key, Status.EQUAL, *seeds, found_equal, reasons=tuple(_name_unused_seeds(sides))
        )
    may_change = {**equal, **compared}
    seeded = sum(sides.then[0].seed is not None for sides in may_change.values())
    least = 1 - (1 - level) / max(1, seeded)  # as where all of them change
    for key, sides in may_change.items():
        cells[key] = replace(cells[key], sees=smallest_detectable_drop(sides, least, tolerance))
    return cells, tested


def correct_drops(found: Mapping[Key, dict[str, Drop]], tested: int) -> None:
    """Add every corrected p: of averages after Bonferroni, as their intervals; of all tasks after Holm."""
    tasks: dict[str, float] = {}
    for number, by_task in enumerate(found.values()):
        for task, drop in by_task.items():
            if drop.p is not None and task == AVERAGE:
                by_task[task] = replace(drop, adjusted_p=min(1.0, drop.p * tested))
            elif drop.p is not None:
                tasks[f"{number}/{task}"] = drop.p
    adjusted = holm(tasks, "every task of every tested cell").comparisons if tasks else {}
    for number, by_task in enumerate(found.values()):
        for task in by_task:
            if one := adjusted.get(f"{number}/{task}"):
                by_task[task] = replace(by_task[task], adjusted_p=one.adjusted)


def _decide_cell(
    key: Key, sides: Sides, found: dict[str, Drop], beyond: float | None, tolerance: float
) -> CellVerdict:
    average = found.get(AVERAGE)
    if average is None:
        raise DataError(f"the reference of {cell_name(key)} has no average")
    by_interval = average.low is not None and average.low > 0
    by_limit = beyond is not None and average.drop > beyond
    if average.fell(tolerance):
        shown = by_interval or by_limit or not sides.uncertain
        status = Status.REGRESSION if shown else Status.UNCLEAR
    else:
        gained = average.rose(tolerance) and _shows_rise(sides, average, beyond)
        status = Status.IMPROVED if gained else Status.OK
    reasons = [*_explain_missing_interval(sides), *_name_unused_seeds(sides)]
    if status is Status.UNCLEAR:
        reasons.append("not shown to be more than noise")
    if status is Status.REGRESSION and sides.test and not by_interval:
        reasons.append(f"the interval holds 0, but the drop is larger than {SPREAD} explains")
    if status in (Status.REGRESSION, Status.UNCLEAR) and not sides.same_machine:
        reasons.append("versions or hardware differ too and may be the cause")
    seeds = list_record_seeds(sides.then), list_record_seeds(sides.now)
    return CellVerdict(key, status, *seeds, found, sides.test, beyond, tuple(reasons))


def _add_first_change(
    cell: CellVerdict, sides: Sides, moved: Mapping[RecordPlace, float], strict: bool
) -> CellVerdict:
    """Add the first stage whose numbers changed, for which a strict gate fails."""
    pairs = sides.common
    if not pairs:
        return cell
    stage, passed = find_first_change(pairs, moved)
    if stage is not None:
        where = "on equal versions and CPU" if sides.same_machine else "by more than another CPU moves them"
        reasons = (*cell.reasons, f"numbers changed {where}, first in {stage}")
        passes = cell.status in (Status.OK, Status.IMPROVED, Status.UNCLEAR)
        status = Status.CHANGED if strict and passes else cell.status
        return replace(cell, status=status, stage=stage, reasons=reasons)
    if passed is not None and cell.status is Status.OK:
        reason = f"no similarity moved by more than {passed:.1g}, as close as another CPU comes"
        return replace(cell, status=Status.EQUAL, reasons=(*_name_unused_seeds(sides), reason))
    return cell


def _shows_rise(sides: Sides, average: Drop, beyond: float | None) -> bool:
    """Whether a rise is more than noise; one pair of seeds has no interval, and may have no limit."""
    if average.high is not None:
        return average.high < 0
    return beyond is None or -average.drop > beyond


def _explain_missing_interval(sides: Sides) -> Iterator[str]:
    if sides.test is None:
        seeded = sides.then[0].seed is not None
        what = "one pair of seeds" if seeded else "a deterministic method"
        decides = f"{SPREAD} decides" if sides.has_limit else "the tolerance alone decides"
        unknown = seeded and not sides.has_limit and not sides.same_machine
        yield f"{what}: no interval, {decides}" + ", as nothing says how far chance moves it" * unknown


def _name_unused_seeds(sides: Sides) -> Iterator[str]:
    """Name the seeds that only one side has, where pairs are compared."""
    for whose, all_seeds, used in (
        ("the reference", sides.reference, sides.then),
        ("the new records", sides.new, sides.now),
    ):
        if alone := [
            str(seed) for seed in list_record_seeds(all_seeds) if seed not in list_record_seeds(used)
        ]:
            yield (
                f"seed{'s' * (len(alone) > 1)} {', '.join(alone)} of {whose} left out: the other side lacks "
                + ("them" if len(alone) > 1 else "it")
            )
