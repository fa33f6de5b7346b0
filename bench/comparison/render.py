"""A comparison in plain words: its verdict, what else was asked, how it was tested, what it can't tell."""

from __future__ import annotations

import math

from bench.comparison.comparison import Comparison
from bench.comparison.design import Design
from bench.comparison.evidence import ItemLevel, OutlyingSeeds, SeedLevel
from bench.comparison.finding import EXACT, ComparisonFinding
from bench.comparison.item_bootstrap import NOT_AGAIN
from bench.comparison.selection import format_seeds
from bench.eval.suite_measures import measure_of
from bench.stats.coverage import CoverageRow, find_coverage
from bench.stats.equivalence import Claim, Equivalence
from bench.stats.item_statistics import AVERAGE
from bench.stats.planning import POWER, Range, SeedPlan, describe_seed_plan
from bench.stats.seeds import is_uneven
from bench.stats.summaries import LEAST_SEEDS

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


def describe_verdict(c: Comparison, finding: ComparisonFinding | None = None) -> str:
    """One sentence: what it speaks for, and who is ahead, that no difference is shown, or that none could be.

    Args:
        c: The comparison.
        finding: One of its findings; default the headline.
    """
    f = c.headline if finding is None else finding
    after = f" after correction by {f.corrected.family}" if f.corrected else ""
    start, who = f"{describe_scope(c, f)}: ", _describe_sample(c, f)
    still, by = "", TESTS[f.test]
    if f.df is None and f.speaks_for != "items":
        still, by = "the pairs don't vary" if _is_paired(c) else "no score varies over seeds", "an exact test"
    if f.said == "cannot show":
        return (
            f"{start}{who} cannot show a difference between {c.first} and {c.second} at "
            f"{format_percent(c.level)}: "
            f"{still and f'{still}, and '}the smallest p that {by} can give{after} is "
            f"{format_p_value(f.final_minimum)}{_describe_possible_difference(f)}"
        )
    size = f"{format_points(f.difference)} points"
    if f.interval:
        size += f", {format_percent(f.final_level)} interval {format_difference_interval(*f.interval)}"
    size += f"{still and f', and {still}'}, {format_p_clause(f.final_p)} by {by}{after}"
    if f.said == "not shown":
        size += _describe_possible_difference(f)
        return f"{start}{who} show no difference between {c.first} and {c.second}: {size}"
    winner = c.first if f.difference > 0 else c.second
    rest = "" if f.speaks_for == "items" else f", from {who}"
    rest += _describe_assumption(f) if f is c.headline else ""
    return f"{start}{winner} is ahead: {c.first} - {c.second} = {size}{rest}"


def describe_scope(c: Comparison, f: ComparisonFinding) -> str:
    """What a finding holds for."""
    items = name_items(c)
    if f.speaks_for == "both":
        return f"For further seeds and further {items}"
    if f.speaks_for == "seeds":
        return f"For further seeds on these {items}"
    return f"For {name_checkpoints(c)} on further {items}"


def name_checkpoints(c: Comparison) -> str:
    """The checkpoints that the items' statistics are about."""
    if not any(c.seeds):
        return "these two encoders without seeds"
    return f"these {sum(max(1, len(seeds)) for seeds in c.seeds)} checkpoints alone"


def name_items(c: Comparison) -> str:
    """What the suite's scores are computed over."""
    return f"test {measure_of(c.suite).counted}"


def _describe_sample(c: Comparison, f: ComparisonFinding) -> str:
    return f"these {name_items(c)}" if f.speaks_for == "items" else format_sample_sizes(c)


def _is_paired(c: Comparison) -> bool:
    return c.seed_level is not None and c.seed_level.design.paired


def format_sample_sizes(c: Comparison) -> str:
    """The runs that were compared, such as "5 pairs of runs"."""
    one, other = (len(seeds) for seeds in c.seeds)
    if _is_paired(c):
        return f"{one} pairs of runs"
    if not (one and other):
        return f"{one or other} seeds against a method without seeds"
    return f"{one} seeds per side" if one == other else f"{one} and {other} seeds"


