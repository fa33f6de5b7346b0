"""What the procedures of this folder were measured to do: how often intervals hold, and tests are wrong.

``coverage.csv`` beside this file is written by ``benchmarks/coverage.py``. Each row is a simulation of one
procedure in one setting. Whoever prints an interval quotes the row that fits it: :func:`measured`.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable
from dataclasses import astuple, dataclass, fields
from functools import cache
from pathlib import Path

TABLE = Path(__file__).with_name("coverage.csv")
TOLERANCE = 0.02  # of a nominal 95%, 93 to 97% are as promised


@dataclass(frozen=True)
class CoverageRow:
    """One procedure in one setting.

    Args:
        method: The procedure, such as "welch" or "paired t".
        design: How the scores were drawn, such as "normal" or "collapse".
        n_a: Seeds of a, or pairs.
        n_b: Seeds of b; 1 for the one score of a deterministic method.
        correlation: Of the pairs; None where the sides are independent.
        target: What the interval or test is asked to speak for, such as "further seeds".
        nominal: What it promises: the level of an interval, the error rate of a test. None for a rule that
            promises nothing.
        measured: The share of simulations in which the interval held the true value, or the test was wrong.
        simulations: Their number.
        low: Lower end of the 99% interval of ``find_coverage`` (Clopper and Pearson).
        high: Upper end.
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
        """Whether it keeps its promise to 2 points; None where it makes none.

        An interval may hold more often than promised, and a test be wrong more seldom: that errs on the safe
        side.
        """
        if self.nominal is None:
            return None
        short = self.nominal - self.measured if self.nominal > 0.5 else self.measured - self.nominal
        return short <= TOLERANCE

    @property
    def exact(self) -> bool | None:
        """Whether it is within 2 points of its promise on both sides; None where it makes none."""
        return None if self.nominal is None else abs(self.measured - self.nominal) <= TOLERANCE


def write_coverage(rows: Iterable[CoverageRow], path: Path = TABLE) -> None:
    """Write rows as CSV, the first line their names.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_coverage(read_coverage()[:3], Path(folder) / "some.csv")
    ...     read_coverage(Path(folder) / "some.csv") == read_coverage()[:3]
    True
    """
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([field.name for field in fields(CoverageRow)])
        writer.writerows(["" if cell is None else cell for cell in astuple(row)] for row in rows)


def read_coverage(path: Path = TABLE) -> tuple[CoverageRow, ...]:
    """Read what :func:`write` wrote, in its order.

    >>> next(row.method for row in read_coverage())
    'welch'
    """
    with path.open(encoding="utf-8", newline="") as file:
        return tuple(_parse_row(cells) for cells in csv.DictReader(file))


@cache
def _load_table() -> tuple[CoverageRow, ...]:
    return read_coverage()


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

    The row with the nearest numbers, by the sum of |log(n / measured n)| of both sides; of two as near, the
    one with fewer seeds. Two sides of equal spread may be turned round. A side without seeds fits only rows
    of one, where the method has any. A row carries its own n, so that what is quoted can be said of these:
    "with 5 seeds per side".

    Args:
        method: The procedure, as the table names it.
        n_a: Seeds of a, or pairs. Where spreads are unequal, of the side with the larger one.
        n_b: Seeds of b; 1 for a deterministic method.
        correlation: Of the pairs: the nearest that was measured. None: only rows of independent sides, if the
            method has any.
        design: How scores are spread; default the method's first, its plain one.
        target: What it is to speak for; default the method's first in that design.
        rows: The table; default the one beside this file.

    Raises:
        ValueError: no row of that method, design and target, or numbers below 1.

    >>> found = find_coverage("welch", 7, 20)
    >>> found.n_a, found.n_b
    (5, 10)
    >>> round(find_coverage("paired t", 5, 5, correlation=0.97).correlation, 2)
    0.99
    """
    if min(n_a, n_b) < 1:
        raise ValueError(f"{n_a} against {n_b} seeds; expected at least 1")
    found = [row for row in (_load_table() if rows is None else rows) if row.method == method]
    found = _filter_rows(found, "design", design)
    found = _filter_rows(found, "target", target)
    if not found:
        raise ValueError(f"no coverage was measured of '{method}' (design {design}, target {target})")
    if correlation is None:
        found = [row for row in found if row.correlation is None] or found
    else:
        found = _nearest_correlation(found, correlation)
    alone = min(n_a, n_b) == 1
    found = [row for row in found if (row.n_b == 1) == alone] or found
    return min(found, key=lambda row: (_seed_distance(row, n_a, n_b), row.n_a + row.n_b))


def _filter_rows(rows: list[CoverageRow], name: str, value: str | None) -> list[CoverageRow]:
    """The rows with a value; of the first row's where none is given."""
    wanted = getattr(rows[0], name) if rows and value is None else value
    return [row for row in rows if getattr(row, name) == wanted]


def _nearest_correlation(rows: list[CoverageRow], correlation: float) -> list[CoverageRow]:
    """Rows of the correlation nearest by Fisher's z; independent sides where the method has no pairs."""
    known = {row.correlation for row in rows if row.correlation is not None}
    if not known:
        return rows
    z = math.atanh(min(max(correlation, 0.0), 0.999))
    nearest = min(known, key=lambda value: abs(math.atanh(value) - z))
    return [row for row in rows if row.correlation == nearest]


def _seed_distance(row: CoverageRow, n_a: int, n_b: int) -> float:
    """How far a row's numbers of seeds are from others."""
    ways = [(row.n_a, row.n_b), (row.n_b, row.n_a)][: 1 if row.design.startswith("spread") else 2]
    return round(min(abs(math.log(n_a / one)) + abs(math.log(n_b / other)) for one, other in ways), 9)


def _parse_row(cells: dict[str, str]) -> CoverageRow:
    def number(name: str) -> float | None:
        return float(cells[name]) if cells[name] else None

    return CoverageRow(
        cells["method"],
        cells["design"],
        int(cells["n_a"]),
        int(cells["n_b"]),
        number("correlation"),
        cells["target"],
        number("nominal"),
        float(cells["measured"]),
        int(cells["simulations"]),
        float(cells["low"]),
        float(cells["high"]),
    )
