"""Tables of `bench stats`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bench.compare.intervals import MethodInterval, RecordInterval
    from bench.reports.grid import Grid


def method_grid(methods: list[MethodInterval], campaign: str, level: float) -> Grid:
    """Return the table of each method's interval over seeds."""
    from bench.compare.wording import SCALE, percent, seed_list, span
    from bench.errors import printable
    from bench.reports.grid import Grid

    rows = tuple(
        (
            printable(one.method),
            one.profile,
            one.suite,
            seed_list(one.seeds),
            f"{SCALE * one.mean:.2f}",
            "-" if one.sd is None else f"{SCALE * one.sd:.2f}",
            "-" if one.interval is None else span(*one.interval),
            f"{SCALE * one.iqm:.2f}",
        )
        for one in methods
    )
    header = ("method", "profile", "suite", "seeds", "avg", "sd", f"seeds {percent(level)}", "IQM")
    note = (
        "seeds: Student's interval of the mean, allowing for other seeds. IQM: mean of the middle half of "
        "the scores over seeds and tasks; nothing is concluded from it."
    )
    return Grid(f"Methods of campaign {campaign}", header, rows, (note,))


def record_grid(records: list[RecordInterval], level: float, draws: int, notes: tuple[str, ...]) -> Grid:
    """Return the table of each record's interval over items."""
    from bench.compare.wording import SCALE, percent, span
    from bench.errors import printable
    from bench.reports.grid import Grid

    rows = tuple(
        (
            printable(one.method),
            one.profile,
            one.suite,
            "-" if one.seed is None else str(one.seed),
            f"{SCALE * one.scores['avg']:.2f}",
            "-" if one.intervals is None else span(*one.intervals["avg"]),
        )
        for one in records
    )
    header = ("method", "profile", "suite", "seed", "avg", f"items {percent(level)}")
    note = (
        "items: percentile interval of that checkpoint's average, allowing for other test pairs "
        f"({draws:,} draws); --format json has every task's."
    )
    return Grid("Records", header, rows, (note, *notes))