def _describe_possible_difference(f: ComparisonFinding) -> str:
    """What the data leave possible, after a verdict that shows nothing."""
    ends = f.possible
    if ends is None:
        return ""
    kind = "normal" if f.speaks_for == "items" else "t"
    at = "" if f.interval else f" (by the {kind} interval at {format_percent(f.final_level)})"
    return f"; a true difference of up to {round_points_up(max(map(abs, ends)))} points stays possible{at}"


def _describe_assumption(f: ComparisonFinding) -> str:
    """What a lead rests on where an exact test could not show any."""
    if f.exact_minimum is None or f.test in ("sign-flip", "permutation"):
        return ""
    if f.exact_minimum <= 1 - f.final_level:
        return ""
    return (
        "; this takes near-normal scores for granted: an exact test, which doesn't, cannot go below "
        f"p = {format_p_value(f.exact_minimum)} with so few seeds"
    )


def format_percent(level: float) -> str:
    """A level in per cent, with up to two decimals."""
    return f"{100 * level:.4g}%"


def format_points(value: float) -> str:
    """A difference in points, with its sign."""
    return f"{SCALE * value:+.2f}"


def round_points_up(value: float) -> str:
    """A bound of an absolute difference in points, rounded so that it still is one.

    >>> round_points_up(0.00504), round_points_up(0.005)
    ('0.51', '0.50')
    """
    return f"{math.ceil(round(100 * SCALE * value, 6)) / 100:.2f}"


def format_difference_interval(low: float, high: float) -> str:
    """An interval of a difference in points; an end near 0 keeps a digit that says on which side.

    >>> format_difference_interval(-0.02, -0.00003)
    '[-2.00, -0.003]'
    """
    return f"[{_format_end(low)}, {_format_end(high)}]"


def _format_end(value: float) -> str:
    return f"{SCALE * value:+.1g}" if 0 < abs(SCALE * value) < 0.005 else format_points(value)


def format_score_interval(low: float, high: float) -> str:
    """An interval of scores."""
    return f"[{SCALE * low:.2f}, {SCALE * high:.2f}]"


def format_p_value(p: float) -> str:
    """Four decimals; a smaller p as a bound, as no test here is that exact."""
    return "<0.0001" if 0 < p < 0.0001 else f"{p:.4f}"


def format_p_clause(p: float) -> str:
    """A p in a sentence.

    >>> format_p_clause(0.00794), format_p_clause(1e-9)
    ('p = 0.0079', 'p < 0.0001')
    """
    said = format_p_value(p)
    return f"p < {said[1:]}" if said.startswith("<") else f"p = {said}"


def describe_comparison(c: Comparison) -> list[str]:
    """Sentences after the verdict, each without a line break."""
    lines = [f"{describe_verdict(c, one)}." for one in c.findings[1:]]
    lines += _describe_answers(c)
    for one in c.findings:
        lines += _describe_interval(c, one)
    if c.seed_level:
        lines += _describe_design(c, c.seed_level)
        lines += _describe_effect_sizes(c, c.seed_level)
        lines += _describe_outlying_seeds(c, c.seed_level.outlying)
        lines += _describe_plan(c, c.answers.plan, c.answers.power)
    if c.item_level:
        lines += _describe_items(c, c.item_level)
    if c.item_reason:
        lines.append(f"Items: left out: {c.item_reason}.")
    if c.corrected_tasks:
        lines.append(_describe_tasks(c))
    lines += [*c.limits, *c.notes]
    return lines if c.item_level and c.item_level.rescored else [*lines, f"Scores: {NOT_AGAIN}."]


def _describe_answers(c: Comparison) -> list[str]:
    """Equality, a claim and published differences; they speak for the same as the verdict."""
    given, asked = c.answers, c.asked
    lines = []
    if (asked.margin or asked.claim is not None) and (why := c.headline.unjudged):
        lines.append(f"Neither equality nor a claim can be judged: {why}.")
    if given.margin:
        lines.append(_describe_equivalence(given.margin, _describe_headline_scope(c)))
    if given.claim:
        lines.append(_describe_claim(given.claim, f"{c.first} over {c.second}", _describe_headline_scope(c)))
    return lines + _describe_published(c)


