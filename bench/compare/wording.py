"""A comparison in plain words: its verdict, what a reader may conclude from it, and what not."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from bench.compare.comparison import Comparison
from bench.compare.draws import NOT_AGAIN
from bench.compare.evidence import POWER, ItemLevel, SeedLevel
from bench.eval.suite import measure_of
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
    after = f" after correction by {c.corrected.family}" if c.corrected else ""
    if said == "cannot show":
        return (
            f"{who} cannot show a difference between {c.first} and {c.second} at {percent(c.level)}: "
            f"the smallest p that {test_name(c)} can give{after} is {p_value(minimum)}"
        )
    size = f"{points(c.difference)} points, {percent(c.level)} interval {interval(*c.interval)}"
    if c.test == "permutation" or c.corrected:
        size += f", p = {p_value(p)} by {test_name(c)}{after}"
    if said == "not shown":
        return f"{who} show no difference between {c.first} and {c.second}: {size}"
    size = f"{c.first} - {c.second} = {size}"
    winner = c.first if c.difference > 0 else c.second
    if c.test == "items":
        return f"{winner} is ahead on these items: {size}"
    return f"{winner} is ahead: {size}, from {who}"


def test_name(c: Comparison) -> str:
    """The test that the verdict rests on."""
    return "Student's test" if c.test == "welch" and not all(c.seeds) else TESTS[c.test]


def statements(c: Comparison) -> list[str]:
    """Sentences after the verdict: effect size, power, items, both together, and what else differs."""
    lines = []
    if c.seed_level:
        lines += _of_seeds(c, c.seed_level)
    if c.item_level:
        lines += _of_items(c, c.item_level)
    if c.item_reason:
        lines.append(f"Items: left out: {c.item_reason}.")
    if c.corrected_tasks:
        lines.append(
            f"Tasks: judge a single task by its corrected p ({test_name(c)}, corrected by Benjamini-Hochberg "
            f"over the {len(c.corrected_tasks)} tasks); the tasks' intervals are not corrected."
        )
    if not (c.item_level and c.item_level.rescored):
        return [*lines, *c.limits, *c.notes, f"Scores: {NOT_AGAIN}."]
    return [*lines, *c.limits, *c.notes]


def _of_seeds(c: Comparison, level: SeedLevel) -> list[str]:
    name = "Welch" if all(c.seeds) else "Student"
    effect = "" if level.hedges_g is None else f"; Hedges' g {level.hedges_g:+.2f}"
    lines = [
        f"Seeds: the interval is {name}'s. It allows for other seeds, not for other test {_items(c)}.",
        f"In {level.superiority:.0%} of all pairs of runs {c.first} scores above {c.second} (50%: neither is "
        f"ahead){effect}.",
    ]
    if level.aso is None:
        lines.append(f"Almost stochastic order: left out, it needs {LEAST_SEEDS} seeds per side.")
    else:
        lines.append(
            f"Almost stochastic order: eps = {level.aso:.2f}. Below 0.5 speaks for {c.first}, but equal "
            "methods fall there in 18% of simulations: no reason to call a method better."
        )
    if level.tasks[AVERAGE].df is None:
        lines.append("No score varies over seeds, so they give no interval of the difference.")
    if level.sign_flip:
        flip = level.sign_flip
        lines.append(
            f"Paired by seed ({flip.n_a} pairs), the exact sign-flip test gives p = {p_value(flip.p)}; the "
            f"smallest it can give is {p_value(flip.minimum_p)}."
        )
    if level.shows_a_point is not None:
        size = abs(level.tasks[AVERAGE].difference)
        needed = "more than 10,000" if level.needed is None else f"{level.needed:,}"
        lines.append(
            f"Power: {_sizes(c)} show a true difference of 1 point with a chance of "
            f"{level.shows_a_point:.0%}; {needed} seeds per side would show one of {SCALE * size:.2f} points "
            f"with a chance of {POWER:.0%}."
        )
    return lines


def _of_items(c: Comparison, level: ItemLevel) -> list[str]:
    d = level.tasks[AVERAGE]
    runs = sum(max(1, len(seeds)) for seeds in c.seeds)
    about = (
        f"these {runs} checkpoints, not other seeds" if any(c.seeds) else "these two encoders without seeds"
    )
    lines = [
        f"Items: the interval {interval(d.low, d.high)} allows for other test {_items(c)}; "
        f"p = {p_value(d.p)}, the smallest possible {p_value(d.minimum_p)} (paired bootstrap, {d.draws:,} "
        f"draws). This is about {about}."
    ]
    if any(pair.williams for pair in level.checkpoints):
        lines.append(
            "Williams' and Steiger's tests cross-check this for single pairs of checkpoints. They call 7% of "
            "equal systems different at p <= .05 (graded gold scores), so don't rely on them alone."
        )
    if any(pair.mcnemar for pair in level.checkpoints):
        lines.append(
            "McNemar's exact test cross-checks this for single pairs of checkpoints, on the items that only "
            "one of them has right."
        )
    if level.components:
        both = level.components
        line = (
            f"Seeds and items together: the interval {interval(both.low, both.high)} allows for other seeds "
            f"and other test {_items(c)} (variance components)."
        )
        if h := level.hierarchical:
            line += (
                f" A hierarchical bootstrap gives {interval(h.low, h.high)}, which is too narrow: with 5 "
                "seeds per side its 95% interval held the true difference in 91.1% of simulations."
            )
        lines.append(line)
    return lines


def _items(c: Comparison) -> str:
    return measure_of(c.suite).counted


def _sizes(c: Comparison) -> str:
    one, other = (len(seeds) for seeds in c.seeds)
    if not (one and other):
        return f"{one or other} seeds against a method without seeds"
    return f"{one} seeds per side" if one == other else f"{one} and {other} seeds"


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
    """Four decimals; a smaller p as a bound, as no test here is that exact."""
    return "<0.0001" if 0 < p < 0.0001 else f"{p:.4f}"


def seed_list(seeds: Sequence[int]) -> str:
    """Seeds as they are written on the command line: 1-5, or 1,3,7."""
    if not seeds:
        return "no seeds"
    rising = len(seeds) > 2 and all(following == seed + 1 for seed, following in pairwise(seeds))
    text = f"{seeds[0]}-{seeds[-1]}" if rising else ",".join(map(str, seeds))
    return f"seed{'s' * (len(seeds) > 1)} {text}"
