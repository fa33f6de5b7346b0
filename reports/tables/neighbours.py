"""Seeds that would separate neighbours of a leaderboard."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from bench.comparison.questions import DETECT
from bench.records.record import RunRecord
from bench.render.grid import DASH, Grid, format_difference, format_score
from bench.reports.campaign import Campaign
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
    return campaign.grids(_neighbour_grid)


def _neighbour_grid(campaign: Campaign, records: Sequence[RunRecord]) -> Grid | None:
    tests = run_pairwise_tests(campaign, records)
    ranking = tests.of()
    rows = []
    for pair in (ranking.pair(a, b) for a, b in pairwise(ranking.methods)):
        if pair.p is not None:
            names = campaign.shown(pair.first), campaign.shown(pair.second)
            seeds = " and ".join(dict.fromkeys(map(str, tests.sizes(pair.first, pair.second))))
            verdict = _APART if pair.differs else f"not {_APART}"
            plans = _required_seeds(tests, pair)
            rows.append((*names, format_difference(pair.difference), verdict, seeds, *plans))
    if not rows:
        return None
    header = (*_HEADER, f"to show {format_score(DETECT)} points", "if A - B is true")
    return Grid(campaign.title("Neighbours", records), header, tuple(rows), _NOTES)


def _required_seeds(tests: PairwiseTests, pair: RankedPair) -> tuple[str, str]:
    """Seeds for half a point, and for the measured difference."""
    from bench.stats.planning import describe_seed_plan, plan_seeds

    spread = tests.spread(pair.first, pair.second)
    if spread is None or pair.level is None:
        return DASH, DASH
    half = describe_seed_plan(plan_seeds(DETECT, spread, level=pair.level))
    if pair.differs or not pair.difference:
        return half, DASH
    return half, describe_seed_plan(plan_seeds(pair.difference, spread, level=pair.level))
