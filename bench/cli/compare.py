"""``bench compare``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bench.cli import completion
from bench.cli.options import (
    NumberRange,
    combine_options,
    data_option,
    filter_options,
    format_option,
    level_option,
    print_json,
    results_options,
)
from bench.cli.strict_option import strict_option
from bench.cli.terminal import progress_bar
from bench.errors import InputError

if TYPE_CHECKING:
    from bench.comparison.comparison import Comparison
    from bench.comparison.evidence import DrawItems
    from bench.comparison.item_bootstrap import CampaignRun, RunDraws
    from bench.comparison.questions import Questions
    from bench.comparison.selection import Group


WHERE = "bench compare"
POINTS = 100.0  # options are in points, scores in the metric's unit
question_options = combine_options(
    strict_option(
        "--margin",
        type=NumberRange(0, 100, min_open=True),
        metavar="POINTS",
        help="Also say whether the two are equal within this; choose it before you see scores.",
    ),
    strict_option(
        "--claim",
        type=NumberRange(-100, 100),
        metavar="POINTS",
        help="Also say whether the records support a lead of A of at least this.",
    ),
    strict_option(
        "--published",
        type=NumberRange(-100, 100),
        metavar="POINTS",
        help="Also check a published difference A - B of two single runs; stored figures are checked anyway.",
    ),
    strict_option(
        "--detect",
        type=NumberRange(0, 100, min_open=True),
        metavar="POINTS",
        default=0.5,
        help="True difference that planned seeds are to show; default 0.5.",
    ),
)


@click.command()
@click.argument("first", metavar="A", shell_complete=completion.recorded_or_path)
@click.argument("second", metavar="[B]", required=False, shell_complete=completion.recorded_or_path)
@strict_option(
    "--against",
    metavar="B,C,...",
    shell_complete=completion.recorded_methods,
    help="Compare A with each of these, with Holm's correction.",
)
@filter_options
@strict_option(
    "--test",
    type=click.Choice(["auto", "paired", "sign-flip", "welch", "permutation"]),
    default="auto",
    help="Test over seeds. auto: paired t where records say that the runs of a seed are pairs, else Welch.",
)
@strict_option(
    "--for",
    "scope",
    type=click.Choice(["seeds", "items", "both"]),
    help="What the verdict speaks for: further seeds, further items, or both; default both where it can.",
)
@question_options
@strict_option("--seeds-only", is_flag=True, help="Leave out what the items say.")
@level_option("Confidence level of the intervals.")
@strict_option("--draws", type=click.IntRange(100, 100_000), default=10_000, help="Draws of the items.")
@data_option()
@format_option("text", "json", "markdown", "latex")
@results_options
def compare_command(
    first: str, second: str | None, against: str | None, seeds_only: bool, **options: Any
) -> None:
    """Say whether A and B differ, in plain words, and what that does not tell.

    Each is a method id as in the report, METHOD#SEED for one run, a record's file, or a folder of records: a
    campaign or one below it. Two campaigns are compared method by method.
    """
    from bench.comparison.comparison import compare as compare_groups
    from bench.comparison.comparison import correct_comparisons
    from bench.comparison.selection import match_sides, resolve_sides
    from bench.config.method_ids import split_outside_brackets
    from bench.records.store import ResultStore

    if (second is None) == (against is None):
        raise InputError("one of B and --against is needed", where=WHERE, expected="A B, or A --against B,C")
    others = [second] if second is not None else split_outside_brackets(against or "")
    store = ResultStore(options["results"], options["campaign"])
    one, *sides = resolve_sides([first, *others], store, WHERE)
    if len({side.text for side in sides}) < len(sides):
        raise InputError(f"'{against}' names a method twice", where="--against")
    only = {name: options[name] for name in ("profile", "suite")}
    pairs = [pair for side in sides for pair in match_sides(one, side, WHERE, **only)]
    grid = against is None and len({(a.runs[0].record.method, b.runs[0].record.method) for a, b in pairs}) > 1
    draw = None if seeds_only else make_item_drawer(options["draws"], options["data_dir"])
    found = []
    for a, b in pairs:
        try:
            found.append(
                compare_groups(
                    *(a, b),
                    level=options["level"],
                    test=options["test"],
                    scope=options["scope"],
                    draw=draw,
                    asked=_read_questions(a, b, options),
                )
            )
        except InputError as error:
            if against is not None or len(pairs) == 1:
                raise
            click.echo(f"left out: {error}", err=True)
    if not found:
        raise InputError("nothing can be compared; the lines above say why", where=WHERE)
    if grid:
        found = correct_comparisons(found, f"methods of {first} and {second}", "fdr_bh")
    elif against is not None:
        found = correct_comparisons(found, f"{first} against {', '.join(others)}", "holm")
    _print_comparisons(found, options["form"])


def _read_questions(a: Group, b: Group, options: Mapping[str, Any]) -> Questions:
    """What was asked besides, in the metric's unit, with what is published of the two."""
    from bench.comparison.questions import Questions
    from bench.reports.tables.comparison_tables import published_differences

    given = {name: None if (of := options[name]) is None else of / POINTS for name in ("margin", "claim")}
    published = published_differences(a, b)
    if options["published"] is not None:
        published["as given"] = options["published"] / POINTS
    return Questions(options["detect"] / POINTS, **given, published=published)


def make_item_drawer(draws: int, data: Path | None) -> DrawItems:
    """Item draws with a progress bar over the records, and a line for every file that is not used."""
    from bench.comparison.item_bootstrap import draw_items

    def draw(runs: Sequence[CampaignRun]) -> Iterator[RunDraws]:
        with progress_bar("items", len(runs)) as advance:
            say = partial(click.echo, err=True)
            yield from draw_items(runs, data, draws=draws, say=say, progress=advance)

    return draw


def _print_comparisons(found: Sequence[Comparison], form: str) -> None:
    from bench.cli.terminal import format_grids
    from bench.comparison.render import describe_comparison, describe_verdict
    from bench.render.formats import render_grids
    from bench.reports.tables.comparison_tables import checkpoint_grid, comparison_grid

    if form == "json":
        print_json(
            [
                _comparison_facts(one)
                | {"verdict": describe_verdict(one), "statements": describe_comparison(one)}
                for one in found
            ]
        )
        return
    blocks = []
    for one in found:
        first, *more = (grid for grid in (comparison_grid(one), checkpoint_grid(one)) if grid is not None)
        lines = (f"{describe_verdict(one)}.", *describe_comparison(one))
        if form != "text":
            blocks.append(render_grids([replace(first, notes=lines), *more], form).rstrip())
            continue
        said = [lines[0], *(f"- {line}" for line in lines[1:])]
        blocks.append(
            "\n\n".join([*(format_grids([grid]).rstrip() for grid in (first, *more)), "\n".join(said)])
        )
    click.echo("\n\n".join(blocks))


def _comparison_facts(c: Comparison) -> dict[str, Any]:
    """All facts, those of the headline once more at the top."""
    own = ("test", "difference", "interval", "p")
    corrected = {"corrected": None if c.corrected is None else asdict(c.corrected)}
    return asdict(c) | {name: getattr(c, name) for name in own} | corrected
