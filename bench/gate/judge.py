"""``bench check``'s verdict on new records against a reference, cell by cell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import median

from bench.errors import DataError, NotComparableError
from bench.gate.divergence import find_first_change, find_version_differences
from bench.gate.drops import (
    Sides,
    average_cells,
    cell_key,
    choose_sides,
    compute_drop_limit,
    list_record_seeds,
    measure_drops,
    name_run,
    require_score,
    smallest_detectable_drop,
    sort_records_by_seed,
)
from bench.gate.verdict import AVERAGE, BAD, CellVerdict, Drop, Gate, Key, Question, Status, cell_name
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
    allow_versions: bool = False,
    moved: Mapping[RecordPlace, float] | None = None,
) -> Gate:
    """Compare new records, failed ones among them, with the finished records of a reference.

    ``repeated`` records repeat the reference seed by seed. ``moved`` has known largest differences of a
    similarity of deterministic cells.

    A cell regresses if its average falls by more than the tolerance and its seeds show it: the interval of
    the drop (:mod:`bench.gate.drops`) is above 0, or the drop exceeds the limit of the reference's spread.
    For unchanged code, each of the two shows a drop by chance in at most (1 - level) / 2 of all gates, over
    all cells together (Bonferroni over those that changed at all). The tolerance alone decides for a
    deterministic method, and for one pair of seeds on equal versions and hardware. Tasks are tested as well
    (Holm over all of them); verdicts ignore them.

    If a cell passes although its numbers changed where equal ones were due (:mod:`bench.gate.divergence`),
    its verdict names the first stage, and it fails a strict gate. So does a seeded cell of other versions,
    whose training is judged by averages only, unless ``allow_versions``.
    """
    then, now = _group_by_cell(reference), _group_by_cell(new)
    cells: dict[Key, CellVerdict] = {}
    equal: dict[Key, Sides] = {}
    compared: dict[Key, Sides] = {}
    for key, records in then.items():
        done = _select_finished(now.get(key, []))
        if verdict := _judge_without_statistics(key, records, now.get(key, []), repeated):
            cells[key] = verdict
        elif same := _match_equal_runs(records, done):
            equal[key] = same
        else:
            compared[key] = choose_sides(key, records, done)
    overall = average_cells({**equal, **compared})
    if overall is not None:  # it has changed if one of its cells has
        is_seeded = any(sides.then[0].seed is not None for sides in compared.values())
        (compared if is_seeded else equal)[overall[0]] = overall[1]
    decided, tested = _decide_cells(equal, compared, tolerance, level)
    for key, verdict in decided.items():
        if key in compared and key in then:
            verdict = _add_first_change(verdict, compared[key], moved or {}, strict)
        if key in then and then[key][0].seed is not None:
            versions = find_version_differences(then[key], _select_finished(now[key]))
            verdict = _add_versions(verdict, versions, fails=strict and not allow_versions)
        cells[key] = verdict
    average = cells.pop(overall[0]) if overall is not None else None
    ordered = tuple(replace(cells[key], question=choose_question(then[key])) for key in sorted(cells))
    return Gate(ordered, tolerance, level, tested, repeated, _collect_warnings(then, now), strict, average)


def _collect_warnings(
    then: Mapping[Key, list[RunRecord]], now: Mapping[Key, list[RunRecord]]
) -> tuple[str, ...]:
    """Name other differences: versions and hardware of common cells, and cells of one side."""
    common, changes = [key for key in then if key in now], dict[str, None]()
    old = [record for key in common for record in then[key]]
    new = [record for key in common for record in _select_finished(now[key])]
    warnings = machine_warnings(old, new)
    for key in common:
        changes |= dict.fromkeys(map(str, find_fact_differences(then[key][0], now[key][0], JUDGED)))
    warnings += tuple(changes)
    if extra := sorted(now.keys() - then.keys()):
        warnings += (f"not in the reference: {', '.join(map(cell_name, extra))}",)
    return warnings


def choose_question(records: Sequence[RunRecord]) -> Question:
    """Return the question of a cell: without seeds it is computed again, otherwise trained."""
    is_unseeded = all(record.seed is None for record in records)
    return Question.RECOMPUTE if is_unseeded else Question.RETRAIN


def _group_by_cell(records: Sequence[RunRecord]) -> dict[Key, list[RunRecord]]:
    cells: dict[Key, list[RunRecord]] = {}
    for record in records:
        cells.setdefault(cell_key(record), []).append(record)
    return cells


def _select_finished(records: Sequence[RunRecord]) -> list[RunRecord]:
    return [record for record in records if record.status == "ok"]


def _judge_without_statistics(
    key: Key, then: list[RunRecord], now: list[RunRecord], repeated: bool
) -> CellVerdict | None:
    """Return a verdict that precedes statistics, if any."""
    if len(set(map(compute_family_key, then))) > 1:
        raise NotComparableError(
            f"the reference's seeds of {cell_name(key)} have different specifications",
            hint="run one specification in a campaign of its own",
        )
    done = _select_finished(now)
    seeds = list_record_seeds(then), list_record_seeds(done)
    status, reasons = Status.MISSING, ["there is no record of it"]
    if now:
        status = Status.FAILED
        reasons = [f"{name_run(record)}: {record.reason}" for record in now if record.status == "failed"]
    if now and len(done) == len(now):
        status, reasons = Status.DIFFERENT, []
        for record in done:
            reasons += map(str, find_fact_differences(then[0], record, GATED))
        if not reasons and repeated:
            status = Status.MISSING
            absent = [record for record in then if record.seed not in seeds[1]]
            reasons = [f"there is no record of {name_run(record)}" for record in absent]
        if not reasons:
            return None
    return CellVerdict(key, status, *seeds, reasons=tuple(dict.fromkeys(reasons)))


def _match_equal_runs(then: Sequence[RunRecord], done: Sequence[RunRecord]) -> Sides | None:
    """Return both sides if every new run has the numbers of the reference's run of its seed."""
    seeds, reference, now = list_record_seeds(done), sort_records_by_seed(then), sort_records_by_seed(done)
    shared = [record for record in reference if record.seed in seeds]
    if len(shared) < len(now) or not all(map(is_same_measurement, shared, now)):
        return None
    return Sides(tuple(shared), tuple(now), None, tuple(reference), tuple(now), same_machine=True)


