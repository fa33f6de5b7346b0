"""Every method against every other: a matrix of differences, and each pair in full."""

from __future__ import annotations

from collections.abc import Sequence

from bench.reports.campaign import Campaign
from bench.reports.grid import DASH, Grid, interval, signed
from bench.reports.records import by_profile_and_suite
from bench.reports.tables.comparison import EXACT
from bench.reports.tables.items import MethodDraws, compare_items, method_draws
from bench.reports.tables.significance import Family, all_pairs, averages

_HEADER = (
    *("A", "B", "A - B", "seeds 95%", "p", "p corrected", EXACT, "verdict"),
    *("items 95%", "p items"),
)


def significance_grids(campaign: Campaign) -> list[Grid]:
    """Return a matrix of differences for every profile and suite, and every pair in full if asked for."""
    grids = []
    for records in by_profile_and_suite(campaign.records):
        names = [one.method for one in averages(records)]
        if len(names) < 2:
            continue
        family = all_pairs(records)
        where = f"{records[0].suite}, profile {records[0].profile}, campaign {campaign.name}"
        grids.append(_matrix(names, family, where))
        if campaign.pairs:
            grids.append(_pairs(family, method_draws(campaign, records), where))
    return grids


def _matrix(names: Sequence[str], family: Family, where: str) -> Grid:
    at = {}
    for pair in family.pairs:
        mark = "*" if pair.differs else "?" if pair.p is None else ""
        at[pair.first, pair.second] = f"{signed(pair.difference)}{mark}"
        at[pair.second, pair.first] = f"{signed(-pair.difference)}{mark}"
    rows = [
        (f"{number} {row}", *(at.get((row, column), "") for column in names))
        for number, row in enumerate(names, start=1)
    ]
    untested = dict.fromkeys(pair.reason for pair in family.pairs if pair.reason)
    notes = (
        "Average of the row's method less that of the column's, in points; columns have the rows' numbers.",
        "*: the two differ, p <= 0.05 by Welch's test over seeds (Student's against a method without seeds), "
        f"{family.caption}.",
        *([f"?: not tested ({'; '.join(untested)})."] if untested else []),
    )
    return Grid(f"Differences: {where}", ("method", *map(str, range(1, len(names) + 1))), tuple(rows), notes)


def _pairs(family: Family, drawn: MethodDraws, where: str) -> Grid:
    rows = []
    for pair in family.pairs:
        if pair.p is None or pair.adjusted is None:
            tested = (DASH, DASH, DASH, DASH, pair.reason)
        else:
            exact = DASH if pair.exact is None else f"{pair.exact[0]:.4f} ({pair.exact[1]:.4f})"
            said = "differs" if pair.differs else "not shown"
            tested = (interval(pair.low, pair.high), f"{pair.p:.4f}", f"{pair.adjusted:.4f}", exact, said)
        items = compare_items(drawn, pair.first, pair.second, pair.difference)
        of_items = (DASH, DASH) if items is None else (interval(items.low, items.high), f"{items.p:.4f}")
        rows.append((pair.first, pair.second, signed(pair.difference), *tested, *of_items))
    notes = [f"Seeds: {family.caption}; intervals are not corrected."]
    if drawn:
        notes.append("Items: paired bootstrap, for these checkpoints only; not corrected.")
    return Grid(f"Pairs: {where}", _HEADER, tuple(rows), tuple(notes))
