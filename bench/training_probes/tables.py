"""Tables and figures of probes along trainings, and correlations of probes with the dev score."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from bench.comparison.selection import group_by
from bench.errors import NotComparableError
from bench.records.record import safe_name
from bench.records.store import ResultStore
from bench.render.figure import Figure, Series
from bench.render.grid import DASH, SCALE, Grid, format_score
from bench.reports.campaign import ALONG, Campaign
from bench.reports.figures.campaign_files import figures_by_file
from bench.reports.tables.probe_correlations import (
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
from bench.reports.tables.probes import describe_sentences
from bench.stats.argument_checks import MIN_PAIRS
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
    """Correlation of a quantity with the dev score while one encoder learns."""

    quantity: str  # heading of the quantity
    trainings: int  # number of trainings with more than one value of it, and of the dev score
    independent: int  # number of groups of them that share no trained stage
    rho: Rho  # mean over these groups of Spearman's over the evaluations of a training; Student's interval
    fixed: int  # number of trainings in which uniformity leaves something of it
    partial: Rho  # the same with uniformity held fixed


def training_probe_tables(campaign: Campaign) -> list[Grid]:
    """Return the relations of every file of ``bench probe --along --out`` in the campaign's folder.

    Probes of different sentences in one file raise NotComparableError, a damaged file DataError.
    """
    grids = []
    for store, path in campaign.files(ALONG):
        kept = read_training_probes(path)
        evaluations = kept.evaluations
        if not evaluations:
            continue
        if any(evaluation.probes["data"] != evaluations[0].probes["data"] for evaluation in evaluations):
            raise NotComparableError("probes along trainings on different sentences", where=str(path))
        file = f"{store.campaign}/{path.name}" if campaign.several else path.name
        sentences = describe_sentences(evaluations[0].probes)
        source = f"{sentences}; dev set {kept.dev}, profile {kept.profile}; {file}"
        relations = evaluation_relations(evaluations, kept.profile, kept.dev)
        grids.append(within_grid(f"Within trainings: {source}", within_relations(evaluations)))
        grids.append(relation_grid(f"Over all evaluations: {source}", relations, WORDS))
    return grids


def within_relations(evaluations: Sequence[ProbedEvaluation]) -> list[WithinTraining]:
    """Correlate probed quantities with the dev score within each training, and take the mean."""
    relations: list[dict[str, Relation]] = []
    stages = []
    for training in group_by(evaluations, lambda evaluation: evaluation.key).values():
        relations.append({relation.quantity: relation for relation in evaluation_relations(training, "", "")})
        stages.append(frozenset((f"method {training[0].method}", *training[0].stages)))
    rows = []
    for name in (quantity.heading for quantity in QUANTITIES):
        if any(name in by_name for by_name in relations):
            values: list[float | None] = []
            fixed: list[float | None] = []
            for by_name in relations:
                relation = by_name.get(name)
                values.append(relation.rho.value if relation else None)
                fixed.append(relation.partial.value if relation else None)
            (rho, independent), (partial, _) = _mean_rho(values, stages), _mean_rho(fixed, stages)
            counts = [len(row) - row.count(None) for row in (values, fixed)]
            rows.append(WithinTraining(name, counts[0], independent, rho, counts[1], partial))
    return rows


def _mean_rho(values: Sequence[float | None], stages: Sequence[frozenset[str]]) -> tuple[Rho, int]:
    """Average over groups of unrelated trainings (by method and stages), and count these."""
    known = [(value, keys) for value, keys in zip(values, stages, strict=True) if value is not None]
    groups: dict[int, list[float]] = {}
    for group, (value, _) in zip(group_by_stages(keys for _, keys in known), known, strict=True):
        groups.setdefault(group, []).append(value)
    means = [fmean(group) for group in groups.values()]
    if len(set(means)) < 2:
        return Rho(means[0] if means else None), len(means)
    test = one_sample(means, 0.0)
    return Rho(test.difference, max(test.low, -1.0), min(test.high, 1.0)), len(means)


def within_grid(title: str, relations: Sequence[WithinTraining]) -> Grid:
    """Return the table of correlations with the dev score while an encoder learns: a row a quantity."""
    header = (
        *("quantity", "trainings", "independent", "rho within a training", "95% interval"),
        *("uniformity fixed", "its trainings", "its 95% interval"),
    )
    rows = []
    for row in relations:
        rho = rho_value(row.rho.value), rho_ends(row.rho)
        partial = rho_value(row.partial.value), str(row.fixed), rho_ends(row.partial)
        rows.append((row.quantity, str(row.trainings), str(row.independent), *rho, *partial))
    notes = (
        f"rho: Spearman's over the dev evaluations of one training, at least {MIN_PAIRS}, then the mean over "
        f"trainings; uniformity fixed: the partial one, over at least {MIN_PAIRS + 1}, of the trainings in "
        "which uniformity leaves something of it.",
        "independent: the seeds of a method count as one with their mean, as do trainings that share stages, "
        "such as two towers and their joint training: seeds repeat what a method does. Intervals: Student's "
        "over these, each uncorrected for the others.",
        "What changes steadily while an encoder learns goes with a score that does: a rho here is no cause.",
    )
    return Grid(title, header, tuple(rows), notes)


def evaluation_relations(evaluations: Sequence[ProbedEvaluation], profile: str, dev: str) -> list[Relation]:
    """Correlate probed quantities with the dev score over all evaluations; ``dev`` is the score's suite."""
    points = []
    names: set[str] = set()
    for evaluation in evaluations:
        probes, run = evaluation.probes, evaluation.method
        names |= set(probes)
        if evaluation.seed is not None:
            run += f" seed {evaluation.seed}"
        lacks = {quantity.heading: why for quantity in QUANTITIES if (why := quantity.why_not(probes))}
        values = {}
        for quantity in QUANTITIES:
            value = quantity.of(probes)
            if value is not None and quantity.heading not in lacks:
                values[quantity.heading] = value
        name = f"{run}, stage {evaluation.stage}, step {evaluation.step}"
        stages = frozenset(evaluation.stages)
        points.append(RelationPoint(name, run, evaluation.dev, values, lacks, stages))
    return correlate_quantities(points, names, profile, dev)


