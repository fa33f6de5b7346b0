"""Tables of `bench stats`."""

from __future__ import annotations

from bench.comparison.intervals import MethodInterval, RecordInterval
from bench.comparison.render import percent, span
from bench.comparison.select import seed_list
from bench.errors import printable
from bench.render.grid import DASH, Grid, no_width, number


def method_grid(methods: list[MethodInterval], campaign: str, level: float) -> Grid:
    """Return the table of each method's interval over seeds."""
    rows = tuple(
        (
            printable(one.method),
            one.profile,
            one.suite,
            seed_list(one.seeds),
            number(one.mean),
            number(one.sd),
            _span(one.interval),
            number(one.iqm),
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
    rows = tuple(
        (
            printable(one.method),
            one.profile,
            one.suite,
            DASH if one.seed is None else str(one.seed),
            number(one.scores["avg"]),
            _span(one.intervals["avg"] if one.intervals else None),
        )
        for one in records
    )
    header = ("method", "profile", "suite", "seed", "avg", f"items {percent(level)}")
    note = (
        "items: percentile interval of that checkpoint's average, allowing for other test items "
        f"({draws:,} draws); --tasks has every task's."
    )
    return Grid("Records", header, rows, (note, *notes))


def task_grid(records: list[RecordInterval], level: float) -> Grid:
    """Return the table of each record's tasks with their intervals over items."""
    rows = tuple(
        (
            *(printable(one.method), one.profile, one.suite, DASH if one.seed is None else str(one.seed)),
            *(task, number(value), _span((one.intervals or {}).get(task))),
        )
        for one in records
        for task, value in one.scores.items()
        if task != "avg"
    )
    header = ("method", "profile", "suite", "seed", "task", "score", f"items {percent(level)}")
    note = (
        "items: that checkpoint's interval, allowing for other test items: of an accuracy Wilson's score "
        "interval, which has a width where all items are right or none; else percentiles of draws."
    )
    return Grid("Tasks", header, rows, (note,))


def _span(ends: tuple[float, float] | None) -> str:
    """An interval, or a dash where nothing varied."""
    return DASH if ends is None or no_width(*ends) else span(*ends)
