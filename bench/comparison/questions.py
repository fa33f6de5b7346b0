"""What a comparison is asked besides: are both equal, does a claim hold, a published figure, a plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bench.comparison.evidence import SeedLevel
from bench.comparison.finding import EXACT, ComparisonFinding
from bench.errors import InputError
from bench.stats.equivalence import Claim, Equivalence, claim_test, equivalence_test
from bench.stats.planning import Range, SeedPlan, compute_power_range, plan_seeds
from bench.stats.spread import Spread

DETECT = 0.005  # half a point


@dataclass(frozen=True)
class Questions:
    """What to ask, in the metric's unit.

    Args:
        detect: The true difference that planned seeds are to show.
        margin: The largest difference that counts as equal, chosen before the scores are seen.
        claim: The lead of the first over the second that somebody claims.
        published: Published differences first - second, by their source.
    """

    detect: float = DETECT
    margin: float | None = None
    claim: float | None = None
    published: Mapping[str, float] = field(default_factory=dict)


NOTHING_ELSE = Questions()


@dataclass(frozen=True)
class Published:
    """A published difference of two single runs, checked against our spread over seeds.

    Args:
        source: Where it is published.
        difference: First - second.
        low: Lower end of the interval for one further run of each.
        high: Upper end.
        inside: Whether the difference lies in it.
    """

    source: str
    difference: float
    low: float
    high: float
    inside: bool


@dataclass(frozen=True)
class Answers:
    """The answers; each is None where it was not asked for, or where the data can't give it.

    Args:
        level: 1 - alpha of each; of several comparisons together, alpha is divided by their number.
        margin: Whether the two are equal within the margin.
        claim: Whether the records support the claimed lead.
        published: Published differences against one further run of each; empty where the two have no seeds.
        plan: How many seeds would show the difference to be detected.
        power: The chance that the seeds at hand show it.
    """

    level: float
    margin: Equivalence | None
    claim: Claim | None
    published: tuple[Published, ...]
    plan: SeedPlan | None
    power: Range | None


def answer_questions(
    asked: Questions, headline: ComparisonFinding, seeds: SeedLevel | None, *, together: int = 1
) -> Answers:
    """Answer what was asked of a comparison.

    Args:
        asked: The questions.
        headline: What the verdict rests on; margin and claim speak for the same.
        seeds: The seeds' level, for published differences and plans.
        together: How many comparisons are made together.

    Raises:
        InputError: a margin or a claim at a level of 0.5 or less.
    """
    level = 1 - (1 - headline.level) / together
    if level <= 0.5 and not (asked.margin is asked.claim is None):
        raise InputError(f"--level {level:g} with --margin or --claim", expected="a level above 0.5")
    found, known = headline.as_estimate(), headline.unjudged is None
    spread = seeds.spread if seeds else None
    # a side with seeds that doesn't vary in the pilot is no fixed score; plans are of t tests
    plannable = (
        seeds
        and spread
        and seeds.design.test not in EXACT
        and (spread.design != "one side" or seeds.design.test == "student")
    )
    return Answers(
        level=level,
        margin=equivalence_test(found, asked.margin, level) if known and asked.margin else None,
        claim=claim_test(found, asked.claim, level) if known and asked.claim is not None else None,
        published=_check_published(asked.published, seeds.further_run) if seeds and spread else (),
        plan=plan_seeds(asked.detect, spread, level=level) if spread and plannable else None,
        power=_compute_current_power(asked.detect, seeds, spread, level)
        if seeds and spread and plannable
        else None,
    )


def _check_published(published: Mapping[str, float], ends: tuple[float, float]) -> tuple[Published, ...]:
    low, high = ends
    return tuple(
        Published(source, value, low, high, low <= value <= high) for source, value in published.items()
    )


def _compute_current_power(detect: float, seeds: SeedLevel, spread: Spread, level: float) -> Range:
    """The chance that the seeds at hand show it."""
    n_a, n_b = seeds.superiority.n_a, seeds.superiority.n_b
    if spread.design == "one side":
        n_a = n_b = max(n_a, n_b)
    return compute_power_range(detect, spread, n_a, n_b, level=level)
