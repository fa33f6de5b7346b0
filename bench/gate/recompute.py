"""The gate's questions: a reference's scores again, its deterministic cells again, its seeds again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from bench.encoder import FloatArray
from bench.errors import InputError, NotComparableError
from bench.eval.rescoring import load_record_tasks, rescore_record
from bench.gate.drops import cell_key
from bench.gate.judge import judge
from bench.gate.reference import find_specification_changes, load_new_records
from bench.gate.verdict import BROKEN, CellVerdict, Gate, Key, Question, Status
from bench.plan.plan import Plan
from bench.records.record import RecordPlace, RunRecord
from bench.records.store import ResultStore

_CHANGED = "today's code scores the reference's own predictions otherwise: {}"


@dataclass(frozen=True)
class RescoreOutcome:
    """Changed cells and their records, the number of equal records, and a line for each ``unasked`` suite."""

    cells: tuple[CellVerdict, ...]
    records: int
    unasked: tuple[str, ...]
    wrong: tuple[RunRecord, ...]


def rescore_records(store: ResultStore, records: Iterable[RunRecord], data: Path | None) -> RescoreOutcome:
    """Score the stored predictions of finished records again; raise DataError for wrong ones."""
    wrong: dict[Key, list[tuple[RunRecord, str]]] = {}
    unasked, equal = dict[str, str](), 0
    for record in records:
        if record.predictions is None:
            unasked[record.suite] = f"{record.suite} keeps no predictions: its scores were not computed again"
            continue
        try:
            tasks = load_record_tasks(record, data)
        except (InputError, NotComparableError) as error:
            unasked[record.suite] = f"scores of {record.suite} were not computed again: {error.what}"
            continue
        lines = rescore_record(record, tasks, store.predictions(record)).wrong
        if lines:
            wrong.setdefault(cell_key(record), []).append((record, lines[0]))
        else:
            equal += 1
    cells, changed = [], []
    for key, of_cell in sorted(wrong.items()):
        seeds, reasons = tuple(record.seed for record, _ in of_cell), (_CHANGED.format(of_cell[0][1]),)
        verdict = CellVerdict(key, Status.CHANGED, seeds, (), reasons=reasons, stage="scores")
        cells.append(replace(verdict, question=Question.RESCORE))
    for of_cell in wrong.values():
        changed += [record for record, _ in of_cell]
    return RescoreOutcome(tuple(cells), equal, tuple(unasked.values()), tuple(changed))


def measure_similarity_changes(
    reference: ResultStore, source: ResultStore, then: Sequence[RunRecord], now: Sequence[RunRecord]
) -> dict[RecordPlace, float]:
    """Return the largest difference of a similarity of every common deterministic cell."""
    by_place = {record.place: record for record in now if record.status == "ok"}
    changes = {}
    for record in then:
        new = by_place.get(record.place)
        if new is None or record.seed is not None or record.predictions is None or new.predictions is None:
            continue
        largest = _largest_difference(reference.predictions(record), source.predictions(new))
        if largest is not None:
            changes[record.place] = largest
    return changes


def _largest_difference(one: Mapping[str, FloatArray], other: Mapping[str, FloatArray]) -> float | None:
    if one.keys() != other.keys():
        return None
    largest = 0.0
    for name, array in one.items():
        if array.shape != other[name].shape:
            return None
        largest = np.maximum(largest, np.abs(array.astype(np.float64) - other[name]).max(initial=0))
    return float(largest) if np.isfinite(largest) else None


@dataclass(frozen=True)
class GateQuestions:
    """The gate's questions and their settings; ``all`` asks on after a failed question."""

    reference: ResultStore
    data: Path | None
    tolerance: float
    level: float
    strict: bool
    all: bool
    allow_versions: bool = field(kw_only=True, default=False)
    run: Callable[[Plan], object] = field(repr=False)

    def repeat(
        self, then: Sequence[RunRecord], planned: Sequence[Plan], source: ResultStore
    ) -> tuple[Gate, list[RunRecord]]:
        """Ask all questions of a reference's cells, in order, until one fails; return verdict, records."""
        first = rescore_records(self.reference, then, self.data)
        gate = self._build_gate(first.cells, first)
        if first.cells and not self.all:
            return _warn_unasked(gate, "recompute and retrain were"), []
        changes = sorted(find_specification_changes(planned, then).items())
        if changes and not self.all:
            refused = [CellVerdict(key, Status.DIFFERENT, (), (), reasons=why) for key, why in changes]
            return self._build_gate((*first.cells, *refused), first), []
        unseeded = [record for record in then if record.seed is None]
        steps: list[tuple[Sequence[RunRecord], Sequence[Plan]]] = [(then, planned)]
        if unseeded and len(unseeded) < len(then):
            steps.insert(0, (unseeded, [_select_unseeded(plan) for plan in planned]))
        for records, plans in steps:
            for plan in plans:
                if plan.jobs:
                    self.run(plan)
            new = load_new_records(source)
            gate = self.judge(records, source, new, first)
            if gate.exit_code and not self.all and len(records) < len(then):
                return _warn_unasked(gate, "retrain was"), new
        return gate, new

    def judge(
        self,
        then: Sequence[RunRecord],
        source: ResultStore,
        new: Sequence[RunRecord],
        first: RescoreOutcome,
        *,
        repeated: bool = True,
    ) -> Gate:
        """Judge new records, with the answer to the first question."""
        gate = judge(
            *(then, new),
            tolerance=self.tolerance,
            level=self.level,
            repeated=repeated,
            strict=self.strict,
            allow_versions=self.allow_versions,
            moved=measure_similarity_changes(self.reference, source, then, new),
        )
        broken = {cell.key for cell in gate.having(*BROKEN)}  # such a cell is no new reference
        scored = {cell.key: cell for cell in first.cells if cell.key not in broken}
        cells = (*scored.values(), *(cell for cell in gate.cells if cell.key not in scored))
        return replace(gate, cells=cells, warnings=(*first.unasked, *gate.warnings), rescored=first.records)

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
