"""Measured coverage of intervals and error rates of tests: ``coverage.csv`` of ``benchmarks/coverage.py``."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable
from dataclasses import astuple, dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

TABLE = Path(__file__).with_name("coverage.csv")
TOLERANCE = 0.02  # a nominal 95% may be 93 to 97%


@dataclass(frozen=True)
class CoverageRow:
    """One procedure in one setting.

    Args:
        n_a: Seeds of a, or pairs; ``n_b`` is 1 for the one score of a deterministic method.
        target: Population of the statement, such as "further seeds".
        nominal: Level of an interval, or error rate of a test, if claimed.
        measured: Share of simulations whose interval held the true value, or whose test was wrong.
    """

    method: str
    design: str
    n_a: int
    n_b: int
    correlation: float | None
    target: str
    nominal: float | None
    measured: float
    simulations: int
    low: float
    high: float

    @property
    def keeps(self) -> bool | None:
        """True if the procedure is at most 2 points worse than nominal, if it has a level."""
        if self.nominal is None:
            return None
        short = self.nominal - self.measured if self.nominal > 0.5 else self.measured - self.nominal
        return short <= TOLERANCE

    @property
    def exact(self) -> bool | None:
        """True if the measured rate is within 2 points of nominal, if there is one."""
        return None if self.nominal is None else abs(self.measured - self.nominal) <= TOLERANCE


def write_coverage(rows: Iterable[CoverageRow], path: Path = TABLE) -> None:
    """Write rows as CSV under a header.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_coverage(read_coverage()[:3], Path(folder) / "some.csv")
    ...     read_coverage(Path(folder) / "some.csv") == read_coverage()[:3]
    True
    """
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([field.name for field in fields(CoverageRow)])
        writer.writerows(map(astuple, rows))


def read_coverage(path: Path = TABLE) -> tuple[CoverageRow, ...]:
    """Read the rows that :func:`write_coverage` wrote, in their order.

    >>> next(row.method for row in read_coverage())
    'welch'
    """
    with path.open(encoding="utf-8", newline="") as file:
        return tuple(_parse_row(cells) for cells in csv.DictReader(file))


_load_table = cache(read_coverage)


def find_coverage(
    method: str,
    n_a: int,
    n_b: int,
    correlation: float | None = None,
    *,
    design: str | None = None,
    target: str | None = None,
    rows: Iterable[CoverageRow] | None = None,
) -> CoverageRow:
    """Return the row that fits a procedure and its numbers of seeds.

    The row has the nearest numbers, by the sum of |log(n / measured n)| over both sides. A tie goes to the
    row with fewer seeds. Sides of equal spread are exchangeable.

    Args:
        n_a: Seeds of a, or pairs; of the side with the larger spread where spreads are unequal.
        n_b: Seeds of b; 1 for a deterministic method.
        correlation: Of the pairs: the nearest measured one. None: rows of independent sides, if any.
        design: Distribution of the scores; default the method's first.
        target: Population; default the method's first in that design.

    >>> row = find_coverage("welch", 7, 20)
    >>> row.n_a, row.n_b
    (5, 10)
    >>> round(find_coverage("paired t", 5, 5, correlation=0.97).correlation, 2)
    0.99
    """
    if min(n_a, n_b) < 1:
        raise ValueError(f"{n_a} against {n_b} seeds; expected at least 1")
    if rows is None:
        fitting = _fitting_rows(method, design, target)
    else:
        fitting = _filter_methods(rows, method, design, target)
    if correlation is None:
        fitting = [row for row in fitting if row.correlation is None] or fitting
    else:
        fitting = _nearest_correlation(fitting, correlation)
    fixed_score = min(n_a, n_b) == 1
    fitting = [row for row in fitting if (row.n_b == 1) == fixed_score] or fitting
    return min(fitting, key=lambda row: (_seed_distance(row, n_a, n_b), row.n_a + row.n_b))


@cache
def _fitting_rows(method: str, design: str | None, target: str | None) -> list[CoverageRow]:
    return _filter_methods(_load_table(), method, design, target)


def _filter_methods(
    rows: Iterable[CoverageRow], method: str, design: str | None, target: str | None
) -> list[CoverageRow]:
    fitting = [row for row in rows if row.method == method]
    fitting = _filter_rows(fitting, "design", design)
    fitting = _filter_rows(fitting, "target", target)
    if not fitting:
        raise ValueError(f"no coverage was measured of '{method}' (design {design}, target {target})")
    return fitting


LARGE_CLUSTERS = (", STS13", ", STS16", ", SICKR")
"""Ends of designs with the pairs of a task of which one cluster holds more than a tenth."""


def find_cluster_coverage(method: str, rows: Iterable[CoverageRow] | None = None) -> CoverageRow:
    """Return the row of a method with the lowest coverage where one cluster holds much of a task.

    >>> find_cluster_coverage("paired bootstrap").measured > 0.92
    True
    """
    table = _load_table() if rows is None else rows
    return min(
        (row for row in table if row.method == method and row.design.endswith(LARGE_CLUSTERS)),
        key=lambda row: row.measured,
    )


def _filter_rows(rows: list[CoverageRow], field: str, value: str | None) -> list[CoverageRow]:
    """Return the rows with a value; default that of the first row."""
    wanted = getattr(rows[0], field) if rows and value is None else value
    return [row for row in rows if getattr(row, field) == wanted]


def _nearest_correlation(rows: list[CoverageRow], correlation: float) -> list[CoverageRow]:
    """Return the rows of the nearest correlation by Fisher's z; all rows of a method that has no pairs."""
    measured = {row.correlation for row in rows if row.correlation is not None}
    if not measured:
        return rows
    z = math.atanh(min(max(correlation, 0.0), 0.999))
    nearest = min(measured, key=lambda value: abs(math.atanh(value) - z))
    return [row for row in rows if row.correlation == nearest]


def _seed_distance(row: CoverageRow, n_a: int, n_b: int) -> float:
    distance = abs(math.log(n_a / row.n_a)) + abs(math.log(n_b / row.n_b))
    if not row.design.startswith("spread"):
        distance = min(distance, abs(math.log(n_a / row.n_b)) + abs(math.log(n_b / row.n_a)))
    return round(distance, 9)


def _parse_row(cells: dict[str, str]) -> CoverageRow:
    row: dict[str, Any] = dict(cells)
    for name in ("correlation", "nominal", "measured", "low", "high"):
        row[name] = float(cells[name]) if cells[name] else None
    for name in ("n_a", "n_b", "simulations"):
        row[name] = int(cells[name])
    return CoverageRow(**row)
