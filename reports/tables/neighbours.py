"""What would tell neighbours of a leaderboard apart: the seeds that it takes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from bench.comparison.questions import DETECT
from bench.records.record import RunRecord
from bench.render.grid import DASH, Grid, format_difference, format_score
from bench.reports.campaign import Campaign
from bench.reports.records import by_profile_and_suite
from bench.reports.tables.pairwise_tests import PairwiseTests, run_pairwise_tests

if TYPE_CHECKING:
    from bench.stats.ranks import RankedPair

_APART = "told apart"
_HEADER = ("A", "B", "A - B", "now", "seeds now")
_NOTES = (
    "Each method of the leaderboard and the next. Seeds (pairs where runs of a seed are pairs) that show a "
    "difference with a chance of 80%, at the pair's level of Holm's correction of all pairs: a pair that was "
    "chosen before takes fewer (bench compare A B --detect). In parentheses for both ends of the spread's "
    "90% interval.",
    "The last column takes A - B as the true difference. It is an estimate from these seeds, and where two "
    "were picked for standing next to each other, none to plan by.",
)


def neighbour_grids(campaign: Campaign) -> list[Grid]:
    """Return a table for every profile and suite with neighbours that were tested."""
    tables = (_neighbour_grid(campaign, records) for records in by_profile_and_suite(campaign.records))
    return [table for table in tables if table is not None]


def _neighbour_grid(campaign: Campaign, records: Sequence[RunRecord]) -> Grid | None:
    found = run_pairwise_tests(campaign, records)
    ranking = found.of()
    pairs = [ranking.pair(a, b) for a, b in pairwise(ranking.methods)]
    rows = [_pair_row(campaign, found, one) for one in pairs if one.p is not None]
    if not rows:
        return None
    title = f"Neighbours: {records[0].suite}, profile {records[0].profile}, campaign {campaign.name}"
    header = (*_HEADER, f"to show {format_score(DETECT)} points", "if A - B is true")
    return Grid(title, header, tuple(rows), _NOTES)


def _pair_row(campaign: Campaign, found: PairwiseTests, pair: RankedPair) -> tuple[str, ...]:
    names = campaign.shown(pair.first), campaign.shown(pair.second)
    seeds = " and ".join(dict.fromkeys(map(str, found.sizes(pair.first, pair.second))))
    told = _APART if pair.differs else "not told apart"
    return (*names, format_difference(pair.difference), told, seeds, *_required_seeds(found, pair))


def _required_seeds(found: PairwiseTests, pair: RankedPair) -> tuple[str, str]:
    """Seeds for half a point, and for the difference as it is."""
    from bench.stats.planning import describe_seed_plan, plan_seeds

    spread = found.spread(pair.first, pair.second)
    if spread is None or pair.level is None:
        return DASH, DASH
    half, own = (
        describe_seed_plan(plan_seeds(detect, spread, level=pair.level)) if detect else DASH
        for detect in (DETECT, 0.0 if pair.differs else pair.difference)
    )
    return half, own
