"""Records of one made-up method with one task or several, for tests of the gate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from bench.gate.verdict import CellVerdict, Drop, Gate
from bench.records.record import RunRecord
from tests.support.campaigns import make_record

OTHER = {"versions": {"torch": "2.0"}, "device": "cpu", "threads": 1}
OTHER_DATA = {"T1": {"pairs": 100, "sha256": "1" * 64, "reference": True}}


def record(value: float | Sequence[float], seed: int | None = 1, **changes: Any) -> RunRecord:
    """A record with one task, or with several."""
    values = [value] if isinstance(value, float) else value
    made = make_record("noise", seed, {f"T{i}": v for i, v in enumerate(values, 1)}, suite="toy", corpus=None)
    base = {
        "backbone": None,
        "options": {"scale": 1.0},
        "tasks": {name: {"pairs": 100, "sha256": "0" * 64, "reference": True} for name in made.tasks},
        "provenance": {"versions": {"torch": "2.1"}, "device": "cpu", "threads": 1, "git": {"commit": "a"}},
        "timing": {"processor": "one", "wall_seconds": 1.0},
    }
    return replace(made, **base | changes)


def runs(values: Sequence[float | Sequence[float]], first: int = 1, **changes: Any) -> list[RunRecord]:
    return [record(value, seed, **changes) for seed, value in enumerate(values, start=first)]


def one(gate: Gate) -> CellVerdict:
    (cell,) = gate.cells
    return cell


def average(cell: CellVerdict) -> Drop:
    assert cell.average is not None
    return cell.average
