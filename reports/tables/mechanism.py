"""Correlations of probed quantities with the score over a campaign's methods."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import chain

from bench.records.record import RunRecord
from bench.render.grid import Grid, summarise_values
from bench.reports.campaign import Campaign
from bench.reports.record_groups import by_method, by_profile_and_suite, finished_records, summarise_scores
from bench.reports.tables.probes import check_same_sentences, describe_sentences, probed_runs
from bench.reports.tables.relation import (
    QUANTITIES,
    Relation,
    RelationPoint,
    RelationWords,
    correlate_quantities,
    relation_grid,
    trained_stages,
)

WORDS = RelationWords(
    "methods",
    "average",
    ", each the mean of its seeds",
    "methods that share trained stages, directly or through others, count as one. Besides, methods "
    "have backbone and training text in common, so fewer are independent than are counted.",
)


def mechanism_grids(campaign: Campaign) -> list[Grid]:
    """Return a table for every profile and suite whose records have probes."""
    grids = []
    for records in by_profile_and_suite(campaign.records):
        if relations := score_relations(campaign, records):
            probes = next(record.probes for record in finished_records(records) if record.probes)
            sentences = describe_sentences(probes)
            title = f"Mechanism: {sentences}; {records[0].suite}, profile {records[0].profile}"
            grids.append(relation_grid(title, relations, WORDS))
    return grids


def all_relations(campaign: Campaign) -> list[Relation]:
    """Return the relations of every profile and suite."""
    groups = by_profile_and_suite(campaign.records)
    return list(chain.from_iterable(map(partial(score_relations, campaign), groups)))


def score_relations(campaign: Campaign, records: Sequence[RunRecord]) -> list[Relation]:
    """Correlate probed quantities with the average over methods, each the mean of its probed seeds.

    Supervised methods are left out unless the campaign ranks them. Last checkpoints have no probes. Raises
    NotComparableError for probes of different sentences.
    """
    done = [] if campaign.last else finished_records(records)
    runs = probed_runs(done, campaign.shown)
    check_same_sentences(runs)
    points = [_method_point(campaign, method, group) for method, group in by_method(done).items()]
    probes = set(chain.from_iterable(run.probes for run in runs))
    return correlate_quantities(points, probes, records[0].profile, records[0].suite)


def _method_point(campaign: Campaign, method: str, runs: Sequence[RunRecord]) -> RelationPoint:
    shown, probed = campaign.shown(method), [run for run in runs if run.probes]
    stages = trained_stages(probed)
    if method in campaign.apart or not probed:
        why = "it learned from labels" if method in campaign.apart else "it has no probes"
        return RelationPoint(shown, shown, None, {}, {one.heading: why for one in QUANTITIES}, stages)
    values: dict[str, float] = {}
    lacks: dict[str, str] = {}
    for one in QUANTITIES:
        reasons = [why for run in probed if (why := one.why_not(run.probes))]
        mean = summarise_values([one.of(run.probes) for run in probed]).mean
        if reasons:
            lacks[one.heading] = reasons[0]
        elif mean is not None:
            values[one.heading] = mean
    score = summarise_scores(probed).mean
    return RelationPoint(shown, shown, score, values, lacks, stages)
