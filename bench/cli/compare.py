"""``bench compare``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bench.cli import completion
from bench.cli.commands import bench_command
from bench.cli.item_differences import (
    OWN_OPTIONS,
    SHARED_OPTIONS,
    item_difference_options,
    print_item_differences,
)
from bench.cli.modes import check_mode
from bench.cli.options import (
    POSITIVE_POINTS,
    NumberRange,
    combine_options,
    data_option,
    details_option,
    draws_option,
    filter_options,
    format_option,
    level_option,
    print_json,
    print_stderr,
    results_options,
)
from bench.cli.strict_options import Panel, strict_option
from bench.cli.terminal import progress_bar
from bench.errors import InputError

if TYPE_CHECKING:
    from bench.comparison.comparison import Comparison
    from bench.comparison.evidence import DrawItems
    from bench.comparison.item_bootstrap import CampaignRun, RunDraws
    from bench.comparison.questions import Questions
    from bench.comparison.selection import Group
    from bench.records.record import RunRecord
    from bench.records.store import ResultStore


WHERE = "bench compare"
POINTS = 100.0  # options are in points, scores in the metric's unit
question_options = combine_options(
    strict_option(
        "--margin",
        type=POSITIVE_POINTS,
        metavar="POINTS",
        panel=Panel.TESTS,
        help="Also test equivalence within this margin; choose it before you see scores.",
    ),
    strict_option(
        "--claim",
        type=NumberRange(-100, 100),
        metavar="POINTS",
        panel=Panel.TESTS,
        rare=True,
        help="Also test whether A leads by at least this.",
    ),
    strict_option(
        "--published",
        type=NumberRange(-100, 100),
        metavar="POINTS",
        panel=Panel.TESTS,
        rare=True,
        help="Also check a published difference A - B of two single runs, besides bench's published tables.",
    ),
    strict_option(
        "--detect",
        type=POSITIVE_POINTS,
        metavar="POINTS",
        default=0.5,
        panel=Panel.TESTS,
        rare=True,
        help="True difference for which seeds are planned.",
    ),
)


@bench_command()
@click.argument("first", metavar="A", shell_complete=completion.recorded_or_path)
@click.argument("second", metavar="[B]", required=False, shell_complete=completion.recorded_or_path)
@strict_option(
    "--against",
    metavar="B,C,...",
    shell_complete=completion.recorded_methods,
    panel=Panel.MAIN,
    help="Compare A with each of these, with Holm's correction.",
)
@filter_options
@strict_option(
    "--test",
    type=click.Choice(["auto", "paired", "sign-flip", "welch", "permutation"]),
    default="auto",
    panel=Panel.TESTS,
    rare=True,
    help="Test over seeds. auto: paired t if runs of a seed are pairs by their records, otherwise Welch.",
)
@strict_option(
    "--for",
    "scope",
    type=click.Choice(["seeds", "items", "both", "tasks"]),
    panel=Panel.TESTS,
    help="Generalise to new seeds, new items, both (the default, if possible), or, of rows that have "
    "neither, new tasks.",
)
@question_options
@strict_option(
    "--seeds-only",
    is_flag=True,
    panel=Panel.TESTS,
    help="Leave out the intervals over items.",
)
@level_option("Confidence level of the intervals.")
@draws_option
@data_option()
@format_option("text", "json", "markdown", "latex")
@details_option
@item_difference_options
@results_options
def compare_command(
    first: str,
    second: str | None,
    against: str | None,
    seeds_only: bool,
    details: bool,
    show_items: bool,
    **options: Any,
) -> None:
    """Test whether A and B differ, and explain the verdict.

    Text has the answer first, then the tasks and at most three notes; --details has every test. --show-items
    prints the items on which A and B differ most, in place of tests.

    A and B are rows of the report, methods with one row, METHOD#SEED for one run, files of records, or
    folders of records. Two campaigns are compared method by method.
    """
    check_mode("--show-items", OWN_OPTIONS, SHARED_OPTIONS, active=show_items)
    if show_items:
        print_item_differences(first, second, options)
        return
    from bench.config.method_ids import split_outside_brackets
    from bench.records.store import ResultStore

    if (second is None) == (against is None):
        raise InputError("one of B and --against is needed", where=WHERE, expected="A B, or A --against B,C")
    others = [second] if second is not None else split_outside_brackets(against or "")
    store = ResultStore(options["results"], options["campaign"])
    draw = None if seeds_only else make_item_drawer(options["draws"], options["data_dir"])
    family = None if against is None else f"{first} against {', '.join(others)}"
    comparisons = make_comparisons(first, others, store, options, draw=draw, family=family)
    _print_comparisons(comparisons, options["form"], details=details)


def make_comparisons(
    first: str,
    others: Sequence[str],
    store: ResultStore,
    options: Mapping[str, Any],
    *,
    draw: DrawItems | None,
    family: str | None = None,
    keep: Callable[[RunRecord], bool] = lambda record: True,
) -> list[Comparison]:
    """Compare one side with others, on every profile and suite that they share.

    Args:
        options: Those of the command, by their Python names.
        draw: Draws items; None compares seeds only.
        family: Name of the comparisons that Holm's correction joins; None for a pair of sides.
        keep: Says which of the campaign's records count.

    Raises:
        InputError: an unknown name, or nothing to compare.
    """
    from bench.comparison.comparison import compare, correct_comparisons
    from bench.comparison.selection import match_sides, resolve_sides

    only = {name: options[name] for name in ("profile", "suite")}
    one, *sides = resolve_sides([first, *others], store, WHERE, **only, keep=keep)
    if len({side.text for side in sides}) < len(sides):
        raise InputError(f"'{','.join(others)}' names a method twice", where="--against")
    pairs = [pair for side in sides for pair in match_sides(one, side, WHERE, **only)]
    pairs = _require_sound_pairs(pairs, options["data_dir"])
    grid = family is None and len({(a.runs[0].record.method, b.runs[0].record.method) for a, b in pairs}) > 1
    settings = {name: options[name] for name in ("level", "test", "scope")}
    comparisons = []
    for a, b in pairs:
        try:
            comparisons.append(compare(a, b, **settings, draw=draw, asked=_read_questions(a, b, options)))
        except InputError as error:
            if family is not None or len(pairs) == 1:
                raise
            print_stderr(f"left out: {error}")
    if not comparisons:
        raise InputError("nothing can be compared; the lines above say why", where=WHERE)
    if grid:
        comparisons = correct_comparisons(comparisons, f"methods of {first} and {others[0]}", "fdr_bh")
    elif family is not None:
        comparisons = correct_comparisons(comparisons, family, "holm")
    return comparisons


def _require_sound_pairs(
    pairs: Sequence[tuple[Group, Group]], data: Path | None
) -> list[tuple[Group, Group]]:
    """Return the groups with notes on unchecked scores; raises DataError for a contradicting record."""
    from bench.eval.recomputation import require_sound_scores

    runs = {run.path: run for pair in pairs for group in pair for run in group.runs}
    noted: dict[Path, CampaignRun] = {}
    with progress_bar("scores", len(runs)) as advance:
        for root in dict.fromkeys(run.store.root for run in runs.values()):
            own = [run for run in runs.values() if run.store.root == root]
            records = require_sound_scores(own[0].store, [run.record for run in own], data, advance)
            for run, record in zip(own, records, strict=True):
                noted[run.path] = replace(run, record=record)

    def note(group: Group) -> Group:
        return replace(group, runs=tuple(noted[run.path] for run in group.runs))

    return [(note(a), note(b)) for a, b in pairs]


def _read_questions(a: Group, b: Group, options: Mapping[str, Any]) -> Questions:
    from bench.comparison.questions import Questions
    from bench.reports.tables.comparison_tables import published_differences

    given = {name: options[name] and options[name] / POINTS for name in ("margin", "claim")}
    published = published_differences(a, b)
    if options["published"] is not None:
        published["as given"] = options["published"] / POINTS
    return Questions(options["detect"] / POINTS, **given, published=published)


def make_item_drawer(draws: int, data: Path | None) -> DrawItems:
    """Return what draws items, with a progress bar and a line on stderr for every unused file."""
    from bench.comparison.item_bootstrap import draw_items

    def draw(runs: Sequence[CampaignRun]) -> Iterator[RunDraws]:
        with progress_bar("items", len(runs)) as advance:
            yield from draw_items(runs, data, draws=draws, say=print_stderr, progress=advance)

    return draw


def _print_comparisons(comparisons: Sequence[Comparison], form: str, *, details: bool) -> None:
    from bench.comparison.wording import describe_comparison, describe_verdict
    from bench.render.formats import render_grids
    from bench.reports.tables.comparison_tables import checkpoint_grid, comparison_grid

    if form == "json":
        print_json(list(map(_comparison_facts, comparisons)))
        return
    if form == "text":
        show = _format_details if details else _format_short
        click.echo(show(comparisons), nl=False)
        return
    blocks = []
    for comparison in comparisons:
        grid, checkpoints = comparison_grid(comparison), checkpoint_grid(comparison)
        lines = (f"{describe_verdict(comparison)}.", *describe_comparison(comparison))
        grids = [replace(grid, notes=lines), *([] if checkpoints is None else [checkpoints])]
        blocks.append(render_grids(grids, form).rstrip())
    click.echo("\n\n".join(blocks))


def _list_answers(comparisons: Sequence[Comparison]) -> list[str]:
    """Return the answer of every comparison, and the answers to what was asked besides."""
    from bench.comparison.wording import describe_questions, format_answer

    answers = []
    for comparison in comparisons:
        place = f"{_name_pair(comparison)}: " if len(comparisons) > 1 else ""
        answers.append(format_answer(comparison))
        answers += [place + line for line in describe_questions(comparison)]
    return answers


def _name_pair(comparison: Comparison) -> str:
    from bench.comparison.labels import print_labels

    return " - ".join(print_labels(comparison.first, comparison.second))


def _list_notes(comparisons: Sequence[Comparison]) -> list[str]:
    """Return the sentences below the answers; one that not all comparisons have names its comparison."""
    from bench.comparison.wording import describe_comparison, describe_questions

    lines = [describe_comparison(comparison) for comparison in comparisons]
    notes = []
    for comparison, own in zip(comparisons, lines, strict=True):
        asked = describe_questions(comparison)
        for line in own:
            if line not in asked:
                shared = all(line in others for others in lines)
                notes.append(line if shared else f"{_name_pair(comparison)}: {line}")
    return list(dict.fromkeys(notes))


def _format_short(comparisons: Sequence[Comparison]) -> str:
    """Return the answers, the tables of tasks and at most three notes."""
    from bench.cli.terminal import get_screen
    from bench.comparison.wording import describe_scope
    from bench.render.formats import fit_columns, render_grids
    from bench.render.short_text import format_short_text
    from bench.reports.tables.comparison_tables import checkpoint_grid, comparison_grid, order_columns

    screen, grids, columns, further = get_screen(), [], 0, 0
    for comparison in comparisons:
        grid, scope = comparison_grid(comparison), describe_scope(comparison, comparison.headline)
        shown = fit_columns(grid, screen, order_columns(grid))
        grids.append(replace(shown, title=f"{grid.title}; answer for {scope[0].lower()}{scope[1:]}"))
        columns += len(grid.header) - len(shown.header)
        further += checkpoint_grid(comparison) is not None
    tables = render_grids(grids, "text", screen=screen)
    answers, notes = _list_answers(comparisons), _list_notes(comparisons)
    caveats = [note for comparison in comparisons for note in comparison.notes]
    left_out = {"columns": columns, "further": further}
    return format_short_text(answers, tables, notes, screen, caveats=caveats, **left_out)


def _format_details(comparisons: Sequence[Comparison]) -> str:
    """Return the answers, all tables and every sentence."""
    from bench.cli.terminal import format_grids, get_screen
    from bench.comparison.wording import describe_comparison, describe_verdict
    from bench.render.short_text import format_answers, merge_synthetic_notes
    from bench.reports.tables.comparison_tables import checkpoint_grid, comparison_grid

    blocks = [format_answers(_list_answers(comparisons), get_screen()).rstrip()]
    for comparison in comparisons:
        grids = filter(None, [comparison_grid(comparison), checkpoint_grid(comparison)])
        blocks += [format_grids([grid]).rstrip() for grid in grids]
        lines = (f"{describe_verdict(comparison)}.", *describe_comparison(comparison))
        blocks.append("\n- ".join(merge_synthetic_notes(lines)))
    return "\n\n".join(blocks) + "\n"


def _comparison_facts(c: Comparison) -> dict[str, Any]:
    """Return all facts, with those of the headline repeated at the top level."""
    from bench.comparison.wording import describe_comparison, describe_verdict

    head = c.headline
    ends = (head.low, head.high)
    headline = {"test": head.test, "difference": head.difference, "interval": ends, "p": head.p}
    corrected = None if head.corrected is None else asdict(head.corrected)
    words = {"verdict": describe_verdict(c), "statements": describe_comparison(c)}
    return asdict(c) | headline | {"corrected": corrected} | words
