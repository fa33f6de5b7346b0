"""Verdicts of the gate on today's code or weights against a reference, and its exit code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from bench.errors import NotComparableError

AVERAGE = "avg"
Status = StrEnum(
    "Status",
    "EQUAL OK IMPROVED NEW UNCLEAR CHANGED UNVERIFIED REGRESSION FAILED MISSING DIFFERENT",
)
BAD = (Status.REGRESSION, Status.CHANGED, Status.UNVERIFIED, Status.FAILED, Status.MISSING)
BROKEN = (Status.FAILED, Status.MISSING)
"""Statuses without a result; such a cell cannot become the reference."""


class Question(StrEnum):
    """The questions of verdicts, in the order of the gate."""

    RESCORE = "rescore"
    """Do the reference's own predictions have the same scores?"""
    RECOMPUTE = "recompute"
    """Do its deterministic cells and kept encoders have the same similarities?"""
    RETRAIN = "retrain"
    """Do its seeds, trained again, have the same scores?"""
    ITEMS = "items"
    """Does an encoder with other weights score as its reference, item by item?"""
    KNOWN = "known value"
    """Does the program give a value that was derived without it? Asked with every other question."""


POWER = 0.8
"""Chance with which the smallest detectable drop fails the gate."""

ROUNDING = 1e-9
"""Differences that count as equal: in floating point, 0.9 - 0.895 exceeds 0.005."""

Key = tuple[str, str, str]
"""Profile, method, suite."""
Seeds = tuple[int | None, ...]


@dataclass(frozen=True)
class Drop:
    """Means of a score over the seeds of both sides, and the test of their difference, in the metric's unit.

    ``low`` and ``high`` are the interval of a tested average's drop, reference - new. ``adjusted_p`` is
    Bonferroni's of an average over all cells that changed, as the intervals, and Holm's of a task over their
    tasks.
    """

    reference: float
    new: float
    low: float | None = None
    high: float | None = None
    p: float | None = None
    adjusted_p: float | None = None

    @property
    def drop(self) -> float:
        """The reference less the new score."""
        return self.reference - self.new

    def fell(self, tolerance: float) -> bool:
        """True if the score fell by more than the tolerance, but for rounding."""
        return self.drop - tolerance > ROUNDING

    def rose(self, tolerance: float) -> bool:
        """True if the score rose by more than the tolerance, but for rounding."""
        return -self.drop - tolerance > ROUNDING


@dataclass(frozen=True)
class CellVerdict:
    """One cell: a method on a suite, over its seeds.

    Args:
        status: "equal" (to the last bit, or as close as another CPU comes), "new" (an encoder for the
            reference), "unclear" (an insignificant drop above the tolerance), "changed" (other numbers where
            equal ones were due), "unverified" (versions differ, so a strict gate can't tell),
            "different" (incomparable).
        drops: By task, "avg" the last.
        limit: The largest drop that the reference's own spread over seeds explains, if known.
        stage: The first stage with other numbers than due: "training of sub1", "similarities", "scores".
        sees: The smallest true drop that would fail with a chance of ``POWER``, in the metric's unit.
        versions: Versions and settings that differ, so that only averages of a trained cell are compared.
    """

    key: Key
    status: Status
    seeds: Seeds
    new_seeds: Seeds
    drops: Mapping[str, Drop] = field(default_factory=dict)
    test: str | None = None
    limit: float | None = None
    reasons: tuple[str, ...] = ()
    question: Question = Question.RETRAIN
    stage: str | None = None
    sees: float | None = None
    versions: tuple[str, ...] = ()

    @property
    def average(self) -> Drop | None:
        """The drop of the average."""
        return self.drops.get(AVERAGE)

    @property
    def error_term(self) -> str:
        """The test with its seeds, if any."""
        if self.test is None:
            return ""
        if self.question is Question.ITEMS:
            return self.test
        sizes = f"{len(self.seeds)}"
        if self.seeds != self.new_seeds:
            sizes += f" and {len(self.new_seeds)}"
        return f"{self.test} over {sizes} seeds"

    @property
    def worst(self) -> tuple[str, Drop] | None:
        """The task that fell most."""
        tasks = [(task, drop) for task, drop in self.drops.items() if task != AVERAGE]
        return max(tasks, key=lambda item: item[1].drop) if tasks else None


@dataclass(frozen=True)
class Gate:
    """The verdict over all cells, in the order of profile, method and suite.

    Args:
        tolerance: Accepted drop of a cell's average, in the metric's unit.
        tested: Cells with a test or a limit, each at the level 1 - (1 - level) / tested.
        repeated: True if the new records repeat the reference's specification.
        strict: True if other numbers than due fail, and other versions unless they are allowed.
        overall: The average over at least two cells that were trained again, of their common seeds.
        build: Known "date", "bench" and "commit", for the history.
        rescored: Records of the reference with the same scores from their predictions.
        known_values: Number of values of bench.gate.known_values that were computed.
        wrong_values: A failed verdict for each of them that the program gets wrong.
    """

    cells: tuple[CellVerdict, ...]
    tolerance: float
    level: float
    tested: int = 0
    repeated: bool = False
    warnings: tuple[str, ...] = ()
    strict: bool = False
    overall: CellVerdict | None = None
    build: Mapping[str, str] = field(default_factory=dict)
    rescored: int = 0
    known_values: int = 0
    wrong_values: tuple[CellVerdict, ...] = ()

    @property
    def verdicts(self) -> tuple[CellVerdict, ...]:
        """The cells, wrong known values, and the average over the cells, if any."""
        cells = (*self.cells, *self.wrong_values)
        return cells if self.overall is None else (*cells, self.overall)

    def having(self, *statuses: Status) -> tuple[CellVerdict, ...]:
        """Return the verdicts of these statuses."""
        return tuple(cell for cell in self.verdicts if cell.status in statuses)

    @property
    def exit_code(self) -> int:
        """0 passed, 1 a regression, changed numbers or known values, or a broken cell, 3 not comparable."""
        if self.having(Status.DIFFERENT):
            return NotComparableError.exit_code
        return int(bool(self.having(*BAD)))


def cell_name(key: Key) -> str:
    """Name a cell in messages."""
    profile, method, suite = key
    if not profile:  # the average over cells
        return method
    return f"{method} on {suite} (profile {profile})"
