"""Rank correlations of probed quantities with a score over methods, plain and with uniformity held fixed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

from bench.comparison.selection import read_stage_keys
from bench.probes import PROBES
from bench.probes.interface import ProbeColumn
from bench.records.record import RunRecord
from bench.render.grid import DASH, Grid, format_number, summarise_values
from bench.reports.campaign import Campaign
from bench.reports.record_groups import by_method, by_profile_and_suite, finished_records, summarise_scores
from bench.reports.tables.probes import check_same_sentences, describe_sentences, number_at, probed_runs
from bench.stats.argument_checks import MIN_PAIRS
from bench.stats.correlations import EQUAL, partial_spearman
from bench.stats.coverage import CoverageRow, find_coverage
from bench.stats.item_statistics import spearman_interval
from bench.stats.resampling import spearman_rows

HELD = "uniformity"
NOT_PROBED = "it wasn't probed"
CLOSE = 0.7  # coverage was measured where both sides correlate by 0.5 with what is held fixed, and by 0.9


@dataclass(frozen=True)
class ProbeQuantity:
    """A number of a probe by its column; one ``of_cls`` describes only encoders that pool [CLS]."""

    probe: str
    heading: str
    of_cls: bool = False

    @property
    def column(self) -> ProbeColumn:
        """Its path in the probe's facts, and its printed form."""
        return next(column for column in PROBES[self.probe].columns if column.heading == self.heading)

    def of(self, probes: Mapping[str, Any]) -> float | None:
        """Return it from a record's probes, if any."""
        return number_at(probes.get(self.probe), self.column.path)

    def why_not(self, probes: Mapping[str, Any]) -> str:
        """Return why an encoder lacks it, or ""."""
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
    """A point of correlations: a method, or an encoder at one step of its training.

    Args:
        values: Its quantities, by heading.
        lacks: Why it lacks the other quantities, by heading.
        stages: Keys of the stages that were trained for it: points that share one depend on each other.
    """

    name: str
    method: str
    score: float | None
    values: Mapping[str, float]
    lacks: Mapping[str, str]
    stages: frozenset[str]


@dataclass(frozen=True)
class RelationValues:
    """A point of one relation: the quantity, the score, and uniformity if known."""

    value: float
    score: float
    uniformity: float | None


@dataclass(frozen=True)
class Rho:
    """A rank correlation, missing for too few points, equal values, or an order given by the fixed quantity.

    The interval (Bonett and Wright 2000) is missing for too few independent points, and for 1 and -1.
    """

    value: float | None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Relation:
    """The correlation of a quantity with the score.

    Args:
        quantity: Heading of the quantity.
        points: The points, by name.
        independent: Number of groups of points that trained stages connect.
        rho: Spearman's with the score; ``partial``: with uniformity held fixed.
        with_uniformity: Spearman's with uniformity.
        left_out: Why methods are missing, by method.
    """

    profile: str
    suite: str
    quantity: str
    points: dict[str, RelationValues]
    independent: int
    rho: Rho
    partial: Rho
    with_uniformity: float | None
    left_out: dict[str, str]


@dataclass(frozen=True)
class RelationWords:
    """Words of a table: for its points, their score, the values of which a point is the mean, and a note."""

    points: str
    score: str
    means: str
    independent: str


def correlate_quantities(
    points: Sequence[RelationPoint], probed: Iterable[str], profile: str, suite: str
) -> list[Relation]:
    """Correlate every quantity of the ``probed`` probes with the points' scores."""
    names = set(probed)
    headings = [quantity.heading for quantity in QUANTITIES if quantity.probe in names]
    return [_correlate_quantity(points, heading, profile, suite) for heading in headings]


def _correlate_quantity(points: Sequence[RelationPoint], heading: str, profile: str, suite: str) -> Relation:
    values: dict[str, RelationValues] = {}
    x, y, left_out, stages = [], [], {}, []
    z: list[float] = []
    for point in points:
        if heading in point.values and point.score is not None:
            found = RelationValues(point.values[heading], point.score, point.values.get(HELD))
            values[point.name] = found
            x.append(found.value)
            y.append(found.score)
            if found.uniformity is not None:
                z.append(found.uniformity)
            stages.append(point.stages)
        else:
            left_out[point.method] = point.lacks.get(heading, "it has no score")
    independent = count_independent(stages)
    partial, with_uniformity = Rho(None), None
    if heading != HELD and len(z) == len(values):
        partial = _correlate_ranks(x, y, z, independent)
        with_uniformity = _correlate_ranks(x, z, None, independent).value
    rho = _correlate_ranks(x, y, None, independent)
    return Relation(profile, suite, heading, values, independent, rho, partial, with_uniformity, left_out)