def _decide_cells(
    equal: Mapping[Key, Sides], compared: Mapping[Key, Sides], tolerance: float, level: float
) -> tuple[dict[Key, CellVerdict], int]:
    """Return a verdict on every cell with numbers on both sides, and the number of tested cells."""
    tested = sum(sides.uncertain for sides in compared.values())
    share = (1 - level) / tested if tested else 1 - level
    drops = {key: measure_drops(sides, 1 - share) for key, sides in compared.items()}
    correct_drops(drops, tested)
    cells = {}
    for key, sides in compared.items():
        limit = compute_drop_limit(sides, 1 - share)
        cells[key] = _decide_cell(key, sides, drops[key], limit, tolerance)
    for key, sides in equal.items():
        seeds = list_record_seeds(sides.reference), list_record_seeds(sides.new)
        unchanged, reasons = measure_drops(replace(sides, test=None), level), tuple(_name_unused_seeds(sides))
        cells[key] = CellVerdict(key, Status.EQUAL, *seeds, unchanged, reasons=reasons)
    may_change = {**equal, **compared}
    seeded = sum(sides.then[0].seed is not None for sides in may_change.values())
    least = 1 - (1 - level) / max(1, seeded)  # as if all of them changed
    for key, sides in may_change.items():
        cells[key] = replace(cells[key], sees=smallest_detectable_drop(sides, least, tolerance))
    return cells, tested


def correct_drops(drops: Mapping[Key, dict[str, Drop]], tested: int) -> None:
    """Add every corrected p: of averages by Bonferroni, as their intervals; of all tasks by Holm."""
    tasks: dict[str, float] = {}
    for number, by_task in enumerate(drops.values()):
        for task, drop in by_task.items():
            if drop.p is not None and task == AVERAGE:
                by_task[task] = replace(drop, adjusted_p=min(1.0, drop.p * tested))
            elif drop.p is not None:
                tasks[f"{number}/{task}"] = drop.p
    adjusted = holm(tasks, "every task of every tested cell").comparisons if tasks else {}
    for number, by_task in enumerate(drops.values()):
        for task, drop in by_task.items():
            if corrected := adjusted.get(f"{number}/{task}"):
                by_task[task] = replace(drop, adjusted_p=corrected.adjusted)