def evaluation_grids(evaluations: Sequence[ProbedEvaluation], profile: str, dev: str) -> list[Grid]:
    """Return a row for every evaluation, and both relations below."""
    if not evaluations:
        return []
    source = f"{describe_sentences(evaluations[0].probes)}; dev set {dev}, profile {profile}"
    quantities = [quantity for quantity in QUANTITIES if quantity.probe in evaluations[0].probes]
    header = ("method", "seed", "stage", "step", "dev", *(quantity.heading for quantity in quantities))
    rows = []
    for evaluation in evaluations:
        seed = DASH if evaluation.seed is None else str(evaluation.seed)
        cells = [evaluation.method, seed, evaluation.stage, str(evaluation.step)]
        cells.append(format_score(evaluation.dev))
        for quantity in quantities:
            value, column = quantity.of(evaluation.probes), quantity.column
            cells.append(DASH if value is None else format(column.scale * value, column.form))
        rows.append(tuple(cells))
    relations = evaluation_relations(evaluations, profile, dev)
    return [
        Grid(f"Along training: {source}", header, tuple(rows), ()),
        within_grid(f"Within trainings: {source}", within_relations(evaluations)),
        relation_grid(f"Mechanism: {source}", relations, WORDS),
    ]


def training_probe_figures(campaign: Campaign) -> list[tuple[ResultStore, list[Figure]]]:
    """Return the figures of each file of probes along trainings, with the campaign's store."""
    return figures_by_file(campaign, ALONG, evaluation_figures)


def evaluation_figures(path: Path) -> Iterator[Figure]:
    """Yield a figure a quantity from a file of ``bench probe --along --out``; raises DataError if damaged."""
    kept = read_training_probes(path)
    source = (f"file: {path.name}", f"profile: {kept.profile}", f"dev set: {kept.dev}")
    trainings = group_by(kept.evaluations, lambda evaluation: (evaluation.method, evaluation.stage))
    methods = [method for method, _ in trainings]
    for quantity in QUANTITIES:
        lines = []
        for (method, stage), runs in trainings.items():
            name = f"{method}, {stage}" if methods.count(method) > 1 else method
            if line := _quantity_line(quantity, name, runs):
                lines.append(line)
        if lines:
            name = safe_name(f"{path.stem}-{quantity.heading}".replace(" ", "-"))
            yield Figure(
                *(name, "along", f"Along training: {quantity.heading}", "lines"),
                *(quantity.heading, "dev score", source, tuple(lines)),
                note="Each line follows an encoder from its first dev evaluation, left or right, to its "
                "last; means over seeds.",
            )


def _quantity_line(quantity: ProbeQuantity, name: str, runs: list[ProbedEvaluation]) -> Series | None:
    """Return means over seeds at each step that has a value and a place in the quantity's table."""
    x, y = [], []
    for evaluations in group_by(runs, lambda evaluation: evaluation.step).values():
        values, scores = [], []
        for evaluation in evaluations:
            value = quantity.of(evaluation.probes)
            if value is not None and not quantity.why_not(evaluation.probes):
                values.append(quantity.column.scale * value)
                scores.append(SCALE * evaluation.dev)
        if values:
            x.append(fmean(values))
            y.append(fmean(scores))
    return Series(name, tuple(x), tuple(y)) if x else None
