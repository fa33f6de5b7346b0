"""Every two methods of a campaign compared beforehand, for the page that compares by its address."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

from bench.comparison.comparison import compare
from bench.comparison.evidence import DrawItems
from bench.comparison.item_bootstrap import CampaignRun, RunDraws, read_draws
from bench.comparison.render import describe_comparison, describe_verdict
from bench.comparison.selection import Group, sort_runs_by_seed
from bench.errors import BenchError, printable
from bench.records.record import RunRecord
from bench.reports.campaign import Campaign
from bench.reports.records import by_method, by_profile_and_suite, finished_records
from bench.reports.tables.pairwise_tests import (
    PairwiseTests,
    describe_tests,
    format_pair_interval,
    run_pairwise_tests,
)


def compare_method_pairs(campaign: Campaign) -> list[dict[str, Any]]:
    """Return what ``bench compare`` says of every two methods, a block a profile and suite.

    Each block has "profile", "suite", "rows" (method ids), "texts" (sentences, each once) and "pairs": places
    of both rows, then the numbers of their sentences. The last is what the leaderboard says of the two, by
    Holm's correction over all its pairs; the others hold for a pair that was chosen before the scores were
    looked at.
    """
    found = []
    for records in by_profile_and_suite(campaign.records):
        done = finished_records(records)
        if len({record.method for record in done}) > 1:
            found.append(_compare_block(campaign, done))
    return found


def _compare_block(campaign: Campaign, records: Sequence[RunRecord]) -> dict[str, Any]:
    groups = {
        method: Group(
            method, tuple(sort_runs_by_seed(CampaignRun(campaign.home(record), record) for record in runs))
        )
        for method, runs in by_method(records).items()
    }
    rows, texts = list(groups), dict[str, int]()
    drawn = {name for name, group in groups.items() if all(read_draws(r) is not None for r in group.runs)}
    standing = run_pairwise_tests(campaign, records)
    lines = []
    for i, j in combinations(range(len(rows)), 2):
        a, b = rows[i], rows[j]
        draw = _read_draws if {a, b} <= drawn else None
        said = [*_describe_pair(groups[a], groups[b], draw), _describe_ranking(standing, a, b)]
        lines.append([i, j, *(texts.setdefault(printable(text), len(texts)) for text in said)])
    place = {"profile": records[0].profile, "suite": records[0].suite}
    return place | {"rows": rows, "texts": list(texts), "pairs": lines}


def _describe_pair(a: Group, b: Group, draw: DrawItems | None) -> list[str]:
    """The verdict and what else is said of one pair by itself, or why nothing is."""
    try:
        found = compare(a, b, draw=draw)
        return [f"{describe_verdict(found)}.", *describe_comparison(found)]
    except BenchError as error:
        return [f"Not compared: {error.what}."]


def _read_draws(runs: Sequence[CampaignRun]) -> Iterator[RunDraws]:
    """Draws of the items that ``bench stats`` left; none are made here, and nothing is written."""
    for run in runs:
        values = read_draws(run)
        if values is not None:
            yield RunDraws(values, None)


def _describe_ranking(standing: PairwiseTests, a: str, b: str) -> str:
    ranking = standing.of()
    try:
        one = ranking.pair(a, b)
    except KeyError:
        return "Not among the pairs of the leaderboard: supervised methods are not tested against others."
    if one.p is None or one.adjusted is None:
        return f"Not tested among the pairs of the leaderboard: {one.test}."
    said = "differ" if one.differs else "are not shown to differ"
    ends = format_pair_interval(standing, a, b)
    return (
        f"Among all pairs the two {said}: p corrected {one.adjusted:.4f}, interval of {a} - {b} {ends}, "
        f"by {describe_tests(ranking)}."
    )
