"""``bench compare``."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click

from bench.cli_options import NumberRange, progress_bar, results_options
from bench.errors import InputError

if TYPE_CHECKING:
    from bench.compare import Comparison
    from bench.levels import CheckpointPair, DrawItems
    from bench.reports.table import Grid
    from bench.stats.draws import Draws, Run

WHERE = "bench compare"
F = TypeVar("F", bound=Callable[..., Any])


def item_options(function: F) -> F:
    """Add what commands on intervals share: --level, --draws, --data and --format."""
    for option in (
        click.option(
            "--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True
        ),
        click.option(
            "--data", "data_dir", type=click.Path(path_type=Path), help="Evaluation data; default BENCH_DATA."
        ),
        click.option(
            "--draws",
            type=click.IntRange(100, 100_000),
            default=10_000,
            show_default=True,
            help="Of the items.",
        ),
        click.option(
            "--level",
            type=NumberRange(0.5, 0.999),
            default=0.95,
            show_default=True,
            help="Of the intervals.",
        ),
    ):
        function = option(function)
    return function


@click.command()
@click.argument("first", metavar="A")
@click.argument("second", metavar="[B]", required=False)
@click.option("--against", metavar="B,C,...", help="Compare A with each of these, corrected after Holm.")
@click.option("--profile", help="Only this profile.")
@click.option("--suite", help="Only this suite.")
@click.option(
    "--test",
    type=click.Choice(["welch", "permutation"]),
    default="welch",
    show_default=True,
    help="Test of the seeds on which the verdict rests.",
)
@click.option("--seeds-only", is_flag=True, help="Leave out what the items say.")
@item_options
@results_options
def compare(
    first: str,
    second: str | None,
    against: str | None,
    profile: str | None,
    suite: str | None,
    level: float,
    test: Literal["welch", "permutation"],
    seeds_only: bool,
    draws: int,
    data_dir: Path | None,
    form: str,
    results: Path,
    campaign: str,
) -> None:
    """Say whether A and B differ, in plain words with the limits of that.

    Each is a method id as in the report, METHOD#SEED for one run, a record's file, or a folder of records: a
    campaign or one below it. Two campaigns are compared method by method.
    """
    from bench.compare import compare as compare_groups
    from bench.compare import correct
    from bench.sides import match, resolve
    from bench.spec import split_outside_brackets
    from bench.store import ResultStore

    if (second is None) == (against is None):
        raise InputError("one of B and --against is needed", where=WHERE, expected="A B, or A --against B,C")
    others = [second] if second is not None else split_outside_brackets(against or "")
    if len(set(others)) < len(others):
        raise InputError(f"'{against}' names a method twice", where="--against")
    store = ResultStore(results, campaign)
    one = resolve(first, store, WHERE)
    sides = [resolve(other, store, WHERE) for other in others]
    pairs = [pair for side in sides for pair in match(one, side, WHERE, profile=profile, suite=suite)]
    grid = against is None and len({(a.runs[0].record.method, b.runs[0].record.method) for a, b in pairs}) > 1
    draw = None if seeds_only else item_drawer(draws, data_dir)
    found = []
    for a, b in pairs:
        try:
            found.append(compare_groups(a, b, level=level, test=test, draw=draw))
        except InputError as error:
            if not grid:
                raise
            click.echo(f"left out: {error}", err=True)
    if not found:
        raise InputError("no method can be compared; the lines above say why", where=WHERE)
    if grid:
        found = correct(found, f"methods of {first} and {second}", "fdr_bh")
    elif against is not None:
        found = correct(found, f"{first} against {', '.join(others)}", "holm")
    _print(found, form)


def item_drawer(draws: int, data: Path | None) -> DrawItems:
    """Item draws with a bar over the records, and a line for a file that is not used."""
    from bench.stats.draws import item_draws

    def draw(runs: Sequence[Run]) -> Iterator[Draws]:
        with progress_bar("items", len(runs)) as advance:
            say = partial(click.echo, err=True)
            yield from item_draws(runs, data, draws=draws, say=say, progress=advance)

    return draw


def _print(found: Sequence[Comparison], form: str) -> None:
    from bench.reports.render import text
    from bench.verdict import statements, verdict

    if form == "json":
        rows = [asdict(one) | {"verdict": verdict(one), "statements": statements(one)} for one in found]
        click.echo(json.dumps(rows, indent=2, allow_nan=False, ensure_ascii=False))
        return
    blocks = []
    for one in found:
        grids = [grid for grid in (_tasks(one), _checkpoints(one)) if grid is not None]
        lines = [f"{verdict(one)}.", *(f"- {statement}" for statement in statements(one))]
        blocks.append("\n\n".join([*(text([grid]).rstrip() for grid in grids), "\n".join(lines)]))
    click.echo("\n\n".join(blocks))


def _tasks(c: Comparison) -> Grid:
    """The table of tasks; what either level gives stands in columns of its own."""
    from bench.reports.table import Grid
    from bench.verdict import SCALE, interval, p_value, percent, points, seed_list

    seeds = c.seed_level
    items = c.item_level
    single = items.checkpoints[0] if items and seeds is None and len(items.checkpoints) == 1 else None
    header = ["task", "A", "B", "A - B"]
    header += [f"seeds {percent(c.level)}", "p"] if seeds else []
    header += ["p exact (least)"] if seeds and seeds.permutations else []
    header += [f"items {percent(c.level)}", "p items"] if items else []
    header += ["Williams", "Steiger"] if single else []
    header += ["p BH"] if c.corrected_tasks else []
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
        if single:
            row += [_p_of(single, task, "williams"), _p_of(single, task, "steiger")]
        if c.corrected_tasks:
            row.append(p_value(c.corrected_tasks[task]) if task in c.corrected_tasks else "-")
        rows.append(tuple(row))
    sides = (
        f"{name} = {label} ({seed_list(s)})"
        for name, label, s in zip("AB", (c.first, c.second), c.seeds, strict=True)
    )
    title = f"{c.profile}, suite {c.suite}: {', '.join(sides)}"
    return Grid(title, tuple(header), tuple(rows), ())


def _checkpoints(c: Comparison) -> Grid | None:
    """Checkpoint by checkpoint, with the number of tasks that each test of the items calls different."""
    from bench.reports.table import Grid
    from bench.verdict import interval, p_value, percent, points

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
                    str(sum(test is not None and test.p <= alpha for test in tests.values()))
                    for tests in (pair.williams, pair.steiger)
                ),
            )
        )
    header = ("seeds", "A - B", f"items {percent(c.level)}", "p (least)", "bootstrap", "Williams", "Steiger")
    return Grid(
        f"Checkpoint by checkpoint, on these items alone; last, tasks of {len(names)} with p <= {alpha:.2g}",
        header,
        tuple(rows),
        (),
    )


def _p_of(pair: CheckpointPair, task: str, test: Literal["williams", "steiger"]) -> str:
    from bench.verdict import p_value

    found = getattr(pair, test).get(task)
    return "-" if found is None else p_value(found.p)