def _describe_headline_scope(c: Comparison) -> str:
    scope = describe_scope(c, c.headline)
    return scope[0].lower() + scope[1:]


def _describe_equivalence(said: Equivalence, scope: str) -> str:
    size = f"{SCALE * said.margin:.2f} points"
    if said.verdict == "different":
        return (
            f"Different by more than {size}, {scope} (one-sided t test, {format_p_clause(said.p_different)})."
        )
    inner = (
        f"the {format_percent(2 * said.level - 1)} interval {format_difference_interval(said.low, said.high)}"
    )
    test = f"two one-sided t tests, {format_p_clause(said.p)}"
    if said.verdict == "equal within":
        return f"Equal within {size}, {scope}: {inner} lies inside ({test})."
    return (
        f"Equality within {size} is not shown, {scope}: {inner} reaches beyond ({test}). The smallest margin "
        f"that it would show is {round_points_up(said.largest)} points."
    )


def _describe_claim(said: Claim, who: str, scope: str) -> str:
    size = f"a lead of {who} of at least {SCALE * said.size:.2f} points"
    p = said.p_against if said.verdict == "contradicted" else said.p
    test = f"at {format_percent(said.level)} (one-sided t test, {format_p_clause(p)})"
    least, most = f"{format_points(said.low)} points", f"{format_points(said.high)} points"
    if said.verdict == "supported":
        return f"The records support {size}, {scope}: the lead is at least {least} {test}."
    if said.verdict == "contradicted":
        return f"The records contradict {size}, {scope}: the lead is at most {most} {test}."
    return (
        f"The records do not support {size}, {scope}: all that is sure {test} is a lead of at least {least}. "
        f"They don't rule it out: at most {most} are possible."
    )


def _describe_published(c: Comparison) -> list[str]:
    lines = []
    for one in c.answers.published:
        place = "outside: other seeds alone hardly make it: something else differs too"
        if one.inside:
            place = "inside: other seeds alone can make it"
        ends = format_difference_interval(one.low, one.high)
        lines.append(
            f"Published: {format_points(one.difference)} points ({one.source}). If each were trained once "
            f"more, the difference of these two runs would lie in {ends} with a chance of "
            f"{format_percent(c.level)}; the published one lies {place}."
        )
    if c.asked.published and not c.answers.published:
        lines.append("Published: not checked, as our runs give no spread over seeds.")
    return lines


def _describe_interval(c: Comparison, f: ComparisonFinding) -> list[str]:
    """A line where the interval was measured to hold less or more often than it says."""
    if f.coverage is None or f.coverage.exact is not False:
        return []
    width = "wider than it need be" if f.coverage.keeps else "too narrow"
    return [f"{describe_scope(c, f)}, the interval is {width}: {describe_coverage(f.coverage)}."]


def describe_coverage(row: CoverageRow) -> str:
    """What a simulation measured of an interval."""
    n = f"{row.n_a} seeds per side" if row.n_a == row.n_b else f"{row.n_a} and {row.n_b} seeds"
    if row.n_b == 1:
        n = f"{row.n_a} seeds against a fixed score"
    elif row.correlation is not None:
        n = f"{row.n_a} pairs"
    more = " and unequal spreads" if row.design.startswith("spread") else ""
    return (
        f"in simulations with {n}{more}, such a 95% interval held the true difference in "
        f"{100 * row.measured:.1f}%"
    )


