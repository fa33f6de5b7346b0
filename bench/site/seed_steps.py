"""What a leaderboard would have said with fewer seeds: the page's slider."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bench.records.record import RunRecord
from bench.render.grid import summarise_values
from bench.reports.campaign import Campaign
from bench.reports.records import by_method, by_profile_and_suite, finished_records, is_ranked, task_scores
from bench.reports.tables.pairwise_tests import PairwiseTests


@dataclass(frozen=True)
class SeedSteps:
    """A leaderboard by the number of its seeds.

    Args:
        title: Of the leaderboard.
        seeds: All of them, in their order.
        steps: With the first one, two, ... of them: rows of method, mean, sd, n, first and last rank (None
            where nothing could be tested) and letters, the best first; scores in the metric's unit.
    """

    title: str
    seeds: tuple[int, ...]
    steps: tuple[tuple[tuple[Any, ...], ...], ...]


def rank_by_seed_count(campaign: Campaign) -> list[SeedSteps]:
    """Return the leaderboards that have two seeds or more, each with its first one, two, ... seeds alone.

    Tests, ranks and groups are those of these records, as if no others were there.
    """
    found = []
    for records in by_profile_and_suite(campaign.records):
        done = finished_records(records)
        seeds = tuple(sorted({r.seed for r in done if r.seed is not None}))
        if len(seeds) > 1:
            firsts = (seeds[:count] for count in range(1, len(seeds) + 1))
            steps = tuple(
                _rank_step(campaign, [r for r in done if r.seed in (None, *some)]) for some in firsts
            )
            title = f"{records[0].suite}, profile {records[0].profile}"
            found.append(SeedSteps(title, seeds, steps))
    return found


def _rank_step(campaign: Campaign, records: Sequence[RunRecord]) -> tuple[tuple[Any, ...], ...]:
    of_method = by_method(records)
    ranked = {
        method: runs
        for method, runs in of_method.items()
        if all(is_ranked(run, supervised=campaign.rank_supervised) for run in runs)
    }
    ranking = PairwiseTests(campaign, records).of().among(ranked)  # corrected as the leaderboard is
    rows = []
    for method, runs in ranked.items():
        cell = summarise_values(task_scores(runs))
        if cell.mean is not None:
            first, last = ranking.intervals.get(method, (None, None))
            seeds = 0 if runs[0].seed is None else cell.n
            letters = ranking.letters.get(method, "")
            rows.append((campaign.shown(method), cell.mean, cell.sd, seeds, first, last, letters))
    return tuple(sorted(rows, key=lambda row: -row[1]))
