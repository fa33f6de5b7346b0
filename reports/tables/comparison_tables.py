"""Tables of `bench compare` and `bench stats`, and published differences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from statistics import median
from typing import Any

from bench.comparison.campaign_intervals import MethodInterval, RecordInterval
from bench.comparison.comparison import Comparison
from bench.comparison.evidence import CheckpointPair
from bench.comparison.finding import Corrected
from bench.comparison.selection import Group, format_seeds, group_by
from bench.comparison.unit_notes import describe_units
from bench.comparison.wording import (
    SCALE,
    format_difference_interval,
    format_p_value,
    format_percent,
    format_points,
    format_score_interval,
)
from bench.errors import printable
from bench.records.record import AVERAGE, RunRecord
from bench.render.grid import DASH, Grid, format_score, no_width
from bench.render.method_names import printed_name
from bench.reports.record_groups import run_label
from bench.reports.tables.published_figures import matches_setup, published_lines
from bench.stats.classification_statistics import McNemarTest
from bench.stats.correlations import CorrelationTest

LOWEST = "exact p (lowest possible)"
"""Heading of an exact test's p, with the smallest p that so many seeds can give in parentheses."""
FITTING = "corrected"
"""Heading of intervals at the level that agrees with the corrected p next to them."""
IQM = "IQM"
"""Heading of the interquartile mean."""
CROSS_CHECKS = ("Williams", "Steiger", "by clusters", "McNemar")
"""Headings of tests of the items of single checkpoints, beside the bootstrap."""
TestsByTask = Mapping[str, CorrelationTest | McNemarTest | None]


def comparison_grid(c: Comparison) -> Grid:
    """Return the table of tasks, with columns for seeds and for items."""
    items, of_items = c.item_level, c.seed_level is None
    corrected = of_items and _is_corrected(c)
    tests: dict[str, TestsByTask] = {}
    types = c.task_level.types if c.task_level else ()
    header = ["task", "A", "B", "A - B", *["type"] * bool(types), *_seed_header(c)]
    if items:
        header += [_interval_heading(c, "items", of_items), "p items", *["p corrected"] * corrected]
        tests = _checkpoint_tests(items.checkpoints[0]) if of_items and len(items.checkpoints) == 1 else {}
    kinds = dict(zip((task for task in c.means if task != AVERAGE), types, strict=bool(types)))
    rows = []
    for task, (a, b) in c.means.items():
        row = [task, f"{SCALE * a:.2f}", f"{SCALE * b:.2f}", format_points(a - b), *_seed_cells(c, task)]
        if types:
            row.append(kinds.get(task, DASH))
        if items:
            test, correction = items.tasks[task], _find_correction(c, task) if of_items else None
            row += [_interval_text(correction, (test.low, test.high)), format_p_value(test.p)]
            row += [_p_text(correction)] * corrected
        rows.append((*row, *(_p_text(by_task.get(task)) for by_task in tests.values())))
    sides = []
    for name, label, seeds in zip("AB", (c.first, c.second), c.seeds, strict=True):
        sides.append(f"{name} = {label} ({format_seeds(seeds)})")
    title = f"{c.profile}, suite {c.suite}: {', '.join(sides)}"
    return Grid(title, (*header, *tests), tuple(rows), ())


def order_columns(grid: Grid) -> list[tuple[str, ...]]:
    """Return the columns of a table of tasks of a short text, the most needed first, without cross-checks."""
    names = [name for name in grid.header[4:] if name not in CROSS_CHECKS]
    names.sort(key=lambda name: name == LOWEST)
    return [grid.header[:4], *((name,) for name in names)]


def _seed_header(c: Comparison) -> list[str]:
    if c.seed_level is None:
        return []
    exact, corrected = [LOWEST] * bool(c.seed_level.exact), ["p corrected"] * _is_corrected(c)
    return [_interval_heading(c, "seeds", True), "p", *exact, *corrected]


def _seed_cells(c: Comparison, task: str) -> list[str]:
    """Interval and p of the t test, the exact test's p, and the corrected p of the requested test."""
    if c.seed_level is None:
        return []
    test, correction = c.seed_level.tasks[task], _find_correction(c, task)
    ends = (test.low, test.high) if test.df is not None else None
    cells = [_interval_text(correction, ends), format_p_value(test.p)]
    if exact := c.seed_level.exact.get(task):
        cells.append(f"{format_p_value(exact.p)} ({format_p_value(exact.minimum_p)})")
    return [*cells, *[_p_text(correction)] * _is_corrected(c)]


def _is_corrected(c: Comparison) -> bool:
    return bool(c.corrected_tasks) or c.headline.corrected is not None


def _interval_heading(c: Comparison, level: str, own: bool) -> str:
    return f"{level}, {FITTING}" if own and _is_corrected(c) else f"{level} {format_percent(c.level)}"


def _find_correction(c: Comparison, task: str) -> Corrected | None:
    """A task among the tasks; the average, and the only task of a suite, among the comparisons."""
    if task != AVERAGE and c.corrected_tasks:
        return c.corrected_tasks.get(task)
    finding = c.find("items" if c.seed_level is None else "seeds")
    return finding.corrected if finding else None


def _interval_text(correction: Corrected | None, ends: tuple[float, float] | None) -> str:
    interval = correction.interval if correction else ends
    return format_difference_interval(*interval) if interval else DASH


def _p_text(test: Corrected | CorrelationTest | McNemarTest | None) -> str:
    return DASH if test is None else format_p_value(test.p)