def _describe_design(c: Comparison, level: SeedLevel) -> list[str]:
    """The test over seeds, why it is this one, and what it changes."""
    design, lines = (
        level.design,
        [f"Test over seeds: {TESTS[level.design.test]}, {_explain_design(level.design)}."],
    )
    if any(design.left_out):
        out = " and ".join(
            f"{format_seeds(seeds)} of {name}"
            for name, seeds in zip((c.first, c.second), design.left_out, strict=True)
            if seeds
        )
        lines.append(f"Left out: {out}, which have no partner on the other side.")
    sides = [len(seeds) for seeds in c.seeds]
    if design.test == "welch" and is_uneven(*sides):
        lines.append(
            f"One side has {min(sides)} seeds, the other twice as many or more: the test has the smaller "
            f"side's degrees of freedom, {min(sides) - 1}."
        )
    if level.pairs:
        pairs, d = level.pairs, level.pairs.unpaired
        r = "" if pairs.correlation is None else f" with a correlation of {pairs.correlation:+.2f}"
        wide = "" if pairs.gain is None else f", {_format_width_ratio(pairs.gain)}"
        lines.append(
            f"Pairs: {pairs.n}{r}. Welch's interval, which ignores them, is "
            f"{format_difference_interval(d.low, d.high)}{wide}."
        )
    if exact := level.exact.get(AVERAGE):
        kind = "sign flips" if design.paired or design.test == "student" else "the permutation of runs"
        equal = "" if design.paired or design.test == "student" else ", but equal spreads"
        lines.append(
            f"The exact test by {kind} needs no normal scores{equal}: {format_p_clause(exact.p)}; the "
            f"smallest that it can give with so many seeds is {format_p_value(exact.minimum_p)}."
        )
    if (row := level.unequal) and row.keeps is False:
        lines.append(
            f"The sides spread unequally: in simulations with {row.n_a} seeds that spread three times as far "
            f"as the others' {row.n_b}, the permutation of runs called equal methods different in "
            f"{100 * row.measured:.1f}%."
        )
    return lines


def _format_width_ratio(gain: float) -> str:
    return f"{gain:.1f} times as wide" if gain >= 1 else f"{1 / gain:.1f} times narrower"


def _explain_design(design: Design) -> str:
    chosen = f"as --test {design.asked} says"
    if design.test == "student":
        return "as one side has no seeds: it counts as a fixed score"
    if design.paired and design.pairs:
        return f"paired by seed, because the runs of a seed {design.pairs}"
    if design.paired:
        return (
            f"{chosen}. Nothing in the records says that the runs of a seed are pairs (no trained stages and "
            "no batches in common): the result holds only if you know that they are"
        )
    if design.pairs:
        return (
            f"{chosen}. The runs of a seed {design.pairs}, which it doesn't use: its interval may be far too "
            "wide"
        )
    if design.too_few:
        common = f"{design.too_few} seed{'s' * (design.too_few > 1)} in common"
        return f"unpaired, because the sides have {common}, too few to leave the others out"
    if design.asked == "auto":
        return "unpaired, because the runs of a seed are not known to share trained stages or batches"
    return chosen


def _describe_effect_sizes(c: Comparison, level: SeedLevel) -> list[str]:
    """Effect sizes and statistics that a few bad seeds hardly move."""
    above = level.superiority
    number = above.n_a if level.design.paired else above.n_a * above.n_b
    of = "runs" if level.design.test == "student" else "pairs of runs"
    effect = "" if level.hedges_g is None else f"; Hedges' g {level.hedges_g:+.2f}"
    lines = [
        f"{c.first} scores above {c.second} in {above.share:.0%} of {number} {of} (50%: neither is "
        f"ahead), {format_percent(c.level)} interval {above.low:.0%} to {above.high:.0%}{effect}."
    ]
    if level.iqm:
        d = level.iqm
        method = find_coverage("iqm", max(2, d.n_a), max(2, d.n_b), design="normal")
        narrow = f", too narrow: {describe_coverage(method)}" if method.keeps is False else ""
        lines.append(
            f"Without the lowest and the highest quarter of scores (interquartile means) the difference is "
            f"{format_points(d.difference)} points, bootstrap interval "
            f"{format_difference_interval(d.low, d.high)}{narrow}."
        )
    if level.aso is None:
        lines.append(f"Almost stochastic order: left out, it needs {LEAST_SEEDS} seeds per side.")
    else:
        wrong = find_coverage("aso", above.n_a, above.n_b)
        lines.append(
            f"Almost stochastic order: eps = {level.aso:.2f}. Below 0.5 speaks for {c.first}, but equal "
            f"methods fall there in {100 * wrong.measured:.0f}% of simulations: no reason to call a method "
            "better."
        )
    return lines


