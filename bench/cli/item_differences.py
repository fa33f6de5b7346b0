"""``bench compare --show-items``: the items on which two runs differ most."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bench.cli.options import combine_options
from bench.cli.strict_options import Panel, strict_option
from bench.errors import InputError

if TYPE_CHECKING:
    from rich.table import Table

    from bench.comparison.item_bootstrap import CampaignRun
    from bench.eval.measure import ItemChange

WHERE = "bench compare --show-items"
_PER_TASK, _OF_ONE_TASK = 5, 20
OWN_OPTIONS = ("seed", "task", "count")
SHARED_OPTIONS = ("first", "second", "show_items", "profile", "suite", "data_dir", "results", "campaign")
item_difference_options = combine_options(
    strict_option(
        "--show-items",
        is_flag=True,
        panel=Panel.ITEMS,
        help="Show the items on which A and B differ most, of two runs of one seed.",
    ),
    strict_option(
        "--seed",
        type=click.IntRange(0),
        panel=Panel.ITEMS,
        help="Seed of both runs; default: the lowest common one.",
    ),
    strict_option("--task", panel=Panel.ITEMS, help="Only this task."),
    strict_option(
        "-n",
        "count",
        type=click.IntRange(1, 10_000),
        metavar="N",
        panel=Panel.ITEMS,
        help=f"Items per task; default {_PER_TASK}, {_OF_ONE_TASK} with --task.",
    ),
)


def print_item_differences(first: str, second: str | None, options: Mapping[str, Any]) -> None:
    """Print the items on which A and B differ most.

    Pairs are chosen by the difference of their similarity ranks, classified sentences by their predictions.
    Sentences go to stdout only.
    """
    from bench.comparison.selection import choose_runs, match_sides, resolve_sides
    from bench.records.store import ResultStore

    if second is None:
        raise InputError("B is missing", where=WHERE, expected="A B --show-items")
    store = ResultStore(options["results"], options["campaign"])
    only = {name: options[name] for name in ("profile", "suite")}
    of_first, of_second = resolve_sides([first, second], store, WHERE, **only)
    for a, b in match_sides(of_first, of_second, WHERE, **only):
        one, other = choose_runs(a, b, options["seed"], WHERE)
        labels = (a.label, b.label)
        _print_diff((one, other), labels, options["task"], options["count"], options["data_dir"])


def _print_diff(
    runs: tuple[CampaignRun, CampaignRun],
    labels: tuple[str, str],
    task: str | None,
    count: int | None,
    data: Path | None,
) -> None:
    from rich.console import Console

    from bench.errors import NotComparableError, unknown_name
    from bench.eval.rescoring import load_record_tasks, load_sound_predictions
    from bench.eval.suite_measures import measure_of

    records = [run.record for run in runs]
    tasks, other_tasks = (load_record_tasks(record, data) for record in records)
    measure = measure_of(records[0].suite)
    if other_tasks.keys() != tasks.keys():
        raise NotComparableError(f"{labels[0]} and {labels[1]} were measured on different tasks", where=WHERE)
    if task is not None and task not in tasks:
        raise unknown_name("task", task, tasks, where="--task")
    first, second = (load_sound_predictions(run.store, run.record, data) for run in runs)
    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else 120
    console = Console(markup=False, highlight=False, emoji=False, width=width)
    sides = []
    for side, label, record in zip("AB", labels, records, strict=True):
        sides.append(f"{side} = {label}" + ("" if record.seed is None else f", seed {record.seed}"))
    names, most = (tasks, _PER_TASK) if task is None else ([task], _OF_ONE_TASK)
    for name in names:
        changes = measure.find_changes(tasks[name], first[name], second[name], records[0], count or most)
        size = next((s.n for s in records[0].scores if (s.task, s.subset) == (name, "all")), 0)
        console.print(f"{name} ({size:,} {measure.counted}): {'; '.join(sides)}")
        console.print(_build_table(changes))
    console.print(measure.change_columns)


def _build_table(changes: list[ItemChange]) -> Table:
    from rich import box
    from rich.table import Table

    from bench.errors import printable

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, leading=1)
    for name in ("change", "A", "B", "gold"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("sentences", overflow="fold")
    for item in changes:
        cells = (item.change, item.one, item.other, item.gold, "\n".join(item.texts))
        table.add_row(*("\n".join(map(printable, cell.split("\n"))) for cell in cells))
    return table
