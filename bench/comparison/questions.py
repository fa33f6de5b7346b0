"""Further questions of a comparison: equality, a claim, published differences, a plan of seeds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bench.comparison.evidence import SeedLevel
from bench.comparison.finding import EXACT, ComparisonFinding
from bench.errors import InputError
from bench.stats.equivalence import Claim, Equivalence, claim_test, equivalence_test
from bench.stats.seed_planning import Range, SeedPlan, compute_power_range, plan_seeds

DETECT = 0.005  # half a point


@dataclass(frozen=True)
class Questions:
    """The questions, in the metric's unit.

    Args:
        detect: The true difference to plan seeds for.
        margin: The largest difference that counts as equal, chosen before the scores are seen.
        claim: The claimed lead of the first over the second.
        published: Published differences first - second, by source.
    """

    detect: float = DETECT
    margin: float | None = None
    claim: float | None = None
    published: Mapping[str, float] = field(default_factory=dict)


NOTHING_ELSE = Questions()


@dataclass(frozen=True)
class Published:
    """A published difference of two single runs, and the interval for one further run of each of ours."""

    source: str
    difference: float
    low: float
    high: float
    inside: bool


@dataclass(frozen=True)
class Answers:
    """The answers of the level 1 - alpha; None if not asked for, or if the data cannot give it.

    ``published`` is against one further run of each; ``power`` is that of the present seeds.
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
    """Answer the questions of one of ``together`` comparisons; margin and claim for the headline's scope."""
    level = 1 - (1 - headline.level) / together
    if level <= 0.5 and not (asked.margin is asked.claim is None):
        raise InputError(f"--level {level:g} with --margin or --claim", expected="a level above 0.5")
    margin = claim = plan = power = None
    published = []
    if headline.unjudged is None:
        estimate = headline.as_estimate()
        margin = equivalence_test(estimate, asked.margin, level) if asked.margin else None
        claim = None if asked.claim is None else claim_test(estimate, asked.claim, level)
    if seeds and (spread := seeds.spread):
        low, high = seeds.further_run
        for source, value in asked.published.items():
            published.append(Published(source, value, low, high, low <= value <= high))
        # plans are of t tests; a constant side with seeds is no fixed score
        is_fixed = spread.design != "one side" or seeds.design.test == "student"
        if seeds.design.test not in EXACT and is_fixed:
            n_a, n_b = seeds.superiority.n_a, seeds.superiority.n_b
            if spread.design == "one side":
                n_a = n_b = max(n_a, n_b)
            plan = plan_seeds(asked.detect, spread, level=level)
            power = compute_power_range(asked.detect, spread, n_a, n_b, level=level)
    return Answers(level, margin, claim, tuple(published), plan, power)
