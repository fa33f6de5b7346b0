"""The tests between the rows of one profile and suite: over seeds and items, or over tasks."""

from __future__ import annotations

from collections.abc import Sequence

from bench.comparison.task_evidence import has_only_tasks
from bench.records.record import RunRecord
from bench.reports.campaign import Campaign
from bench.reports.record_groups import finished_records
from bench.reports.tables.pairwise_tests import PairwiseTests
from bench.reports.tables.task_pairwise import TaskPairwiseTests


def run_pairwise_tests(campaign: Campaign, records: Sequence[RunRecord]) -> PairwiseTests:
    """Return the tests of the records of one profile and suite, shared by all parts of a report."""
    done = finished_records(records)
    key = (
        "standings",
        campaign.named,
        campaign.rank_supervised,
        *map(id, done),
    )  # the campaign holds these records as long as the tests
    if key not in campaign.kept:
        tested = set(campaign.family(done).tested)
        rows = [record for record in done if record.method in tested]
        kind = TaskPairwiseTests if len(rows) > 1 and has_only_tasks(rows) else PairwiseTests
        campaign.kept[key] = kind(campaign, done)
    tests: PairwiseTests = campaign.kept[key]
    return tests
