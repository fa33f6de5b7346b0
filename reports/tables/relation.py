"""Rank correlations of what is probed with a score, plain and with uniformity held fixed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.comparison.confounders import read_stage_keys
from bench.probes import PROBES
from bench.probes.interface import ProbeColumn
from bench.records.record import RunRecord
from bench.reports.tables.probes import number_at
from bench.stats.correlations import EQUAL, partial_spearman
from bench.stats.inputs import MIN_PAIRS
from bench.stats.item_statistics import spearman_interval
from bench.stats.resampling import spearman_rows

HELD = "uniformity"
NOT_PROBED = "it wasn't probed"


@dataclass(frozen=True)
class ProbeQuantity:
    """A number of a probe that may go with the score.

    Args:
        probe: The probe.
        heading: Its column there.
        of_cls: It is a number of [CLS], so it says nothing of an encoder that pools something else.
    """

    probe: str
    heading: str
    of_cls: bool = False

    @property
    def column(self) -> ProbeColumn:
        """Where the probe's facts have it, and how it is printed."""
        return next(column for column in PROBES[self.probe].columns if column.heading == self.heading)

    def of(self, probes: Mapping[str, Any]) -> float | None:
        """Return it from probes as a record holds them; None where they lack it."""
        return number_at(probes.get(self.probe), self.column.path)

    def why_not(self, probes: Mapping[str, Any]) -> str:
        """Say why an encoder has no place in this row; "" if it has one."""
        block = probes.get(self.probe, {})
        if "missing" in block:
            return str(block["missing"])
        if self.of(probes) is None:
            return NOT_PROBED
        pooling = probes.get("cls_energy", {}).get("pooling")
        if not self.of_cls or pooling == "cls":
            return ""
        return f"it pools {pooling}" if pooling else "how it pools is not known"


QUANTITIES = (
    ProbeQuantity("cls_energy", "E_CLS", of_cls=True),
    ProbeQuantity("attention_sink", "on CLS", of_cls=True),
    ProbeQuantity("attention_sink", "sink"),
    ProbeQuantity("alignment", "alignment"),
    ProbeQuantity("uniformity", HELD),
    ProbeQuantity("isotropy", "effective rank"),
    ProbeQuantity("modulus", "|CLS|", of_cls=True),
)
"""The rows."""


@dataclass(frozen=True)
class RelationPoint:
    """What is correlated: a method, or an encoder at one step of its training.

    Args:
        name: Which it is, no two alike.
        method: Its method.
        score: What the quantities are held against; None for none.
        values: The quantities that it has, by heading.
        lacks: Why it has no place in the other rows, by heading.
        stages: Keys of the stages that were trained for it: points with one in common depend on each other.
    """

    name: str
    method: str
    score: float | None
    values: Mapping[str, float]
    lacks: Mapping[str, str]
    stages: frozenset[str]


@dataclass(frozen=True)
class RelationValues:
    """A point of one relation: the quantity, the score, and uniformity where it is known."""

    value: float
    score: float
    uniformity: float | None


@dataclass(frozen=True)
class Rho:
    """A rank correlation.

    Args:
        value: None for too few points, all of one value, or an order of which what is held fixed leaves
            nothing.
        low: Lower end of its interval (Bonett and Wright 2000); None for too few independent points, and
            where the value is 1 or -1: it has no width there.
        high: Upper end.
    """

    value: float | None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Relation:
    """How a quantity goes with the score.

    Args:
        profile: Profile.
        suite: Suite of the score.
        quantity: Heading of the quantity.
        points: What is correlated, by name.
        independent: The number of groups of points that share no trained stage with another group.
        rho: Spearman's with the score.
        partial: The same with uniformity held fixed.
        with_uniformity: Spearman's with uniformity.
        level: Confidence level of the intervals.
        left_out: By method, why it isn't a point here.
    """

    profile: str
    suite: str
    quantity: str
    points: dict[str, RelationValues]
    independent: int
    rho: Rho
    partial: Rho
    with_uniformity: float | None
    level: float
    left_out: dict[str, str]


