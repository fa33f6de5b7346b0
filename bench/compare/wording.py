"""A comparison in plain words: its verdict, and what that verdict does not say."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from bench.compare.comparison import Comparison
from bench.compare.evidence import POWER, ItemLevel, SeedLevel
from bench.stats.descriptive import LEAST_SEEDS
from bench.stats.items import AVERAGE
from bench.stats.seeds import verdict as judge

TESTS = {
    "welch": "Welch's test",
    "permutation": "the exact permutation test",
    "items": "the paired bootstrap",
}
SCALE = 100.0  # points


def verdict(c: Comparison) -> str:
    """One sentence: who is ahead, that no difference is shown, or that none could be."""
    p, minimum = (c.corrected.p, c.corrected.minimum_p) if c.corrected else (c.p, c.minimum_p)
    said = judge(p, minimum, 1 - c.level)
    who = "these items" if c.test == "items" else _sizes(c)
    after = f" after {c.corrected.family}" if c.corrected else ""
    if said == "cannot show":
        return (
            f"{who} cannot show a difference of {c.first} and {c.second} at {percent(c.level)}: "
            f"the smallest p of {test_name(c)}{after} is {p_value(minimum)}"
        )
    size = f"{points(c.difference)} points {interval(*c.interval)} at {percent(c.level)}"
    if c.test == "permutation" or c.corrected:
        size += f", p = {p_value(p)} by {test_name(c)}{after}"
    if said == "not shown":
        return f"{who} show no difference of {c.first} and {c.second}: {size}"
    winner = c.first if c.difference > 0 else c.second
    if c.test == "items":
        return f"{winner} is ahead on these items: {c.first} - {c.second} = {size}"
    return f"{winner} is ahead: {c.first} - {c.second} = {size}, {who}"


def test_name(c: Comparison) -> str:
    """The test that the verdict rests on."""
    if c.test == "welch":
        return "Welch's test" if all(c.seeds) else "Student's test"
    return {"permutation": "the exact permutation test", "items": "the paired bootstrap"}[c.test]


def statements(c: Comparison) -> list[str]:
    """Sentences beside the verdict: effect size, power, items, both together, and what else differs."""
    lines = []
    if c.seed_level:
        lines += _of_seeds(c, c.seed_level)
    if c.item_level:
        lines += _of_items(c, c.item_level)
    if c.item_reason:
        lines.append(f"Items: left out, {c.item_reason}.")
    if c.corrected_tasks:
        lines.append(
            f"Tasks: p of {test_name(c)}, corrected after Benjamini-Hochberg over {len(c.corrected_tasks)} "
            "comparisons (the tasks); intervals are not corrected."
        )
    return [*lines, *c.limits, *c.notes]


def _of_seeds(c: Comparison, level: SeedLevel) -> list[str]:
    facts = [f"P({c.first} > {c.second}) = {level.superiority:.2f} over pairs of seeds"]
    if level.hedges_g is not None:
        facts.append(f"Hedges' g {level.hedges_g:+.2f}")
    facts.append(
        f"almost stochastic order not given under {LEAST_SEEDS} seeds a side"
        if level.aso is None
        else f"almost stochastic order eps {level.aso:.2f}, descriptive: below 0.5 in 18% of null simulations"
    )
    lines = [
        f"Seeds: the interval is {'Welch' if all(c.seeds) else 'Student'}'s; it speaks for further seeds on "
        "these items.",
        "; ".join(facts) + ".",
    ]
    if level.tasks[AVERAGE].df is None:
        lines.append("No score varies over seeds, so they give the difference no interval.")
    if level.sign_flip:
        flip = level.sign_flip
        lines.append(
            f"Sign flip of {flip.n_a} pairs of runs of one seed: p {p_value(flip.p)} (at least "
            f"{p_value(flip.minimum_p)})."
        )
    if level.shows_a_point is not None:
        size = abs(level.tasks[AVERAGE].difference)
        needed = "more than 10,000" if level.needed is None else f"{level.needed:,}"
        lines.append(
            f"With these spreads a difference of {SCALE * size:.2f} points takes {needed} seeds a side to "
            f"show with power {POWER}; {_sizes(c)} show one of 1 point with power {level.shows_a_point:.2f}."
        )
    return lines


def _of_items(c: Comparison, level: ItemLevel) -> list[str]:
    d = level.tasks[AVERAGE]
    runs = sum(max(1, len(seeds)) for seeds in c.seeds)
    lines = [
        f"Items: {points(d.difference)} {interval(d.low, d.high)}, p {p_value(d.p)} (at least "
        f"{p_value(d.minimum_p)}), from a paired bootstrap of {d.draws:,} draws. It speaks for these {runs} "
        + ("checkpoints only, not for other seeds." if any(c.seeds) else "encoders, which have no seeds.")
    ]
    if level.checkpoints:
        lines.append(
            "Williams' and Steiger's tests cross-check that for pairs of checkpoints; with graded gold "
            "scores they come out at p <= .05 in 7% of null simulations."
        )
    if level.components:
        both = level.components
        line = f"Seeds and items together: {interval(both.low, both.high)} from variance components"
        if h := level.hierarchical:
            line += (
                f"; hierarchical bootstrap {interval(h.low, h.high)}, descriptive: with 5 seeds a side "
                "its 95% interval covered 91.1%, so no verdict rests on it"
            )
        lines.append(line + ".")
    return lines


def _sizes(c: Comparison) -> str:
    one, other = (len(seeds) for seeds in c.seeds)
    return (
        f"{one} and {other} seeds" if one and other else f"{one or other} seeds against one run without seed"
    )


def percent(level: float) -> str:
    """A level in per cent, to its last digit."""
    return f"{100 * level:g}%"


def points(value: float) -> str:
    """A difference in points, with its sign."""
    return f"{SCALE * value:+.2f}"


def interval(low: float, high: float) -> str:
    """An interval of a difference in points."""
    return f"[{points(low)}, {points(high)}]"


def span(low: float, high: float) -> str:
    """An interval of scores."""
    return f"[{SCALE * low:.2f}, {SCALE * high:.2f}]"


def p_value(p: float) -> str:
    """Four decimals; smaller ones as a bound, as no test here is that exact."""
    return "<0.0001" if 0 < p < 0.0001 else f"{p:.4f}"


def seed_list(seeds: Sequence[int]) -> str:
    """Seeds as they are written on the command line: 1-5, or 1,3,7."""
    if not seeds:
        return "no seeds"
    rising = len(seeds) > 2 and all(following == seed + 1 for seed, following in pairwise(seeds))
    text = f"{seeds[0]}-{seeds[-1]}" if rising else ",".join(map(str, seeds))
    return f"seed{'s' * (len(seeds) > 1)} {text}"
