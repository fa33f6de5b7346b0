"""Probes along trainings: a row for every dev evaluation, and how they go with the dev score."""

from __future__ import annotations

from collections.abc import Sequence

from bench.probes.along import Evaluated
from bench.reports.grid import DASH, Grid, number
from bench.reports.tables.probes import sentences_of
from bench.reports.tables.relation import QUANTITIES, Point, Quantity, Relation, relate
from bench.reports.tables.relation_grid import Words, relation_grid

WORDS = Words(
    "evaluations",
    "dev score",
    "",
    "evaluations of one training count as one, and so do trainings that share stages.",
)


def along_relations(found: Sequence[Evaluated], profile: str, dev: str) -> list[Relation]:
    """Correlate what is probed with the dev score over all evaluations; ``dev`` is the suite of the score."""
    return relate(
        [_point(one) for one in found], {name for one in found for name in one.probes}, profile, dev
    )


def along_grids(found: Sequence[Evaluated], profile: str, dev: str) -> list[Grid]:
    """Return a row for every evaluation, and the relations below; nothing without an evaluation."""
    if not found:
        return []
    of = f"{sentences_of(found[0].probes)}; dev set {dev}, profile {profile}"
    shown = [one for one in QUANTITIES if one.probe in found[0].probes]
    header = ("method", "seed", "stage", "step", "dev", *(one.heading for one in shown))
    rows = tuple(
        (
            *(one.method, DASH if one.seed is None else str(one.seed), one.stage, str(one.step)),
            *(number(one.dev), *(_cell(quantity, one) for quantity in shown)),
        )
        for one in found
    )
    grid = Grid(f"Along training: {of}", header, rows, ())
    return [grid, relation_grid(f"Mechanism: {of}", along_relations(found, profile, dev), WORDS)]


def _cell(quantity: Quantity, one: Evaluated) -> str:
    value, column = quantity.of(one.probes), quantity.column
    return DASH if value is None else format(column.scale * value, column.form)


def _point(one: Evaluated) -> Point:
    of = one.method if one.seed is None else f"{one.method} seed {one.seed}"
    lacks = {quantity.heading: why for quantity in QUANTITIES if (why := quantity.why_not(one.probes))}
    found = ((quantity.heading, quantity.of(one.probes)) for quantity in QUANTITIES)
    values = {name: value for name, value in found if value is not None and name not in lacks}
    name = f"{of}, stage {one.stage}, step {one.step}"
    return Point(name, of, one.dev, values, lacks, frozenset(one.stages))
