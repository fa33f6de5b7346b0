"""Every table of ``--table``, by name."""

from __future__ import annotations

from collections.abc import Sequence

from bench.errors import InputError, unknown
from bench.reports.campaign import Campaign
from bench.reports.formats.render import leaderboard_grid
from bench.reports.records import SCALE, by_profile_and_suite
from bench.reports.tables.items import MethodDraws, compare_items, method_draws
from bench.reports.tables.papers import (
    ablation_grids,
    efficiency_grids,
    gain_grids,
    overlap_grids,
    suite_grid,
)
from bench.reports.tables.probes import energy_against_score, from_records, probe_grids
from bench.reports.tables.published import published_grids
from bench.reports.tables.significance import Family, Pair, all_pairs, averages
from bench.reports.tables.table import Grid, leaderboards

NAMES = (
    *("leaderboard", "sts7", "transfer", "efficiency", "ablation:NAME", "probes", "significance"),
    *("overlap", "published", "gains"),
)
_SUITES = {"sts7": "sts7", "transfer": "transfer7"}
_MISSING = {
    "sts7": ("no record of suite sts7", "bench run --suite sts7 makes them"),
    "transfer": ("no record of suite transfer7", "bench run --suite transfer7 makes them"),
    "probes": ("no record has probes", "bench run --probes all adds them"),
    "significance": ("no two methods of one suite finished", "bench run makes records"),
    "overlap": (
        "no overlap*.csv beside the records",
        "bench data overlap TEXT --format csv > results/CAMPAIGN/overlap.csv",
    ),
    "published": ("no paper prints a figure of these methods on these suites", "bench show METHOD"),
    "gains": (
        "no modified loss stands beside its original",
        "bench run --methods mhe,m_mhe makes such a pair",
    ),
}


def table_grids(campaign: Campaign, name: str, *, pairs: bool = False) -> list[Grid]:
    """Return the grids of one table.

    Args:
        campaign: What to report on.
        name: One of NAMES, with a sweep's name in the place of NAME.
        pairs: True to list every pair of methods under the matrix of ``significance``.

    Raises:
        InputError: an unknown name, or nothing to show.
    """
    grids = _grids(campaign, name, pairs)
    if not grids:
        what, hint = _MISSING.get(name, ("no record", "bench run makes them"))
        raise InputError(what, where=f"--table {name}, campaign {campaign.name}", hint=hint)
    return grids


def _grids(campaign: Campaign, name: str, pairs: bool) -> list[Grid]:
    if name.startswith("ablation:"):
        return ablation_grids(campaign, name.removeprefix("ablation:"))
    if name in _SUITES:
        grid = suite_grid(campaign, _SUITES[name])
        return [grid] if grid else []
    functions = {
        "leaderboard": leaderboard_grids,
        "efficiency": efficiency_grids,
        "probes": probe_tables,
        "overlap": overlap_grids,
        "published": published_grids,
        "gains": gain_grids,
    }
    if name == "significance":
        return significance_grids(campaign, pairs=pairs)
    if name not in functions:
        raise unknown("table", name, NAMES, where="--table")
    return functions[name](campaign)


def leaderboard_grids(campaign: Campaign) -> list[Grid]:
    """Return the leaderboard of every profile and suite."""
    tables = leaderboards(campaign.records, campaign.name, campaign.baseline, rounded=campaign.rounded)
    return [leaderboard_grid(table) for table in tables]


def probe_tables(campaign: Campaign) -> list[Grid]:
    """Return the probes' tables, with the rank correlation of CLS energy and score."""
    found = from_records(campaign.records)
    relations = [relation.sentence() for relation in energy_against_score(found)]
    grids = probe_grids(found)
    if grids and relations:
        last = grids[-1]
        grids[-1] = Grid(last.title, last.header, last.rows, (*last.notes, *relations), last.groups)
    return grids


def significance_grids(campaign: Campaign, *, pairs: bool = False) -> list[Grid]:
    """Return a matrix of differences for every profile and suite, and every pair in full if asked for."""
    grids = []
    for records in by_profile_and_suite(campaign.records):
        names = [one.method for one in averages(records)]
        if len(names) < 2:
            continue
        family = all_pairs(records)
        where = f"{records[0].suite}, profile {records[0].profile}, campaign {campaign.name}"
        grids.append(_matrix(names, family, where))
        if pairs:
            grids.append(_pairs(family, method_draws(campaign, records), where))
    return grids


def _matrix(names: Sequence[str], family: Family, where: str) -> Grid:
    at = {(pair.first, pair.second): pair for pair in family.pairs}
    rows = []
    for number, row in enumerate(names, start=1):
        cells = [
            "" if row == column else _difference(at.get((row, column)), at.get((column, row)))
            for column in names
        ]
        rows.append((f"{number} {row}", *cells))
    untested = dict.fromkeys(pair.reason for pair in family.pairs if pair.reason)
    notes = (
        "Row less column, points of the average; columns are numbered as rows.",
        "*: p <= 0.05 by Welch's test over seeds (Student's against a method without seeds), "
        f"{family.caption}.",
        *([f"?: not tested ({'; '.join(untested)})."] if untested else []),
    )
    return Grid(f"Differences: {where}", ("method", *map(str, range(1, len(names) + 1))), tuple(rows), notes)


def _difference(pair: Pair | None, turned: Pair | None) -> str:
    found = pair or turned
    if found is None:
        return "-"
    size = found.difference if pair else -found.difference
    return f"{SCALE * size:+.2f}{'*' if found.differs else '?' if found.p is None else ''}"


def _pairs(family: Family, drawn: MethodDraws, where: str) -> Grid:
    rows = []
    for pair in family.pairs:
        if pair.low is None or pair.high is None or pair.p is None or pair.adjusted is None:
            tested = ("-", "-", "-", "-", pair.reason)
        else:
            exact = "-" if pair.exact is None else f"{pair.exact[0]:.4f} ({pair.exact[1]:.4f})"
            said = "differs" if pair.differs else "not shown"
            tested = (_span(pair.low, pair.high), f"{pair.p:.4f}", f"{pair.adjusted:.4f}", exact, said)
        items = compare_items(drawn, pair.first, pair.second, pair.difference)
        of_items = ("-", "-") if items is None else (_span(items.low, items.high), f"{items.p:.4f}")
        rows.append((pair.first, pair.second, f"{SCALE * pair.difference:+.2f}", *tested, *of_items))
    header = ("A", "B", "A - B", "seeds 95%", "p", "p corrected", "p exact (least)", "verdict")
    notes = [f"Seeds: {family.caption}; intervals are not corrected."]
    if drawn:
        notes.append("Items: paired bootstrap, for these checkpoints only; not corrected.")
    return Grid(f"Pairs: {where}", (*header, "items 95%", "p items"), tuple(rows), tuple(notes))


def _span(low: float, high: float) -> str:
    return f"[{SCALE * low:+.2f}, {SCALE * high:+.2f}]"
