"""Figures of probes along trainings: the dev score against what is probed, a line a training stage."""

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
    runs = group_by(kept.evaluations, lambda one: (one.method, one.stage))
    stages = group_by(runs, lambda of: of[0])
    names = {(m, stage): f"{m}, {stage}" if len(stages[m]) > 1 else m for m, stage in runs}
    for quantity in QUANTITIES:
        made = (_quantity_line(quantity, names[of], found) for of, found in runs.items())
        lines = [line for line in made if line]
        if lines:
            name = safe_name(f"{path.stem}-{quantity.heading}".replace(" ", "-"))
            yield Figure(
                *(name, "along", f"Along training: {quantity.heading}", "lines"),
                *(quantity.heading, "dev score", source, tuple(lines)),
                note="Each line follows an encoder from its first dev evaluation, left or right, to its "
                "last; means over seeds.",
            )


def _quantity_line(quantity: ProbeQuantity, name: str, runs: list[ProbedEvaluation]) -> Series | None:
    """Mean over seeds at each step that has the quantity."""
    scale = quantity.column.scale
    points = [
        (fmean(scale * value for value, _ in there), fmean(SCALE * dev for _, dev in there))
        for evaluated in group_by(runs, lambda one: one.step).values()
        if (there := list(_placed_values(quantity, evaluated)))
    ]
    if not points:
        return None
    return Series(name, tuple(x for x, _ in points), tuple(y for _, y in points))


def _placed_values(
    quantity: ProbeQuantity, evaluated: list[ProbedEvaluation]
) -> Iterator[tuple[float, float]]:
    """Quantity and dev score of the evaluations that have a place in its row of the table."""
    for one in evaluated:
        value = quantity.of(one.probes)
        if value is not None and not quantity.why_not(one.probes):
            yield value, one.dev
