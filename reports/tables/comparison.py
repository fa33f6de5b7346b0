"""Tables of `bench compare`."""

from __future__ import annotations

from collections.abc import Mapping

from bench.compare.comparison import Comparison
from bench.compare.evidence import CheckpointPair
from bench.compare.wording import SCALE, interval, p_value, percent, points, seed_list
from bench.reports.grid import DASH, Grid
from bench.stats.correlations import CorrelationTest
from bench.stats.labels import McNemarTest

EXACT = "exact p (lowest possible)"
"""Heading of a permutation test's p, with the smallest p that so many seeds can give in parentheses."""


def task_grid(c: Comparison) -> Grid:
    """The table of tasks; seeds and items have columns of their own."""
    seeds = c.seed_level
    items = c.item_level
    single = items.checkpoints[0] if items and seeds is None and len(items.checkpoints) == 1 else None
    header = ["task", "A", "B", "A - B"]
    header += [f"seeds {percent(c.level)}", "p"] if seeds else []
    header += [EXACT] if seeds and seeds.permutations else []
    header += [f"items {percent(c.level)}", "p items"] if items else []
    tests = _tests(single) if single else {}
    header += list(tests)
    header += ["p corrected"] if c.corrected_tasks else []
    rows = []
    for task, (a, b) in c.means.items():
        row = [task, f"{SCALE * a:.2f}", f"{SCALE * b:.2f}", points(a - b)]
        if seeds:
            d = seeds.tasks[task]
            row += [interval(d.low, d.high), p_value(d.p)]
        if seeds and seeds.permutations:
            exact = seeds.permutations[task]
            row.append(f"{p_value(exact.p)} ({p_value(exact.minimum_p)})")
        if items:
            row += [interval(items.tasks[task].low, items.tasks[task].high), p_value(items.tasks[task].p)]
        row += [_p_of(by_task.get(task)) for by_task in tests.values()]
        if c.corrected_tasks:
            row.append(p_value(c.corrected_tasks[task]) if task in c.corrected_tasks else DASH)
        rows.append(tuple(row))
    sides = (
        f"{name} = {label} ({seed_list(s)})"
        for name, label, s in zip("AB", (c.first, c.second), c.seeds, strict=True)
    )
    title = f"{c.profile}, suite {c.suite}: {', '.join(sides)}"
    return Grid(title, tuple(header), tuple(rows), ())


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
                points(d.difference),
                interval(d.low, d.high),
                f"{p_value(d.p)} ({p_value(d.minimum_p)})",
                str(sum(pair.tasks[task].p <= alpha for task in names)),
                *(
                    str(sum(test is not None and test.p <= alpha for test in by_task.values()))
                    for by_task in _tests(pair).values()
                ),
            )
        )
    tests = ("bootstrap", *_tests(items.checkpoints[0]))
    header = ("seeds", "A - B", f"items {percent(c.level)}", "p (lowest possible)", *tests)
    counted = ("column counts", "two columns count", "three columns count")[len(tests) - 1]
    title = f"Checkpoint by checkpoint, on these items alone; the last {counted} the tasks "
    return Grid(f"{title}(of {len(names)}) with p <= {alpha:.2g}", header, tuple(rows), ())


def _tests(pair: CheckpointPair) -> dict[str, Mapping[str, CorrelationTest | McNemarTest | None]]:
    """The tests of a suite's checkpoints, by the heading of their column; none where there are none."""
    known: tuple[tuple[str, Mapping[str, CorrelationTest | McNemarTest | None]], ...] = (
        ("Williams", pair.williams),
        ("Steiger", pair.steiger),
        ("McNemar", pair.mcnemar),
    )
    return {name: by_task for name, by_task in known if by_task}


def _p_of(test: CorrelationTest | McNemarTest | None) -> str:
    return DASH if test is None else p_value(test.p)
