"""Tables of `bench stats`."""

from __future__ import annotations

from bench.comparison.campaign_intervals import MethodInterval, RecordInterval
from bench.comparison.selection import format_seeds
from bench.comparison.wording import format_percent, format_score_interval
from bench.errors import printable
from bench.render.grid import DASH, Grid, format_score, no_width


def method_interval_grid(methods: list[MethodInterval], campaign: str, level: float) -> Grid:
    """Return the table of each method's interval over seeds."""
    rows = []
    for one in methods:
        scores = format_score(one.mean), format_score(one.sd), _span_text(one.interval), format_score(one.iqm)
        rows.append((printable(one.method), one.profile, one.suite, format_seeds(one.seeds), *scores))
    header = ("method", "profile", "suite", "seeds", "avg", "sd", f"seeds {format_percent(level)}", "IQM")
    note = (
        "seeds: Student's interval of the mean, allowing for other seeds. IQM: mean of the middle half of "
        "the scores over seeds and tasks; nothing is concluded from it."
    )
    return Grid(f"Methods of campaign {campaign}", header, tuple(rows), (note,))


def record_interval_grid(
    records: list[RecordInterval], level: float, draws: int, notes: tuple[str, ...]
) -> Grid:
    """Return the table of each record's interval over items."""
    rows = []
    for one in records:
        ends = one.intervals["avg"] if one.intervals else None
        rows.append((*_record_cells(one), format_score(one.scores["avg"]), _span_text(ends)))
    header = ("method", "profile", "suite", "seed", "avg", f"items {format_percent(level)}")
    note = (
        "items: percentile interval of that checkpoint's average, allowing for other test items "
        f"({draws:,} draws); --tasks has every task's."
    )
    return Grid("Records", header, tuple(rows), (note, *notes))


def task_interval_grid(records: list[RecordInterval], level: float) -> Grid:
    """Return the table of each record's tasks with their intervals over items."""
    rows = []
    for one in records:
        for task, value in one.scores.items():
            if task != "avg":
                ends = (one.intervals or {}).get(task)
                rows.append((*_record_cells(one), task, format_score(value), _span_text(ends)))
    header = ("method", "profile", "suite", "seed", "task", "score", f"items {format_percent(level)}")
    note = (
        "items: that checkpoint's interval, allowing for other test items: of an accuracy Wilson's score "
        "interval, which has a width where all items are right or none; else percentiles of draws."
    )
    return Grid("Tasks", header, tuple(rows), (note,))


def _record_cells(one: RecordInterval) -> tuple[str, str, str, str]:
    return printable(one.method), one.profile, one.suite, DASH if one.seed is None else str(one.seed)


def _span_text(ends: tuple[float, float] | None) -> str:
    """An interval, or a dash for one without width."""
    return DASH if ends is None or no_width(*ends) else format_score_interval(*ends)