def correlate_quantities(
    points: Sequence[RelationPoint], probed: Iterable[str], profile: str, suite: str, level: float = 0.95
) -> list[Relation]:
    """Correlate every quantity with the points' scores.

    Args:
        points: The points.
        probed: Names of the probes that were measured: a quantity of another one has no relation.
        profile: Profile, for the relations.
        suite: Suite of the scores, for the relations.
        level: Confidence level, in (0, 1).
    """
    names = set(probed)
    wanted = [one.heading for one in QUANTITIES if one.probe in names]
    return [_correlate_quantity(points, heading, profile, suite, level) for heading in wanted]


def _correlate_quantity(
    points: Sequence[RelationPoint], heading: str, profile: str, suite: str, level: float
) -> Relation:
    there = {
        one.name: RelationValues(one.values[heading], one.score, one.values.get(HELD))
        for one in points
        if heading in one.values and one.score is not None
    }
    x, y = [one.value for one in there.values()], [one.score for one in there.values()]
    z = [one.uniformity for one in there.values() if one.uniformity is not None]
    alone = count_independent(one.stages for one in points if one.name in there)
    fixed = heading != HELD and len(z) == len(there)
    why = {one.method: one.lacks.get(heading, "it has no score") for one in points if one.name not in there}
    return Relation(
        *(profile, suite, heading, there, alone),
        rho=_correlate_ranks(x, y, None, alone, level),
        partial=_correlate_ranks(x, y, z, alone, level) if fixed else Rho(None),
        with_uniformity=_correlate_ranks(x, z, None, alone, level).value if fixed else None,
        level=level,
        left_out=why,
    )


def _correlate_ranks(
    x: Sequence[float], y: Sequence[float], held: Sequence[float] | None, alone: int, level: float
) -> Rho:
    least = MIN_PAIRS if held is None else MIN_PAIRS + 1
    sides = [x, y] if held is None else [x, y, held]
    if len(x) < least or any(len(set(side)) == 1 for side in sides):
        return Rho(None)
    if held is None:
        rho = float(spearman_rows(x, y)[0])
    elif any(_is_perfect(float(spearman_rows(side, held)[0])) for side in (x, y)):
        return Rho(None)
    else:
        rho = partial_spearman(x, y, held)
    if _is_perfect(rho):
        return Rho(math.copysign(1.0, rho))
    if alone < least:
        return Rho(rho)
    return Rho(rho, *spearman_interval(rho, alone, level, held=int(held is not None)))


def _is_perfect(rho: float) -> bool:
    """True for 1 and -1, but for rounding."""
    return 1 - abs(rho) < EQUAL


def trained_stages(runs: Iterable[RunRecord]) -> frozenset[str]:
    """Return the keys of all stages that some runs trained."""
    return frozenset(key for run in runs for key in read_stage_keys(run))


def count_independent(stages: Iterable[frozenset[str]]) -> int:
    """Return how many groups there are that share no trained stage; one without any is by itself.

    Args:
        stages: Keys of the stages that were trained for each.

    A shares a stage with B and B another with C, D none:

    >>> count_independent(map(frozenset, (["a"], ["a", "b"], ["b"], [])))
    2
    """
    return len(set(group_by_stages(stages)))


def group_by_stages(stages: Iterable[frozenset[str]]) -> list[int]:
    """Return the group of each: those that share a trained stage, directly or through others, have one.

    Args:
        stages: Keys of the stages that were trained for each; one without any is by itself.

    >>> group_by_stages(map(frozenset, (["a"], ["b"], ["a", "c"], ["c"], [], [])))
    [0, 1, 0, 0, 4, 5]
    """
    found: list[int] = []
    keys: dict[int, frozenset[str]] = {}
    for place, own in enumerate(stages):
        joined = [group for group, theirs in keys.items() if theirs & own]
        first = min(joined, default=place)
        keys[first] = own.union(*(keys.pop(group) for group in joined))
        found = [first if group in joined else group for group in found] + [first]
    return found