def _decide_cell(
    key: Key, sides: Sides, drops: dict[str, Drop], limit: float | None, tolerance: float
) -> CellVerdict:
    average = drops.get(AVERAGE)
    if average is None:
        raise DataError(f"the reference of {cell_name(key)} has no average")
    by_interval = average.low is not None and average.low > 0
    by_limit = limit is not None and average.drop > limit
    status, reasons = Status.OK, [*_explain_missing_interval(sides), *_name_unused_seeds(sides)]
    if average.fell(tolerance):
        is_shown = by_interval or by_limit or not sides.uncertain
        status = Status.REGRESSION if is_shown else Status.UNCLEAR
    elif average.rose(tolerance):
        # one pair of seeds has no interval, and may have no limit
        is_shown = limit is None or -average.drop > limit
        if average.high is not None:
            is_shown = average.high < 0
        status = Status.IMPROVED if is_shown else Status.OK
    if status is Status.UNCLEAR:
        reasons.append("not shown to be more than noise")
    if status is Status.REGRESSION and sides.test and not by_interval:
        reasons.append(f"the interval holds 0, but the drop is larger than {SPREAD} explains")
    if status is Status.REGRESSION and sides.uncertain:
        reasons += _describe_collapses(sides)
    if status in (Status.REGRESSION, Status.UNCLEAR) and not sides.same_machine:
        reasons.append("versions or hardware differ too and may be the cause")
    seeds = list_record_seeds(sides.then), list_record_seeds(sides.now)
    return CellVerdict(key, status, *seeds, drops, sides.test, limit, tuple(reasons))


def _describe_collapses(sides: Sides) -> Iterator[str]:
    """Name runs far below all others of both sides; where runs collapse, more gates fail by chance."""
    from bench.stats.coverage import find_coverage
    from bench.stats.outliers import find_outliers

    runs = [*sides.then, *sides.now]
    scores = [require_score(record, AVERAGE) for record in runs]
    middle, collapsed = median(scores), []
    for place in find_outliers(scores):
        if scores[place] < middle:
            side = "new" if place >= len(sides.then) else "reference's"
            collapsed.append(f"{side} {name_run(runs[place])}")
    if collapsed:
        seeds = min(len(sides.then), len(sides.now))
        rate = 100 * find_coverage("gate", seeds, seeds, design="collapse").measured
        yield (
            f"{len(collapsed)} of {len(runs)} runs collapsed ({', '.join(collapsed)}); where one run in ten "
            f"does, {rate:.0f}% of gates of ten cells fail without a change"
        )


def _add_first_change(
    cell: CellVerdict, sides: Sides, moved: Mapping[RecordPlace, float], strict: bool
) -> CellVerdict:
    """Add the first stage whose numbers changed, which fails a strict gate."""
    pairs = sides.common
    if not pairs:
        return cell
    stage, accepted = find_first_change(pairs, moved)
    if stage is not None:
        where = "on equal versions and CPU" if sides.same_machine else "by more than another CPU moves them"
        reasons = (*cell.reasons, f"numbers changed {where}, first in {stage}")
        passes = cell.status in (Status.OK, Status.IMPROVED, Status.UNCLEAR)
        status = Status.CHANGED if strict and passes else cell.status
        return replace(cell, status=status, stage=stage, reasons=reasons)
    if accepted is not None and cell.status is Status.OK:
        reason = f"no similarity moved by more than {accepted:.1g}, as close as another CPU comes"
        return replace(cell, status=Status.EQUAL, reasons=(*_name_unused_seeds(sides), reason))
    return cell


def _add_versions(cell: CellVerdict, versions: tuple[str, ...], *, fails: bool) -> CellVerdict:
    """Add other versions, which fail a strict gate that doesn't allow them."""
    passes = cell.status not in BAD
    status = Status.UNVERIFIED if versions and fails and passes else cell.status
    return replace(cell, status=status, versions=versions)


def _explain_missing_interval(sides: Sides) -> Iterator[str]:
    if sides.test is not None:
        return
    decides = f"{SPREAD} decides" if sides.has_limit else "the tolerance alone decides"
    if sides.then[0].seed is None:
        yield f"a deterministic method: no interval, {decides}"
    else:
        is_unknown = not sides.has_limit and not sides.same_machine
        unknown = ", as nothing says how far chance moves it" * is_unknown
        yield f"one pair of seeds: no interval, {decides}{unknown}"


def _name_unused_seeds(sides: Sides) -> Iterator[str]:
    """Name the seeds of pairs that only one side has."""
    for whose, records, used in (
        ("the reference", sides.reference, sides.then),
        ("the new records", sides.new, sides.now),
    ):
        compared = list_record_seeds(used)
        unused = [str(seed) for seed in list_record_seeds(records) if seed not in compared]
        if unused:
            plural, them = ("s", "them") if len(unused) > 1 else ("", "it")
            yield f"seed{plural} {', '.join(unused)} of {whose} left out: the other side lacks {them}"
