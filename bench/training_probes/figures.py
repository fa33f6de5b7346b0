"""Figures of probes along trainings: the dev score against each quantity, a line a training stage."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import fmean

from bench.comparison.selection import group_by
from bench.records.record import safe_name
from bench.records.store import ResultStore
from bench.render.figure import Figure, Series
from bench.render.grid import SCALE
from bench.reports.campaign import ALONG, Campaign
from bench.reports.figures.campaign_files import figures_by_file
from bench.reports.tables.relation import QUANTITIES, ProbeQuantity
from bench.training_probes.evaluations import ProbedEvaluation, read_training_probes


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