def _correlate_ranks(
    x: Sequence[float], y: Sequence[float], held: Sequence[float] | None, independent: int
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
    if independent < least:
        return Rho(rho)
    return Rho(rho, *spearman_interval(rho, independent, held=int(held is not None)))


def _is_perfect(rho: float) -> bool:
    """True for 1 and -1, but for rounding."""
    return 1 - abs(rho) < EQUAL


def trained_stages(runs: Iterable[RunRecord]) -> frozenset[str]:
    """Return the keys of all stages that some runs trained."""
    return frozenset().union(*map(read_stage_keys, runs))


def count_independent(stages: Iterable[frozenset[str]]) -> int:
    """Return the number of groups of :func:`group_by_stages`.

    A shares a stage with B and B another with C; D has its own:

    >>> count_independent(map(frozenset, (["a"], ["a", "b"], ["b"], [])))
    2
    """
    return len(set(group_by_stages(stages)))


def group_by_stages(stages: Iterable[frozenset[str]]) -> list[int]:
    """Return a group's number for each set of trained stages' keys.

    Sets that share a stage, directly or through others, have one group; an empty set has its own.

    >>> group_by_stages(map(frozenset, (["a"], ["b"], ["a", "c"], ["c"], [], [])))
    [0, 1, 0, 0, 4, 5]
    """
    numbers: list[int] = []
    keys: dict[int, frozenset[str]] = {}
    for place, own in enumerate(stages):
        joined = [group for group, others in keys.items() if others & own]
        first = min(joined, default=place)
        keys[first] = own.union(*map(keys.pop, joined))
        numbers = [first if number in joined else number for number in numbers] + [first]
    return numbers


def relation_grid(title: str, relations: Sequence[Relation], words: RelationWords) -> Grid:
    """Return the table of some relations: a row a quantity."""
    rows = []
    lacking = False
    for one in relations:
        counts = str(len(one.points)), str(one.independent)
        rho, partial = ((rho_value(side.value), rho_ends(side)) for side in (one.rho, one.partial))
        rows.append((one.quantity, *counts, *rho, *partial, rho_value(one.with_uniformity)))
        values = [one.rho.value] if one.quantity == HELD else [one.rho.value, one.partial.value]
        lacking |= any(value is None or abs(value) == 1 for value in values)
    header = (
        *("quantity", words.points, "independent", f"rho with {words.score}", "95% interval"),
        *("uniformity fixed", "its 95% interval", "rho with uniformity"),
    )
    notes = [
        f"rho: Spearman's over {words.points}{words.means}; uniformity fixed: the partial one. Intervals: "
        "Bonett and Wright (2000), with the number of independent ones in place of n, each uncorrected for "
        "the others.",
        f"independent: {words.independent}",
        *_coverage_note(relations),
        *_omission_notes(relations),
    ]
    if any(one.independent <= MIN_PAIRS for one in relations):
        notes.append(
            f"An interval takes {MIN_PAIRS} independent ones, with uniformity fixed {MIN_PAIRS + 1}."
        )
    if lacking:
        notes.append(
            f"No rho: it takes {MIN_PAIRS} {words.points} that aren't all equal; with uniformity fixed "
            f"{MIN_PAIRS + 1}, the uniformity of each, and an order other than it or its reverse. 1 and -1 "
            "have no interval."
        )
    return Grid(title, header, tuple(rows), tuple(notes))


def describe_rho(rho: Rho) -> str:
    """Return a rank correlation with its interval.

    >>> describe_rho(Rho(0.8, 0.1, 0.95)), describe_rho(Rho(1.0))
    ('+0.80, 95% interval [+0.10, +0.95]', '+1.00')
    """
    ends = "" if rho.low is None else f", 95% interval {rho_ends(rho)}"
    return f"{rho_value(rho.value)}{ends}"


def rho_value(value: float | None) -> str:
    """Return a rank correlation with its sign."""
    return format_number(value, "+.2f")


def rho_ends(rho: Rho) -> str:
    """Return the interval of a rank correlation."""
    return DASH if rho.low is None else f"[{rho_value(rho.low)}, {rho_value(rho.high)}]"


def _coverage_note(relations: Sequence[Relation]) -> Iterator[str]:
    """The least coverage of such intervals in the simulations that fit these rows."""
    rows: dict[str, list[CoverageRow]] = {}
    for one in relations:
        n = one.independent
        if one.rho.low is not None:
            plain = find_coverage("rank correlation", n, n, abs(one.rho.value or 0))
            rows.setdefault("", []).append(plain)
        if one.partial.low is not None:
            # the simulation whose sides correlate with the fixed quantity as these do, or more
            design = f"normal, z {0.9 if abs(one.with_uniformity or 0) > CLOSE else 0.5}"
            value = abs(one.partial.value or 0)
            partial = find_coverage("partial rank correlation", n, n, value, design=design)
            rows.setdefault(" with uniformity fixed", []).append(partial)
    texts = []
    for suffix in ("", " with uniformity fixed"):
        if suffix in rows:
            worst = min(rows[suffix], key=lambda row: row.measured)
            texts.append(f"{100 * worst.measured:.0f}%{suffix} (n = {worst.n_a})")
    if texts:
        yield f"In the simulations that fit, 95% intervals hold the true rho in at least {', '.join(texts)}."


def _omission_notes(relations: Sequence[Relation]) -> Iterator[str]:
    """Methods that are missing from rows, a line a reason."""
    rows: dict[tuple[str, str], list[str]] = {}
    for one in relations:
        for method, why in one.left_out.items():
            rows.setdefault((method, why), []).append(one.quantity)
    lines: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (method, why), quantities in rows.items():
        lines.setdefault((why, tuple(quantities)), []).append(method)
    for (why, of_rows), methods in lines.items():
        of = "all rows" if len(of_rows) == len(relations) else ", ".join(of_rows)
        yield f"Left out of {of}: {', '.join(methods)} ({why})."


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

    Supervised methods are left out unless the campaign ranks them. Last checkpoints lack probes. Raises
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
