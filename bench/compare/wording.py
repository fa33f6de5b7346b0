"""A comparison's verdict in plain words, and how numbers are written in them."""

from __future__ import annotations

import math

from bench.compare.comparison import Comparison
from bench.compare.finding import Finding
from bench.eval.suite import measure_of

TESTS = {
    "paired": "the paired t test",
    "sign-flip": "the exact sign-flip test",
    "welch": "Welch's test",
    "student": "Student's test",
    "permutation": "the exact permutation test",
    "components": "variance components",
    "items": "the paired bootstrap",
}
SCALE = 100.0  # points


def verdict(c: Comparison, finding: Finding | None = None) -> str:
    """One sentence: what it speaks for, and who is ahead, that no difference is shown, or that none could be.

    Args:
        c: The comparison.
        finding: One of its findings; default the headline.
    """
    f = c.headline if finding is None else finding
    after = f" after correction by {f.corrected.family}" if f.corrected else ""
    start, who = f"{speaks_for(c, f)}: ", _who(c, f)
    still, by = "", TESTS[f.test]
    if f.df is None and f.speaks_for != "items":
        still, by = "the pairs don't vary" if _paired(c) else "no score varies over seeds", "an exact test"
    if f.said == "cannot show":
        return (
            f"{start}{who} cannot show a difference between {c.first} and {c.second} at {percent(c.level)}: "
            f"{still and f'{still}, and '}the smallest p that {by} can give{after} is "
            f"{p_value(f.final_minimum)}{_possible(f)}"
        )
    size = f"{points(f.difference)} points"
    if f.interval:
        size += f", {percent(f.final_level)} interval {interval(*f.interval)}"
    size += f"{still and f', and {still}'}, {p_is(f.final_p)} by {by}{after}"
    if f.said == "not shown":
        return f"{start}{who} show no difference between {c.first} and {c.second}: {size}{_possible(f)}"
    winner = c.first if f.difference > 0 else c.second
    rest = "" if f.speaks_for == "items" else f", from {who}"
    rest += _rests_on(f) if f is c.headline else ""
    return f"{start}{winner} is ahead: {c.first} - {c.second} = {size}{rest}"


def speaks_for(c: Comparison, f: Finding) -> str:
    """What a finding holds for."""
    items = counted(c)
    if f.speaks_for == "both":
        return f"For further seeds and further {items}"
    if f.speaks_for == "seeds":
        return f"For further seeds on these {items}"
    return f"For {checkpoints(c)} on further {items}"


def checkpoints(c: Comparison) -> str:
    """The checkpoints that the items' statistics are about."""
    if not any(c.seeds):
        return "these two encoders without seeds"
    return f"these {sum(max(1, len(seeds)) for seeds in c.seeds)} checkpoints alone"


def counted(c: Comparison) -> str:
    """What the suite's scores are computed over."""
    return f"test {measure_of(c.suite).counted}"


def _who(c: Comparison, f: Finding) -> str:
    return f"these {counted(c)}" if f.speaks_for == "items" else sizes(c)


def _paired(c: Comparison) -> bool:
    return c.seed_level is not None and c.seed_level.design.paired


def sizes(c: Comparison) -> str:
    """The runs that were compared, such as "5 pairs of runs"."""
    one, other = (len(seeds) for seeds in c.seeds)
    if _paired(c):
        return f"{one} pairs of runs"
    if not (one and other):
        return f"{one or other} seeds against a method without seeds"
    return f"{one} seeds per side" if one == other else f"{one} and {other} seeds"


def _possible(f: Finding) -> str:
    """What the data leave possible, after a verdict that shows nothing."""
    ends = f.possible
    if ends is None:
        return ""
    kind = "normal" if f.speaks_for == "items" else "t"
    at = "" if f.interval else f" (by the {kind} interval at {percent(f.final_level)})"
    return f"; a true difference of up to {upwards(max(map(abs, ends)))} points stays possible{at}"


def _rests_on(f: Finding) -> str:
    """What a lead rests on where an exact test could not show any."""
    if f.exact_minimum is None or f.test in ("sign-flip", "permutation"):
        return ""
    if f.exact_minimum <= 1 - f.final_level:
        return ""
    return (
        "; this takes near-normal scores for granted: an exact test, which doesn't, cannot go below "
        f"p = {p_value(f.exact_minimum)} with so few seeds"
    )


def percent(level: float) -> str:
    """A level in per cent, with up to two decimals."""
    return f"{100 * level:.4g}%"


def points(value: float) -> str:
    """A difference in points, with its sign."""
    return f"{SCALE * value:+.2f}"


def upwards(value: float) -> str:
    """A bound of an absolute difference in points, rounded so that it still is one.

    >>> upwards(0.00504), upwards(0.005)
    ('0.51', '0.50')
    """
    return f"{math.ceil(round(100 * SCALE * value, 6)) / 100:.2f}"


def interval(low: float, high: float) -> str:
    """An interval of a difference in points; an end near 0 keeps a digit that says on which side.

    >>> interval(-0.02, -0.00003)
    '[-2.00, -0.003]'
    """
    return f"[{_end(low)}, {_end(high)}]"


def _end(value: float) -> str:
    return f"{SCALE * value:+.1g}" if 0 < abs(SCALE * value) < 0.005 else points(value)


def span(low: float, high: float) -> str:
    """An interval of scores."""
    return f"[{SCALE * low:.2f}, {SCALE * high:.2f}]"


def p_value(p: float) -> str:
    """Four decimals; a smaller p as a bound, as no test here is that exact."""
    return "<0.0001" if 0 < p < 0.0001 else f"{p:.4f}"


def p_is(p: float) -> str:
    """A p in a sentence.

    >>> p_is(0.00794), p_is(1e-9)
    ('p = 0.0079', 'p < 0.0001')
    """
    said = p_value(p)
    return f"p < {said[1:]}" if said.startswith("<") else f"p = {said}"
