"""Probes along trainings: a row for every dev evaluation, and how they go with the dev score."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from bench.comparison.selection import group_by
from bench.errors import NotComparableError
from bench.render.grid import DASH, Grid, format_score
from bench.reports.campaign import ALONG, Campaign
from bench.reports.tables.probes import describe_sentences
from bench.reports.tables.relation import (
    QUANTITIES,
    ProbeQuantity,
    Relation,
    RelationPoint,
    RelationWords,
    Rho,
    correlate_quantities,
    group_by_stages,
    relation_grid,
    rho_ends,
    rho_value,
)
from bench.stats.inputs import MIN_PAIRS
from bench.stats.seeds import one_sample
from bench.training_probes.evaluations import ProbedEvaluation, read_training_probes

WORDS = RelationWords(
    "evaluations",
    "dev score",
    "",
    "evaluations of one training count as one, and so do trainings that share stages.",
)


@dataclass(frozen=True)
class WithinTraining:
    """How a quantity goes with the dev score while one encoder learns.

    Args:
        quantity: Heading of the quantity.
        trainings: The number of trainings in which it, and the dev score, had more than one value.
        independent: The number of groups of them that share no trained stage.
        rho: Mean over these groups of Spearman's over the evaluations of a training; Student's interval.
        fixed: The number of trainings in which uniformity leaves something of it.
        partial: The same with uniformity held fixed.
    """

    quantity: str
    trainings: int
    independent: int
    rho: Rho
    fixed: int
    partial: Rho


def training_probe_tables(campaign: Campaign) -> list[Grid]:
    """Return the relations of every file of ``bench probe --along --out`` in the campaign's folder.

    Raises:
        DataError: a damaged file.
        NotComparableError: probes of different sentences in one.
    """
    grids = []
    for store, path in campaign.files(ALONG):
        kept = read_training_probes(path)
        found, where = kept.evaluations, f"{store.campaign}/{path.name}" if campaign.several else path.name
        if any(one.probes["data"] != found[0].probes["data"] for one in found):
            raise NotComparableError("probes along trainings on different sentences", where=str(path))
        if found:
            of = f"{describe_sentences(found[0].probes)}; dev set {kept.dev}, profile {kept.profile}; {where}"
            grids.append(within_grid(f"Within trainings: {of}", within_relations(found)))
            relations = evaluation_relations(found, kept.profile, kept.dev)
            grids.append(relation_grid(f"Over all evaluations: {of}", relations, WORDS))
    return grids


def within_relations(found: Sequence[ProbedEvaluation]) -> list[WithinTraining]:
    """Correlate what is probed with the dev score within each training, and take the mean."""
    trainings = list(group_by(found, lambda one: one.key).values())
    related = [{one.quantity: one for one in evaluation_relations(runs, "", "")} for runs in trainings]
    stages = [frozenset((f"method {runs[0].method}", *runs[0].stages)) for runs in trainings]
    names = {name for relations in related for name in relations}
    made = []
    for name in (quantity.heading for quantity in QUANTITIES if quantity.heading in names):
        values = [relations[name].rho.value if name in relations else None for relations in related]
        fixed = [relations[name].partial.value if name in relations else None for relations in related]
        (rho, alone), (partial, _) = _mean_rho(values, stages), _mean_rho(fixed, stages)
        counts = (sum(value is not None for value in row) for row in (values, fixed))
        made.append(WithinTraining(name, next(counts), alone, rho, next(counts), partial))
    return made


def _mean_rho(values: Sequence[float | None], stages: Sequence[frozenset[str]]) -> tuple[Rho, int]:
    """Mean over groups of trainings that share neither method nor stage, and how many there are."""
    there = [(value, keys) for value, keys in zip(values, stages, strict=True) if value is not None]
    of = group_by_stages(keys for _, keys in there)
    pairs = [(group, value) for group, (value, _) in zip(of, there, strict=True)]
    means = [fmean(value for _, value in group) for group in group_by(pairs, lambda pair: pair[0]).values()]
    if len(set(means)) < 2:
        return Rho(means[0] if means else None), len(means)
    test = one_sample(means, 0.0)
    return Rho(test.difference, max(test.low, -1.0), min(test.high, 1.0)), len(means)


def within_grid(title: str, found: Sequence[WithinTraining]) -> Grid:
    """Return the table of what goes with the dev score while an encoder learns: a row a quantity."""
    header = (
        *("quantity", "trainings", "independent", "rho within a training", "95% interval"),
        *("uniformity fixed", "its trainings", "its 95% interval"),
    )
    rows = tuple(
        (
            *(
                one.quantity,
                str(one.trainings),
                str(one.independent),
                rho_value(one.rho.value),
                rho_ends(one.rho),
            ),
            *(rho_value(one.partial.value), str(one.fixed), rho_ends(one.partial)),
        )
        for one in found
    )
    notes = (
        f"rho: Spearman's over the dev evaluations of one training, at least {MIN_PAIRS}, then the mean over "
        f"trainings; uniformity fixed: the partial one, over at least {MIN_PAIRS + 1}, of the trainings in "
        "which uniformity leaves something of it.",
        "independent: the seeds of a method count as one with their mean, as do trainings that share stages, "
        "such as two towers and their joint training: seeds repeat what a method does. Intervals: Student's "
        "over these, each uncorrected for the others.",
        "What changes steadily while an encoder learns goes with a score that does: a rho here is no cause.",
    )
    return Grid(title, header, rows, notes)


def evaluation_relations(found: Sequence[ProbedEvaluation], profile: str, dev: str) -> list[Relation]:
    """Correlate what is probed with the dev score over all evaluations; ``dev`` is the suite of the score."""
    return correlate_quantities(
        [_evaluation_point(one) for one in found],
        {name for one in found for name in one.probes},
        profile,
        dev,
    )


def evaluation_grids(found: Sequence[ProbedEvaluation], profile: str, dev: str) -> list[Grid]:
    """Return a row for every evaluation, and both relations below; nothing without an evaluation."""
    if not found:
        return []
    of = f"{describe_sentences(found[0].probes)}; dev set {dev}, profile {profile}"
    shown = [one for one in QUANTITIES if one.probe in found[0].probes]
    header = ("method", "seed", "stage", "step", "dev", *(one.heading for one in shown))
    rows = tuple(
        (
            *(one.method, DASH if one.seed is None else str(one.seed), one.stage, str(one.step)),
            *(format_score(one.dev), *(_quantity_cell(quantity, one) for quantity in shown)),
        )
        for one in found
    )
    grid = Grid(f"Along training: {of}", header, rows, ())
    return [
        grid,
        within_grid(f"Within trainings: {of}", within_relations(found)),
        relation_grid(f"Mechanism: {of}", evaluation_relations(found, profile, dev), WORDS),
    ]


def _quantity_cell(quantity: ProbeQuantity, one: ProbedEvaluation) -> str:
    value, column = quantity.of(one.probes), quantity.column
    return DASH if value is None else format(column.scale * value, column.form)


def _evaluation_point(one: ProbedEvaluation) -> RelationPoint:
    of = one.method if one.seed is None else f"{one.method} seed {one.seed}"
    lacks = {quantity.heading: why for quantity in QUANTITIES if (why := quantity.why_not(one.probes))}
    found = ((quantity.heading, quantity.of(one.probes)) for quantity in QUANTITIES)
    values = {name: value for name, value in found if value is not None and name not in lacks}
    name = f"{of}, stage {one.stage}, step {one.step}"
    return RelationPoint(name, of, one.dev, values, lacks, frozenset(one.stages))
