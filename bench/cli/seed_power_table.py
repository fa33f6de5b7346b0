"""``bench run --dry-run --detect``: seeds needed to detect a difference."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from bench.errors import InputError, printable
from bench.render.grid import DASH, SCALE, Grid

if TYPE_CHECKING:
    from bench.plan.plan import Plan
    from bench.plan.seed_power import Detection, Outlook, PlannedPair
    from bench.stats.seed_planning import Range


def check_detection_options(
    detect: float | None, spread: float | None, shard: str | None, *, dry: bool
) -> None:
    """Raise InputError unless --detect is in a dry run of a whole plan, and --spread with --detect."""
    if detect is not None and not dry:
        raise InputError("it is for dry runs", where="--detect", expected="--dry-run or --estimate as well")
    if detect is not None and shard is not None:
        what = "a shard has only some of the seeds"
        raise InputError(what, where="--detect", hint="leave out --shard")
    if spread is not None and detect is None:
        raise InputError("it belongs to --detect", where="--spread", expected="--detect POINTS as well")


def print_detection(plan: Plan, points: float, spread: float | None) -> None:
    """Print the seeds needed to detect a difference, and the difference that the planned seeds detect."""
    from bench.cli.terminal import format_grids
    from bench.plan.seed_power import plan_detection

    detection = plan_detection(plan, points, spread)
    if not detection.pairs:
        click.echo("nothing to detect: a difference takes two methods")
    elif any(pair.outlooks for pair in detection.pairs):
        click.echo("\n" + format_grids([_detection_grid(detection, spread)]).rstrip())
    else:
        click.echo("\n".join(_list_reasons(detection)))


def _detection_grid(found: Detection, given: float | None) -> Grid:
    """Return the table: a row a pair of methods on a suite, or a row a correlation that is assumed."""
    header = ("suite", "methods", "design", "spread", "from", "needed", "planned", "shows from")
    rows: list[tuple[str, ...]] = []
    for pair in found.pairs:
        place = (pair.suite, f"{printable(pair.first)}, {printable(pair.second)}")
        if not pair.outlooks:
            rows.append((*place, *(DASH,) * 4, str(pair.seeds or DASH), DASH))
        rows += [(*place, *_outlook_cells(outlook, pair)) for outlook in pair.outlooks]
    title = f"Seeds that show a difference of {found.points:g} points"
    return Grid(title, header, tuple(rows), (_explain_columns(found), *_list_notes(found, given)))


def _outlook_cells(outlook: Outlook, pair: PlannedPair) -> tuple[str, ...]:
    from bench.stats.seed_planning import describe_seed_plan

    spread = outlook.spread
    design = {"pairs": "pairs", "sides": "unpaired", "one side": "one has no seeds"}[spread.design]
    if outlook.correlation is not None:
        design += f", r = {outlook.correlation:g}"
    size = f"{spread.a:.2f}" if spread.b is None else f"{spread.a:.2f}, {spread.b:.2f}"
    counted = "pairs" if spread.design == "pairs" else "seeds"
    source = (
        "--spread" if spread.pilot is None else f"{spread.pilot} {counted} of {printable(pair.source or '')}"
    )
    shows = DASH if outlook.shows is None else _format_range(outlook.shows)
    return design, size, source, describe_seed_plan(outlook.needed), str(pair.seeds), shows


def _format_range(found: Range) -> str:
    numbers = (found.value, found.low, found.high)
    value, low, high = (f"{x:.2f}" if x < SCALE else f">{SCALE:g}" for x in numbers)
    return value if found.low == found.high else f"{value} ({low} to {high})"


def _explain_columns(found: Detection) -> str:
    tests = f"{found.family} pairs of methods"
    if found.baseline is not None:
        tests = f"{found.family} rows against {printable(found.baseline)}"
    correction = f", corrected for {tests} (Bonferroni)" if found.family > 1 else ""
    known = any(o.spread.pilot is not None for pair in found.pairs for o in pair.outlooks)
    brackets = "; in brackets: with the spread at both ends of its interval of 5 to 95%" if known else ""
    return (
        f"needed: for a chance of {found.power:.0%} to show it with 95% confidence{correction}. shows from: "
        f"the smallest true difference, in points, that the planned seeds show with that chance{brackets}."
    )


def _list_notes(found: Detection, given: float | None) -> Iterator[str]:
    if found.first is not None:
        yield f"More than five methods: only pairs with {printable(found.first)} are listed."
    if found.aside:
        yield f"bench report sets aside: {', '.join(map(printable, found.aside))}."
    shared: dict[str, list[str]] = {}
    for pair in found.pairs:
        if pair.shared is not None:
            shared.setdefault(pair.shared, []).append(_name_pair(pair))
    for why, names in shared.items():
        yield f"Pairs, as their runs of a seed {why}: {'; '.join(dict.fromkeys(names))}."
    if any(pair.outlooks for pair in found.pairs):
        of = "seeds of each method; of pairs, over the differences of their scores"
        yield f"spread: standard deviation in points over the {of}."
    if shared and given is not None:
        yield (
            "r: how closely the scores of a pair move together, at most 1. After a few seeds, --detect "
            "without --spread takes the spread of the pairs from their records."
        )
    yield from _list_reasons(found)


def _list_reasons(found: Detection) -> Iterator[str]:
    """Yield the reasons of pairs that can't be planned, with advice."""
    pairs: dict[str, list[str]] = {}
    for pair in found.pairs:
        if pair.reason is not None:
            pairs.setdefault(pair.reason, []).append(f"{_name_pair(pair)} on {pair.suite}")
    for reason, names in pairs.items():
        yield f"{'; '.join(names)}: {reason}."


def _name_pair(pair: PlannedPair) -> str:
    return f"{printable(pair.first)} and {printable(pair.second)}"
