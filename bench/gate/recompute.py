"""The gate's questions: a reference's scores again, its deterministic cells again, its seeds again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from bench.encoder import FloatArray
from bench.errors import InputError, NotComparableError
from bench.eval.rescoring import load_record_tasks, rescore_record
from bench.gate.judge import judge
from bench.gate.reference import find_specification_changes, load_new_records
from bench.gate.verdict import BROKEN, CellVerdict, Gate, Key, Question, Status
from bench.plan.plan import Plan
from bench.records.record import RecordPlace, RunRecord
from bench.records.store import ResultStore

_CHANGED = "today's code scores the reference's own predictions otherwise: {}"


@dataclass(frozen=True)
class RescoreOutcome:
    """What came of the first question.

    Args:
        cells: Cells whose scores are others by today's code.
        records: Number of records with equal scores.
        unasked: Why some couldn't be scored again, a line each.
        wrong: The records of these cells.
    """

    cells: tuple[CellVerdict, ...]
    records: int
    unasked: tuple[str, ...]
    wrong: tuple[RunRecord, ...]


def rescore_records(store: ResultStore, records: Iterable[RunRecord], data: Path | None) -> RescoreOutcome:
    """Score stored predictions again.

    Args:
        store: A campaign, such as the reference.
        records: Its finished records.
        data: Data folder.

    Raises:
        DataError: predictions that are missing, or not the record's.
    """
    wrong: dict[Key, list[tuple[RunRecord, str]]] = {}
    unasked, equal = dict[str, str](), 0
    for record in records:
        key = (record.profile, record.method, record.suite)
        if record.predictions is None:
            unasked[record.suite] = f"{record.suite} keeps no predictions: its scores were not computed again"
            continue
        try:
            tasks = load_record_tasks(record, data)
        except (InputError, NotComparableError) as error:
            unasked[record.suite] = f"scores of {record.suite} were not computed again: {error.what}"
            continue
        lines = rescore_record(record, tasks, store.predictions(record)).wrong
        equal += not lines
        if lines:
            wrong.setdefault(key, []).append((record, lines[0]))
    cells = tuple(
        CellVerdict(
            key,
            Status.CHANGED,
            tuple(record.seed for record, _ in found),
            (),
            reasons=(_CHANGED.format(found[0][1]),),
            question=Question.RESCORE,
            stage="scores",
        )
        for key, found in sorted(wrong.items())
    )
    records = tuple(record for found in wrong.values() for record, _ in found)
    return RescoreOutcome(cells, equal, tuple(unasked.values()), records)


def measure_similarity_changes(
    reference: ResultStore, source: ResultStore, then: Sequence[RunRecord], now: Sequence[RunRecord]
) -> dict[RecordPlace, float]:
    """Return the largest difference of a similarity of every deterministic cell that both sides have."""
    by_place = {record.place: record for record in now if record.status == "ok"}
    found = {}
    for record in then:
        new = by_place.get(record.place)
        if new is None or record.seed is not None or record.predictions is None or new.predictions is None:
            continue
        by = _largest_difference(reference.predictions(record), source.predictions(new))
        if by is not None:
            found[record.place] = by
    return found


def _largest_difference(one: Mapping[str, FloatArray], other: Mapping[str, FloatArray]) -> float | None:
    if {name: array.shape for name, array in one.items()} != {n: a.shape for n, a in other.items()}:
        return None
    differences = (np.abs(array.astype(np.float64) - other[name]) for name, array in one.items())
    largest = float(max((each.max(initial=0) for each in differences), default=0.0))
    return largest if np.isfinite(largest) else None


@dataclass(frozen=True)
class GateQuestions:
    """How the questions are asked.

    Args:
        reference: The reference.
        data: Data folder.
        tolerance: In the metric's unit.
        level: Of all intervals together.
        strict: Changed numbers fail.
        all: Ask every question, whatever came of those before.
        run: Runs a plan, and says how it goes.
    """

    reference: ResultStore
    data: Path | None
    tolerance: float
    level: float
    strict: bool
    all: bool
    run: Callable[[Plan], object] = field(repr=False)

    def repeated(
        self, then: Sequence[RunRecord], planned: Sequence[Plan], source: ResultStore
    ) -> tuple[Gate, list[RunRecord]]:
        """Ask all three questions of a reference's own cells, in order, until one fails.

        Args:
            then: The reference's records.
            planned: What repeats them.
            source: Campaign of the new records, below the plans' results.

        Returns:
            The verdict over what was asked, and the new records.
        """
        first = rescore_records(self.reference, then, self.data)
        gate = self._build_gate(first.cells, first)
        if first.cells and not self.all:
            return _warn_unasked(gate, "recompute and retrain were"), []
        if found := sorted(find_specification_changes(planned, then).items()):
            refused = tuple(CellVerdict(key, Status.DIFFERENT, (), (), reasons=why) for key, why in found)
            if not self.all:
                return self._build_gate((*first.cells, *refused), first), []
        alone = [record for record in then if record.seed is None]
        steps: list[tuple[Sequence[RunRecord], Sequence[Plan]]] = [(then, planned)]
        if alone and len(alone) < len(then):
            steps.insert(0, (alone, [_select_unseeded(plan) for plan in planned]))
        for records, plans in steps:
            for plan in filter(lambda plan: plan.jobs, plans):
                self.run(plan)
            new = load_new_records(source)
            gate = self.judged(records, source, new, first)
            if gate.exit_code and not self.all and len(records) < len(then):
                return _warn_unasked(gate, "retrain was"), new
        return gate, new

    def judged(
        self,
        then: Sequence[RunRecord],
        source: ResultStore,
        new: Sequence[RunRecord],
        first: RescoreOutcome,
        *,
        repeated: bool = True,
    ) -> Gate:
        """Judge new records, with what the first question gave."""
        gate = judge(
            *(then, new),
            tolerance=self.tolerance,
            level=self.level,
            repeated=repeated,
            strict=self.strict,
            moved=measure_similarity_changes(self.reference, source, then, new),
        )
        broken = {cell.key for cell in gate.having(*BROKEN)}  # such a cell is no new reference
        scored = [cell for cell in first.cells if cell.key not in broken]
        known = {cell.key for cell in scored}
        cells = (*scored, *(cell for cell in gate.cells if cell.key not in known))
        warnings = (*first.unasked, *gate.warnings)
        return replace(gate, cells=cells, warnings=warnings, rescored=first.records)

    def _build_gate(self, cells: tuple[CellVerdict, ...], first: RescoreOutcome) -> Gate:
        return Gate(
            cells,
            self.tolerance,
            self.level,
            repeated=True,
            warnings=first.unasked,
            strict=self.strict,
            rescored=first.records,
        )


def _select_unseeded(plan: Plan) -> Plan:
    return replace(plan, jobs=tuple(job for job in plan.jobs if job.cell.seed is None))


def _warn_unasked(gate: Gate, what: str) -> Gate:
    return replace(gate, warnings=(*gate.warnings, f"{what} not asked, as an earlier question failed"))
