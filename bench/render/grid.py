"""What any table prints, free of records: cells in the metric's unit, and texts around them."""

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
K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True)
class ScoreCell:
    """One method on one task over its seeds, in the metric's unit.

    Args:
        mean: Mean over the seeds that finished, None if none did.
        sd: Sample standard deviation (divisor n - 1), None for fewer than two.
        n: Number of seeds that it is the mean of.
        mark: BEST or SECOND of its column, or "": a tie is never a win.
        sign: What is printed after it, such as a dagger.
    """

    mean: float | None
    sd: float | None
    n: int
    mark: str = ""
    sign: str = ""

    @property
    def spread(self) -> float | None:
        """The standard deviation that is printed beside the mean."""
        return self.sd


class BareCell(ScoreCell):
    """A cell whose standard deviation has a column of its own: as text it is the mean alone."""

    @property
    def spread(self) -> None:
        """None: csv and json have ``sd``."""


@dataclass(frozen=True)
class Printed:
    """A number, and how it is printed.

    Args:
        text: Rounded, in points, with marks around it; all that texts, pages and LaTeX show.
        value: The number unrounded, in the metric's unit; None where the text says why there is none.
    """

    text: str
    value: float | None

    def __str__(self) -> str:
        """Return the text."""
        return self.text


@dataclass(frozen=True)
class Quoted:
    """A figure that a paper prints.

    Args:
        text: The number with its printed decimals, or what is said in its place.
        grey: True where backbone, data or training text are not ours.
        sign: Of its footnote.
    """

    text: str
    grey: bool = True
    sign: str = ""


Value = ScoreCell | Printed | Quoted | str
"""What a row of a grid consists of."""


@dataclass(frozen=True)
class Grid:
    """A table: all that the formats take.

    Args:
        title: What it shows.
        header: Names of the columns, the first that of the rows.
        rows: A label and a cell or text for every other column.
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
        """Every row, with the heading that stands above it or None."""
        headings = dict(self.groups)
        return [(headings.get(place), row) for place, row in enumerate(self.rows)]


def summarise_values(values: Sequence[float | None]) -> ScoreCell:
    """Mean and standard deviation of the values that are there.

    >>> summarise_values([0.5, None, 0.75])
    ScoreCell(mean=0.625, sd=0.1767766952966369, n=2, mark='', sign='')
    """
    there = [value for value in values if value is not None]
    return ScoreCell(fmean(there) if there else None, stdev(there) if len(there) > 1 else None, len(there))


def hide_deviation(cell: ScoreCell) -> BareCell:
    """Return a cell for a table that has a column of its standard deviations."""
    return BareCell(cell.mean, cell.sd, cell.n, cell.mark, cell.sign)


def mark_best(values: Mapping[K, float | None], digits: int = 4) -> dict[K, str]:
    """Mark a column's best and second, larger being better, judged as printed.

    Args:
        values: By row, None where there is none.
        digits: Decimals that tell values apart; 4 for scores that are printed x 100 with two.

    Returns:
        By row BEST, SECOND or "". Where several are best they are SECOND and no other is; a column with one
        value has no mark.

    >>> mark_best({"a": 0.8, "b": 0.7, "c": 0.70001, "d": None})
    {'a': 'best', 'b': 'second', 'c': 'second', 'd': ''}
    """
    printed = {key: round(SCALE * value, digits - 2) for key, value in values.items() if value is not None}
    found = dict.fromkeys(values, "")
    steps = sorted(set(printed.values()), reverse=True)
    if len(printed) < 2:
        return found
    leaders = [key for key, value in printed.items() if value == steps[0]]
    followers = [key for key, value in printed.items() if len(steps) > 1 and value == steps[1]]
    if len(leaders) > 1:
        return found | dict.fromkeys(leaders, SECOND)
    return found | {leaders[0]: BEST} | dict.fromkeys(followers, SECOND)


def format_score(value: float | None) -> str:
    """Scaled by 100 with two decimals, or a dash."""
    return DASH if value is None else f"{SCALE * value:.2f}"


def format_difference(value: float) -> str:
    """A difference, scaled by 100, with its sign."""
    return f"{SCALE * value:+.2f}"


def no_width(low: float, high: float) -> bool:
    """True for an interval of scores that didn't vary, but for rounding: it says nothing."""
    return high - low < 1e-12


def format_interval(low: float | None, high: float | None) -> str:
    """The interval of a difference, scaled by 100, or a dash; that of scores that didn't vary is none."""
    if low is None or high is None or no_width(low, high):
        return DASH
    return f"[{interval_end(low)}, {interval_end(high)}]"


def interval_end(value: float) -> str:
    """An end of an interval; one near 0 keeps a digit that says on which side."""
    return f"{SCALE * value:+.1g}" if 0 < abs(SCALE * value) < 0.005 else format_difference(value)


def plus_minus(cell: ScoreCell) -> str:
    """Mean and standard deviation of a cell, the latter only where there are several seeds, and its sign."""
    return (
        format_score(cell.mean) + ("" if cell.spread is None else f"±{SCALE * cell.spread:.2f}") + cell.sign
    )


def plain_text(cell: Value) -> str:
    """A cell as plain text; foreign figures in parentheses."""
    if isinstance(cell, str | Printed):
        return str(cell)
    if isinstance(cell, Quoted):
        text = f"{cell.text}{cell.sign}"
        return f"({text})" if cell.grey and cell.text != DASH else text
    return plus_minus(cell)


def shorten_names(names: Iterable[str], most: int) -> dict[str, str]:
    """Return what is shown for each name: long ones lose their middle, and no two become the same.

    Args:
        names: The names.
        most: Characters that have room.

    >>> found = shorten_names(["simcse", "a" * 50 + "b" * 50, "a" * 50 + "c" + "b" * 50], 80)
    >>> [(shown[:3], shown.count("a"), shown.count("b"), len(shown)) for shown in found.values()]
    [('sim', 0, 0, 6), ('aaa', 39, 38, 80), ('aaa', 37, 36, 80)]
    """
    shown = {name: printable(" ".join(name.split("\n"))) for name in names}
    long = {name: line for name, line in shown.items() if len(line) > most}
    taken = {line for name, line in shown.items() if name not in long}
    for name, line in long.items():
        cuts = (_cut_middle(line, "..." if number == 1 else f"...{number}...", most) for number in count(1))
        shown[name] = next(cut for cut in cuts if cut not in taken)
        taken.add(shown[name])
    return shown


def _cut_middle(line: str, middle: str, most: int) -> str:
    kept = most - len(middle)
    return line[: kept - kept // 2] + middle + line[-(kept // 2) :]
