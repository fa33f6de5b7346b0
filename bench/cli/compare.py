"""``bench compare``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bench.cli.options import filter_options, item_options, print_json, progress_bar, results_options
from bench.errors import InputError

if TYPE_CHECKING:
    from bench.compare.comparison import Comparison
    from bench.compare.draws import Drawn, Run
    from bench.compare.evidence import DrawItems


WHERE = "bench compare"


@click.command()
@click.argument("first", metavar="A")
@click.argument("second", metavar="[B]", required=False)
@click.option("--against", metavar="B,C,...", help="Compare A with each of these, with Holm's correction.")
@filter_options
@click.option(
    "--test",
    type=click.Choice(["welch", "permutation"]),
    default="welch",
    help="Test over seeds that gives the verdict.",
)
@click.option("--seeds-only", is_flag=True, help="Leave out what the items say.")
@item_options
@results_options
def compare(first: str, second: str | None, against: str | None, seeds_only: bool, **options: Any) -> None:
    """Say whether A and B differ, in plain words, and what that does not tell.

    Each is a method id as in the report, METHOD#SEED for one run, a record's file, or a folder of records: a
    campaign or one below it. Two campaigns are compared method by method.
    """
    from bench.compare.comparison import compare as compare_groups
    from bench.compare.comparison import correct
    from bench.compare.select import match, resolve
    from bench.records.store import ResultStore
    from bench.request.parse import split_outside_brackets

    if (second is None) == (against is None):
        raise InputError("one of B and --against is needed", where=WHERE, expected="A B, or A --against B,C")
    others = [second] if second is not None else split_outside_brackets(against or "")
    if len(set(others)) < len(others):
        raise InputError(f"'{against}' names a method twice", where="--against")
    store = ResultStore(options["results"], options["campaign"])
    one = resolve(first, store, WHERE)
    sides = [resolve(other, store, WHERE) for other in others]
    only = {name: options[name] for name in ("profile", "suite")}
    pairs = [pair for side in sides for pair in match(one, side, WHERE, **only)]
    grid = against is None and len({(a.runs[0].record.method, b.runs[0].record.method) for a, b in pairs}) > 1
    draw = None if seeds_only else item_drawer(options["draws"], options["data_dir"])
    found = []
    for a, b in pairs:
        try:
            found.append(compare_groups(a, b, level=options["level"], test=options["test"], draw=draw))
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
    _print(found, options["form"])


def item_drawer(draws: int, data: Path | None) -> DrawItems:
    """Item draws with a progress bar over the records, and a line for every file that is not used."""
    from bench.compare.draws import item_draws

    def draw(runs: Sequence[Run]) -> Iterator[Drawn]:
        with progress_bar("items", len(runs)) as advance:
            say = partial(click.echo, err=True)
            yield from item_draws(runs, data, draws=draws, say=say, progress=advance)

    return draw


def _print(found: Sequence[Comparison], form: str) -> None:
    from bench.compare.wording import statements, verdict
    from bench.reports.formats.render import text
    from bench.reports.tables.comparison import checkpoint_grid, task_grid

    if form == "json":
        rows = [asdict(one) | {"verdict": verdict(one), "statements": statements(one)} for one in found]
        print_json(rows)
        return
    blocks = []
    for one in found:
        grids = [grid for grid in (task_grid(one), checkpoint_grid(one)) if grid is not None]
        lines = [f"{verdict(one)}.", *(f"- {statement}" for statement in statements(one))]
        blocks.append("\n\n".join([*(text([grid]).rstrip() for grid in grids), "\n".join(lines)]))
    click.echo("\n\n".join(blocks))