def published_differences(a: Group, b: Group) -> dict[str, float]:
    """Return published differences a - b of the average in the metric's unit, by their source.

    Of rows of one table whose backbone, evaluation data and training text are those of the two methods.
    """
    sides = []
    for record in (a.runs[0].record, b.runs[0].record):
        lines = (line for line in published_lines(record) if matches_setup(record, line))
        sides.append([line for line in lines if AVERAGE in line.figures])
    differences = {}
    for one, other in product(*sides):
        if one.first.source == other.first.source:
            values = float(one.figures[AVERAGE].text) - float(other.figures[AVERAGE].text)
            differences[one.first.source] = values / SCALE
    return differences


def checkpoint_grid(c: Comparison) -> Grid | None:
    """Return the tests of the items by checkpoint, with the number of tasks that each calls different."""
    items = c.item_level
    if items is None or len(items.checkpoints) < 2:
        return None
    alpha = 1 - c.level
    rows = []
    for pair in items.checkpoints:
        bootstrap = {task: test for task, test in pair.tasks.items() if task != AVERAGE}
        tests: dict[str, Mapping[str, Any]] = {"bootstrap": bootstrap, **_checkpoint_tests(pair)}
        counts = []
        for by_task in tests.values():
            counts.append(str(sum(test is not None and test.p <= alpha for test in by_task.values())))
        average = pair.tasks[AVERAGE]
        seeds = " and ".join(dict.fromkeys("none" if seed is None else str(seed) for seed in pair.seeds))
        ends = format_difference_interval(average.low, average.high)
        p = f"{format_p_value(average.p)} ({format_p_value(average.minimum_p)})"
        rows.append((seeds, format_points(average.difference), ends, p, *counts))
    header = ("seeds", "A - B", f"items {format_percent(c.level)}", "p (lowest possible)", *tests)
    counted = ("column counts", "two columns count", "three columns count", "four columns count")
    last = counted[len(tests) - 1]
    title = f"Checkpoint by checkpoint, on these items alone; the last {last} the tasks "
    return Grid(f"{title}(of {len(pair.tasks) - 1}) with p <= {alpha:.2g}", header, tuple(rows), ())


def _checkpoint_tests(pair: CheckpointPair) -> dict[str, TestsByTask]:
    """The tests of a suite's checkpoints, by the heading of their column."""
    tests: dict[str, TestsByTask]
    tests = dict(zip(CROSS_CHECKS, (pair.williams, pair.steiger, pair.clustered, pair.mcnemar), strict=True))
    return {name: by_task for name, by_task in tests.items() if by_task}


def describe_record_intervals(
    methods: Sequence[MethodInterval], records: Sequence[RecordInterval]
) -> list[str]:
    """Return a line for every profile and suite: its records, its highest average, the widths over items."""
    lines = []
    places = group_by(records, lambda record: (record.profile, record.suite))
    for (profile, suite), own in places.items():
        names = {record.method for record in own}
        line = f"{suite}, {profile}: {len(own)} records of {len(names)} methods"
        spans = [record.intervals[AVERAGE] for record in own if record.intervals]
        if spans:
            width = median(high - low for low, high in spans)
            line += f", intervals over items {SCALE * width:.2f} points wide (median)"
        if len(spans) < len(own):
            line += f", {len(own) - len(spans)} without one"
        seeded = [one for one in methods if (one.profile, one.suite) == (profile, suite) and one.interval]
        if seeded:
            top = max(seeded, key=lambda one: one.mean)
            line += f"; highest over seeds: {printed_name(printable(top.method))} {format_score(top.mean)} "
            line += _span_text(top.interval)
        lines.append(line)
    return lines


def failure_notes(records: Sequence[RunRecord]) -> list[str]:
    """Return the note on failed records, which no table of intervals has."""
    names = [printable(run_label(record)) for record in records]
    return [f"Failed, so without an interval: {', '.join(names)}."] if names else []


def method_interval_grid(methods: list[MethodInterval], campaign: str, level: float) -> Grid:
    """Return the table of each method's interval over seeds."""
    rows = []
    for one in methods:
        scores = format_score(one.mean), format_score(one.sd), _span_text(one.interval), format_score(one.iqm)
        rows.append((printable(one.method), one.profile, one.suite, format_seeds(one.seeds), *scores))
    header = ("method", "profile", "suite", "seeds", "avg", "sd", f"seeds {format_percent(level)}", IQM)
    notes = (
        "seeds: Student's interval of the mean, for new seeds.",
        "IQM: mean of the middle half of the scores over seeds and tasks; nothing is concluded from it.",
    )
    return Grid(f"Methods of campaign {campaign}", header, tuple(rows), notes)


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
    return Grid("Records", header, tuple(rows), (note, *_unit_notes(records), *notes))


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
        "interval, which has a width where all items are right or none; otherwise percentiles of draws."
    )
    return Grid("Tasks", header, tuple(rows), (note,))


def _unit_notes(records: list[RecordInterval]) -> list[str]:
    """Return notes on the sampling units of each suite."""
    notes: list[str] = []
    for one in records:
        if one.units is not None:
            notes += describe_units(one.suite, one.units, differences=False)
    return list(dict.fromkeys(notes))


def _record_cells(one: RecordInterval) -> tuple[str, str, str, str]:
    return printable(one.method), one.profile, one.suite, DASH if one.seed is None else str(one.seed)


def _span_text(ends: tuple[float, float] | None) -> str:
    """An interval, or a dash for equal ends."""
    return DASH if ends is None or no_width(*ends) else format_score_interval(*ends)