def _describe_outlying_seeds(c: Comparison, found: OutlyingSeeds) -> list[str]:
    named = [
        f"{format_seeds(seeds)} of {name}"
        for name, seeds in ((c.first, found.first), (c.second, found.second))
        if seeds
    ]
    if found.pairs:
        named.append(f"the difference of {format_seeds(found.pairs)}")
    if not named or found.coverage is None:
        return []
    return [
        f"Far from the others: {', '.join(named)}. Where one run in ten collapses, the interval can't be "
        f"relied on: {describe_coverage(found.coverage)}. Look at these runs, and at the interquartile means."
    ]


def _describe_plan(c: Comparison, plan: SeedPlan | None, power: Range | None) -> list[str]:
    if plan is None or power is None:
        return []
    detect, at = f"a true difference of {SCALE * plan.detect:.2f} points", ""
    if c.answers.level != c.level:
        at = f", at {format_percent(c.answers.level)} each so that all comparisons hold together"
    found, chance = describe_seed_plan(plan), f"{power.value:.0%} ({power.low:.0%} to {power.high:.0%})"
    if plan.sure:
        line = f"to show {detect} on these {name_items(c)} with a chance of {POWER:.0%} takes {found}{at}"
    else:
        line = (
            f"how many seeds show {detect} on these {name_items(c)} with a chance of {POWER:.0%} {found}{at}"
            "; so small a pilot is none to plan from"
        )
    at_hand = format_sample_sizes(c).removesuffix(" against a method without seeds")
    return [
        f"Plan: {line}. The {at_hand} at hand show it with a chance of {chance}; the ranges come from a "
        "spread that is only estimated."
    ]


def _describe_items(c: Comparison, level: ItemLevel) -> list[str]:
    d = level.tasks[AVERAGE]
    drawn = f"paired bootstrap, {d.draws:,} draws"
    if c.headline.speaks_for == "items":
        lines = [
            f"The smallest p that it can give is {format_p_value(d.minimum_p)} ({drawn}). It says nothing of "
            "other seeds."
        ]
    else:
        lines = [
            f"For {name_checkpoints(c)} on further {name_items(c)}: interval "
            f"{format_difference_interval(d.low, d.high)}, {format_p_clause(d.p)}, the smallest possible "
            f"{format_p_value(d.minimum_p)} ({drawn}). It says nothing of other seeds."
        ]
    if any(pair.williams for pair in level.checkpoints):
        size = max(find_coverage(name, 1, 1).measured for name in ("williams", "steiger"))
        lines.append(
            "Williams' and Steiger's tests cross-check this for single pairs of checkpoints. They call "
            f"{100 * size:.0f}% of equal systems different at p <= .05 (graded gold scores), so don't rely "
            "on them alone."
        )
    if any(pair.mcnemar for pair in level.checkpoints):
        lines.append(
            "McNemar's exact test cross-checks this for single pairs of checkpoints, on the items that only "
            "one of them has right."
        )
    return lines


def _describe_tasks(c: Comparison) -> str:
    of_seeds = c.seed_level is not None
    test = TESTS[c.seed_level.design.test if c.seed_level else "items"]
    exact = " of the t test" if c.seed_level and c.seed_level.design.test in EXACT else ""
    levels = sorted({one.level for one in c.corrected_tasks.values()})
    return (
        f"Tasks: judge a single task by its corrected p ({test}, corrected by Benjamini-Hochberg over the "
        f"{len(c.corrected_tasks)} tasks). The tasks' intervals{exact} over "
        f"{'seeds' if of_seeds else 'items'} agree with it: they are at "
        f"{' and '.join(map(format_percent, levels))}."
    )
