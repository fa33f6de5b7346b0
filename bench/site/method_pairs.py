"""Precomputed comparisons of all pairs of a campaign's methods, for the page that compares two."""

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
    """Return ``bench compare``'s verdicts on all pairs of methods, a block a profile and suite.

    Each block has "profile", "suite", "rows" (method ids), "texts" (distinct sentences) and "pairs": indexes
    of both rows, then those of their sentences. The last sentence is the leaderboard's, by Holm's correction
    over all its pairs; the others hold for a pair chosen before the scores were seen.
    """
    blocks = []
    for records in by_profile_and_suite(campaign.records):
        done = finished_records(records)
        if len({record.method for record in done}) > 1:
            blocks.append(_compare_block(campaign, done))
    return blocks


def _compare_block(campaign: Campaign, records: Sequence[RunRecord]) -> dict[str, Any]:
    groups = []
    for method, method_records in by_method(records).items():
        runs = sort_runs_by_seed(CampaignRun(campaign.home(record), record) for record in method_records)
        groups.append(Group(method, tuple(runs)))
    rows, texts = [group.label for group in groups], dict[str, int]()
    drawn = [all(read_draws(run) is not None for run in group.runs) for group in groups]
    tests = run_pairwise_tests(campaign, records)
    lines = []
    for i, j in combinations(range(len(rows)), 2):
        draw = _read_draws if drawn[i] and drawn[j] else None
        sentences = [*_describe_pair(groups[i], groups[j], draw), _describe_ranking(tests, rows[i], rows[j])]
        lines.append([i, j, *(texts.setdefault(printable(text), len(texts)) for text in sentences)])
    place = {"profile": records[0].profile, "suite": records[0].suite}
    return place | {"rows": rows, "texts": list(texts), "pairs": lines}


def _describe_pair(a: Group, b: Group, draw: DrawItems | None) -> list[str]:
    try:
        comparison = compare(a, b, draw=draw)
        return [f"{describe_verdict(comparison)}.", *describe_comparison(comparison)]
    except BenchError as error:
        return [f"Not compared: {error.what}."]


def _read_draws(runs: Sequence[CampaignRun]) -> Iterator[RunDraws]:
    for run in runs:
        values = read_draws(run)
        if values is not None:
            yield RunDraws(values, None)


def _describe_ranking(tests: PairwiseTests, a: str, b: str) -> str:
    ranking = tests.of()
    try:
        pair = ranking.pair(a, b)
    except KeyError:
        return "Not among the pairs of the leaderboard: supervised methods are not tested against others."
    if pair.p is None or pair.adjusted is None:
        return f"Not tested among the pairs of the leaderboard: {pair.test}."
    verdict = "differ" if pair.differs else "are not shown to differ"
    ends = format_pair_interval(tests, a, b)
    return (
        f"Among all pairs the two {verdict}: p corrected {pair.adjusted:.4f}, interval of {a} - {b} {ends}, "
        f"by {describe_tests(ranking)}."
    )
