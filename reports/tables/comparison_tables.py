"""Tables of `bench compare`, and the published differences that it checks."""

from __future__ import annotations

from collections.abc import Mapping

from bench.comparison.comparison import Comparison
from bench.comparison.evidence import CheckpointPair
from bench.comparison.finding import Corrected
from bench.comparison.render import (
    SCALE,
    format_difference_interval,
    format_p_value,
    format_percent,
    format_points,
)
from bench.comparison.selection import Group, format_seeds
from bench.records.record import AVERAGE
from bench.render.grid import DASH, Grid
from bench.reports.tables.published_figures import matches_setup, published_lines
from bench.stats.correlations import CorrelationTest
from bench.stats.labels import McNemarTest

LOWEST = "exact p (lowest possible)"
"""Heading of an exact test's p, with the smallest p that so many seeds can give in parentheses."""
FITTING = "corrected"
"""Heading of intervals at the level that agrees with the corrected p beside them."""


def comparison_grid(c: Comparison) -> Grid:
    """The table of tasks; seeds and items have columns of their own, a corrected p stands by its test."""
    items, of_items = c.item_level, c.seed_level is None
    single = items.checkpoints[0] if items and of_items and len(items.checkpoints) == 1 else None
    tests = _checkpoint_tests(single) if single else {}
    header = ["task", "A", "B", "A - B", *_seed_header(c)]
    header += [_interval_heading(c, "items", of_items), "p items"] if items else []
    header += ["p corrected"] if items and of_items and _is_corrected(c) else []
    rows = []
    for task, (a, b) in c.means.items():
        row = [task, f"{SCALE * a:.2f}", f"{SCALE * b:.2f}", format_points(a - b), *_seed_cells(c, task)]
        if items:
            d, own = items.tasks[task], _find_correction(c, task) if of_items else None
            row += [_interval_text(own, (d.low, d.high)), format_p_value(d.p)]
            row += [format_p_value(own.p) if own else DASH] if of_items and _is_corrected(c) else []
        row += [_test_p(by_task.get(task)) for by_task in tests.values()]
        rows.append(tuple(row))
    sides = (
        f"{name} = {label} ({format_seeds(s)})"
        for name, label, s in zip("AB", (c.first, c.second), c.seeds, strict=True)
    )
    title = f"{c.profile}, suite {c.suite}: {', '.join(sides)}"
    return Grid(title, (*header, *tests), tuple(rows), ())


def _seed_header(c: Comparison) -> list[str]:
    if c.seed_level is None:
        return []
    exact = [LOWEST] if c.seed_level.exact else []
    return [_interval_heading(c, "seeds", True), "p", *exact, *(["p corrected"] if _is_corrected(c) else [])]


def _seed_cells(c: Comparison, task: str) -> list[str]:
    """Interval and p of the t test, the exact test's p, and the p after correction of the one asked for."""
    if c.seed_level is None:
        return []
    d, own = c.seed_level.tasks[task], _find_correction(c, task)
    cells = [_interval_text(own, (d.low, d.high) if d.df is not None else None), format_p_value(d.p)]
    if exact := c.seed_level.exact.get(task):
        cells.append(f"{format_p_value(exact.p)} ({format_p_value(exact.minimum_p)})")
    return [*cells, format_p_value(own.p) if own else DASH] if _is_corrected(c) else cells


def _is_corrected(c: Comparison) -> bool:
    return bool(c.corrected_tasks) or c.corrected is not None


def _interval_heading(c: Comparison, what: str, own: bool) -> str:
    return f"{what}, {FITTING}" if own and _is_corrected(c) else f"{what} {format_percent(c.level)}"


def _find_correction(c: Comparison, task: str) -> Corrected | None:
    """A task among the tasks; the average, and the only task of a suite, among the comparisons."""
    if task != AVERAGE and c.corrected_tasks:
        return c.corrected_tasks.get(task)
    found = c.of("items" if c.seed_level is None else "seeds")
    return found.corrected if found else None


def _interval_text(own: Corrected | None, ends: tuple[float, float] | None) -> str:
    shown = own.interval if own else ends
    return format_difference_interval(*shown) if shown else DASH


def published_differences(a: Group, b: Group) -> dict[str, float]:
    """Return published differences a - b of the average in the metric's unit, by their source.

    Of rows of one table whose backbone, evaluation data and training text are those of the two methods.

    Args:
        a: One side.
        b: The other.
    """
    rows = [
        [line for line in published_lines(group.runs[0].record) if matches_setup(group.runs[0].record, line)]
        for group in (a, b)
    ]
    return {
        one.first.source: (float(one.figures[AVERAGE].text) - float(other.figures[AVERAGE].text)) / SCALE
        for one in rows[0]
        for other in rows[1]
        if one.first.source == other.first.source and AVERAGE in one.figures and AVERAGE in other.figures
    }


def checkpoint_grid(c: Comparison) -> Grid | None:
    """Checkpoint by checkpoint, with the number of tasks that each test of the items calls different."""
    items = c.item_level
    if items is None or len(items.checkpoints) < 2:
        return None
    alpha = 1 - c.level
    rows = []
    for pair in items.checkpoints:
        d = pair.tasks["avg"]
        names = [task for task in pair.tasks if task != "avg"]
        rows.append(
            (
                " and ".join(dict.fromkeys("none" if seed is None else str(seed) for seed in pair.seeds)),
                format_points(d.difference),
                format_difference_interval(d.low, d.high),
                f"{format_p_value(d.p)} ({format_p_value(d.minimum_p)})",
                str(sum(pair.tasks[task].p <= alpha for task in names)),
                *(
                    str(sum(test is not None and test.p <= alpha for test in by_task.values()))
                    for by_task in _checkpoint_tests(pair).values()
                ),
            )
        )
    tests = ("bootstrap", *_checkpoint_tests(items.checkpoints[0]))
    header = ("seeds", "A - B", f"items {format_percent(c.level)}", "p (lowest possible)", *tests)
    counted = ("column counts", "two columns count", "three columns count")[len(tests) - 1]
    title = f"Checkpoint by checkpoint, on these items alone; the last {counted} the tasks "
    return Grid(f"{title}(of {len(names)}) with p <= {alpha:.2g}", header, tuple(rows), ())


def _checkpoint_tests(pair: CheckpointPair) -> dict[str, Mapping[str, CorrelationTest | McNemarTest | None]]:
    """The tests of a suite's checkpoints, by the heading of their column; none where there are none."""
    known: tuple[tuple[str, Mapping[str, CorrelationTest | McNemarTest | None]], ...] = (
        ("Williams", pair.williams),
        ("Steiger", pair.steiger),
        ("McNemar", pair.mcnemar),
    )
    return {name: by_task for name, by_task in known if by_task}


def _test_p(test: CorrelationTest | McNemarTest | None) -> str:
    return DASH if test is None else format_p_value(test.p)
