"""Tables as data: cells in the metric's unit, and texts around them."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from statistics import fmean, stdev
from typing import TypeVar

from bench.errors import printable

SCALE = 100.0  # tables print scores x 100; records, csv and json hold the metric's own unit
DASH = "-"
BEST, SECOND = "best", "second"
CAPTION = "Bold: best; underlined: second, or best where several are equal as printed."
_LEAST_P = 0.0001
K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True)
class ScoreCell:
    """One method on one task over its ``n`` finished seeds, in the metric's unit.

    Args:
        mean: Mean over the seeds, if any.
        sd: Sample standard deviation (divisor n - 1) of two seeds or more.
        mark: BEST or SECOND of its column, or "", as for ties.
        sign: Printed after it, such as a dagger.
    """

    mean: float | None
    sd: float | None
    n: int
    mark: str = ""
    sign: str = ""

    @property
    def spread(self) -> float | None:
        """The standard deviation printed with the mean."""
        return self.sd


class BareCell(ScoreCell):
    """A cell whose standard deviation has its own column, so that its text is the mean."""

    @property
    def spread(self) -> None:
        """Left out of texts; csv and json have ``sd``."""


@dataclass(frozen=True)
class Printed:
    """A number, unrounded in the metric's unit if known, with its text: rounded, in points, with marks."""

    text: str
    value: float | None

    def __str__(self) -> str:
        """Return the text."""
        return self.text


@dataclass(frozen=True)
class Quoted:
    """A figure with its printed decimals, or a text in its place, and the sign of its footnote.

    It is grey for another backbone, data or training text than ours.
    """

    text: str
    grey: bool = True
    sign: str = ""


Value = ScoreCell | Printed | Quoted | str
"""A cell of a grid."""


@dataclass(frozen=True)
class Grid:
    """A table in the formats' common form.

    Args:
        header: Names of the columns, the first that of the rows.
        rows: A label, and a cell or text for every other column.
        notes: Lines below it.
        groups: Headings of groups of rows: (number of the first row, heading).
    """

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]
    notes: tuple[str, ...]
    groups: tuple[tuple[int, str], ...] = ()

    @property
    def lines(self) -> list[tuple[str | None, tuple[Value, ...]]]:
        """Every row, with the heading above it, if any."""
        headings = dict(self.groups)
        return [(headings.get(place), row) for place, row in enumerate(self.rows)]


def summarise_values(values: Sequence[float | None]) -> ScoreCell:
    """Return the mean and standard deviation of the values that are numbers.

    >>> summarise_values([0.5, None, 0.75])
    ScoreCell(mean=0.625, sd=0.1767766952966369, n=2, mark='', sign='')
    """
    numbers = [value for value in values if value is not None]
    if len(numbers) < 2:
        return ScoreCell(mean_or_none(numbers), None, len(numbers))
    return ScoreCell(fmean(numbers), stdev(numbers), len(numbers))


def mean_or_none(values: Sequence[float]) -> float | None:
    """Return the mean of the values, if any."""
    return fmean(values) if values else None


def hide_deviation(cell: ScoreCell) -> BareCell:
    """Return a cell for a table with a column of standard deviations."""
    return BareCell(cell.mean, cell.sd, cell.n, cell.mark, cell.sign)


def mark_best(values: Mapping[K, float | None]) -> dict[K, str]:
    """Return BEST, SECOND or "" for the rows of a column, larger values being better, judged as printed.

    Several best values are all SECOND, and no other is; a single value stays unmarked.

    >>> mark_best({"a": 0.8, "b": 0.7, "c": 0.70001, "d": None})
    {'a': 'best', 'b': 'second', 'c': 'second', 'd': ''}
    """
    printed = {key: round(SCALE * value, 2) for key, value in values.items() if value is not None}
    marks = dict.fromkeys(values, "")
    if len(printed) < 2:
        return marks
    steps = sorted(set(printed.values()), reverse=True)
    leaders = [key for key, value in printed.items() if value == steps[0]]
    if len(leaders) > 1:
        return marks | dict.fromkeys(leaders, SECOND)
    followers = [key for key, value in printed.items() if value == steps[1]]
    return marks | {leaders[0]: BEST} | dict.fromkeys(followers, SECOND)


def format_number(value: float | None, form: str) -> str:
    """Return a number in a format, or a dash."""
    return DASH if value is None else format(value, form)


def format_score(value: float | None) -> str:
    """Return a score x 100 with two decimals, or a dash."""
    return DASH if value is None else f"{SCALE * value:.2f}"


def format_difference(value: float) -> str:
    """Return a difference x 100 with its sign."""
    return f"{SCALE * value:+.2f}"


def no_width(low: float, high: float) -> bool:
    """Return True for an interval of constant scores, but for rounding."""
    return high - low < 1e-12


def format_interval(low: float | None, high: float | None) -> str:
    """Return the interval of a difference x 100, or a dash, also for constant scores."""
    if low is None or high is None or no_width(low, high):
        return DASH
    return f"[{interval_end(low)}, {interval_end(high)}]"


def interval_end(value: float) -> str:
    """Return an end of an interval x 100; one near 0 keeps a digit other than 0."""
    return f"{SCALE * value:+.1g}" if 0 < abs(SCALE * value) < 0.005 else format_difference(value)


def format_p_value(p: float) -> str:
    """Return a p value with four decimals.

    >>> format_p_value(0.0312), format_p_value(0.00002)
    ('0.0312', '<0.0001')
    """
    return f"{p:.4f}" if p >= _LEAST_P else f"<{_LEAST_P}"


def plus_minus(cell: ScoreCell) -> str:
    """Return a cell's mean, its standard deviation if it has several seeds, and its sign."""
    spread = "" if cell.spread is None else f"±{SCALE * cell.spread:.2f}"
    return f"{format_score(cell.mean)}{spread}{cell.sign}"


def plain_text(cell: Value) -> str:
    """Return a cell as plain text; grey figures in parentheses."""
    if isinstance(cell, str | Printed):
        return str(cell)
    if isinstance(cell, Quoted):
        text = f"{cell.text}{cell.sign}"
        return f"({text})" if cell.grey and cell.text != DASH else text
    return plus_minus(cell)


def column_widths(grid: Grid) -> list[int]:
    """Return the characters that each column takes."""
    widths = list(map(len, grid.header))
    for row in grid.rows:
        widths = list(map(max, widths, map(len, map(plain_text, row))))
    return widths


def shorten_names(names: Iterable[str], most: int) -> dict[str, str]:
    """Return the text of each name: long ones lose their middle, and all stay distinct.

    >>> names = shorten_names(["simcse", "a" * 50 + "b" * 50, "a" * 50 + "c" + "b" * 50], 80)
    >>> [(shown[:3], shown.count("a"), shown.count("b"), len(shown)) for shown in names.values()]
    [('sim', 0, 0, 6), ('aaa', 39, 38, 80), ('aaa', 37, 36, 80)]
    """
    shown = {name: printable(" ".join(name.split("\n"))) for name in names}
    long = {name: line for name, line in shown.items() if len(line) > most}
    taken = {line for line in shown.values() if len(line) <= most}
    for name, line in long.items():
        for number in count(1):
            middle = "..." if number == 1 else f"...{number}..."
            kept = most - len(middle)
            shown[name] = line[: kept - kept // 2] + middle + line[-(kept // 2) :]
            if shown[name] not in taken:
                break
        taken.add(shown[name])
    return shown
