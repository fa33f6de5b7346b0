"""Sentences of a comparison: its verdict, answers, tests and limits."""

from __future__ import annotations

import math
from collections.abc import Sequence

from bench.comparison.comparison import Comparison
from bench.comparison.design import Design
from bench.comparison.evidence import ItemLevel, OutlyingSeeds, SeedLevel
from bench.comparison.finding import EXACT, ComparisonFinding
from bench.comparison.labels import print_labels
from bench.comparison.selection import format_seeds
from bench.comparison.task_evidence import PICKED, TaskLevel, describe_task_unit
from bench.comparison.unit_notes import describe_rough_intervals, describe_units
from bench.eval.suite_measures import measure_of
from bench.stats.coverage import CoverageRow, find_coverage
from bench.stats.effect_sizes import LEAST_SEEDS
from bench.stats.equivalence import Claim, Equivalence
from bench.stats.item_statistics import AVERAGE
from bench.stats.seed_planning import POWER, Range, SeedPlan, describe_seed_plan
from bench.stats.seeds import is_uneven

TESTS = {
    "paired": "the paired t test",
    "sign-flip": "the exact sign-flip test",
    "welch": "Welch's test",
    "student": "Student's test",
    "permutation": "the exact permutation test",
    "components": "variance components",
    "items": "the paired bootstrap",
    "tasks": "the t test over tasks",
}
SCALE = 100.0  # points
DEFAULT_LEVEL = 0.95


def describe_verdict(c: Comparison, finding: ComparisonFinding | None = None) -> str:
    """Return one sentence for a finding, by default the headline: its scope and its verdict."""
    f = finding or c.headline
    after = f" after correction by {f.corrected.family}" if f.corrected else ""
    start = f"{describe_scope(c, f)}: "
    who = f"these {name_items(c)}" if f.speaks_for == "items" else format_sample_sizes(c)
    still, by = "", TESTS[f.test]
    if f.df is None and f.speaks_for != "items":
        still, by = "the pairs don't vary" if _is_paired(c) else "no score varies over seeds", "an exact test"
        if c.task_level:
            still = "the difference is equal in all tasks"
    if f.verdict == "cannot show":
        return (
            f"{start}{who} cannot show a difference between {c.first} and {c.second} at "
            f"{format_percent(c.level)}: "
            f"{still and f'{still}, and '}the minimum attainable p of {by}{after} is "
            f"{format_p_value(f.final_minimum)}{_describe_possible_difference(f)}"
        )
    size = f"{format_points(f.difference)} points"
    if f.interval:
        size += f", {format_percent(f.final_level)} interval {format_difference_interval(*f.interval)}"
    size += f"{still and f', and {still}'}, {format_p_clause(f.final_p)} by {by}{after}"
    if f.verdict == "not shown":
        size += _describe_possible_difference(f)
        return f"{start}no significant difference between {c.first} and {c.second} ({who}): {size}"
    winner = c.first if f.difference > 0 else c.second
    rest = "" if f.speaks_for == "items" else f", from {who}"
    rest += _describe_assumption(f) if f is c.headline else ""
    return f"{start}{winner} is ahead: {c.first} - {c.second} = {size}{rest}"


def format_answer(c: Comparison) -> str:
    """Return the answer in one line: names, difference [interval], seeds and verdict."""
    f, names = c.headline, print_labels(c.first, c.second)
    difference = format_points(f.difference)
    if f.interval:
        difference += f" {format_difference_interval(*f.interval)}"
    if f.interval and f.final_level != DEFAULT_LEVEL:
        difference += f" at {format_percent(f.final_level)}"
    verdict = f"{names[f.difference < 0]} is ahead"
    if f.verdict != "differs":
        verdict = "no difference shown"
        facts = [f"up to {round_points_up(max(map(abs, f.possible)))} possible"] if f.possible else []
        if f.verdict == "cannot show":
            facts.insert(0, f"minimum attainable p: {format_p_value(f.final_minimum)}")
        verdict += f" ({', '.join(facts)})" if facts else ""
    if f.corrected:
        verdict += f", {f.corrected.family.partition(' (')[0]}"
    return f"{' - '.join(names)}  {difference}  {_count_seeds(c)}  {verdict}"


def _count_seeds(c: Comparison) -> str:
    """Count the seeds of the answer, such as "5 paired seeds"."""
    if c.task_level:
        return f"{c.task_level.tasks} tasks"
    if c.headline.speaks_for == "items":
        return f"{sum(max(1, len(seeds)) for seeds in c.seeds)} checkpoints"
    n_a, n_b = (len(seeds) for seeds in c.seeds)
    if _is_paired(c):
        return f"{n_a} paired seeds"
    if not (n_a and n_b):
        return f"{n_a or n_b} seeds against one score"
    return f"{n_a} seeds each" if n_a == n_b else f"{n_a} and {n_b} seeds"


def describe_scope(c: Comparison, f: ComparisonFinding) -> str:
    """Name the population of a finding."""
    if f.speaks_for == "tasks":
        return "These rows, new tasks of this kind"
    if f.speaks_for == "both":
        return "New seeds, new items"
    if f.speaks_for == "seeds":
        return "New seeds, these items"
    return f"{name_checkpoints(c).capitalize()}, new items"


def name_checkpoints(c: Comparison) -> str:
    """Name the checkpoints of the items' statistics."""
    if not any(c.seeds):
        return "these two encoders without seeds"
    return f"these {sum(max(1, len(seeds)) for seeds in c.seeds)} checkpoints"


def name_items(c: Comparison) -> str:
    """Name the items of the suite's scores."""
    return f"test {measure_of(c.suite).counted}"


def _is_paired(c: Comparison) -> bool:
    return c.seed_level is not None and c.seed_level.design.paired


def format_sample_sizes(c: Comparison) -> str:
    """Count the runs that were compared, such as "5 paired runs"."""
    n_a, n_b = (len(seeds) for seeds in c.seeds)
    if c.task_level:
        return f"{c.task_level.tasks} tasks"
    if _is_paired(c):
        return f"{n_a} paired runs"
    if not (n_a and n_b):
        return f"{n_a or n_b} seeds against a method without seeds"
    return f"{n_a} seeds per side" if n_a == n_b else f"{n_a} and {n_b} seeds"


def _describe_possible_difference(f: ComparisonFinding) -> str:
    """Name the differences that a verdict without significance cannot rule out."""
    if f.possible is None:
        return ""
    kind = "normal" if f.speaks_for == "items" else "t"
    at = "" if f.interval else f" (by the {kind} interval at {format_percent(f.final_level)})"
    most = round_points_up(max(map(abs, f.possible)))
    return f"; differences up to {most} points cannot be ruled out{at}"


def _describe_assumption(f: ComparisonFinding) -> str:
    """Name the assumption of a lead that no exact test could show."""
    if f.exact_minimum is None or f.test in EXACT or f.exact_minimum <= 1 - f.final_level:
        return ""
    return (
        "; this takes near-normal scores for granted: an exact test, which doesn't, cannot go below "
        f"p = {format_p_value(f.exact_minimum)} with so few seeds"
    )


def format_percent(level: float) -> str:
    """Format a level in per cent, with up to two decimals."""
    return f"{100 * level:.4g}%"


def format_points(value: float) -> str:
    """Format a difference in points, with its sign."""
    return f"{SCALE * value:+.2f}"


def round_points_up(value: float) -> str:
    """Format a bound of an absolute difference in points, rounded up.

    >>> round_points_up(0.00504), round_points_up(0.005)
    ('0.51', '0.50')
    """
    return f"{math.ceil(round(100 * SCALE * value, 6)) / 100:.2f}"


def format_difference_interval(low: float, high: float) -> str:
    """Format an interval of a difference in points; an end near 0 keeps a digit that shows its sign.

    >>> format_difference_interval(-0.02, -0.00003)
    '[-2.00, -0.003]'
    """
    return f"[{_format_end(low)}, {_format_end(high)}]"


def _format_end(value: float) -> str:
    return f"{SCALE * value:+.1g}" if 0 < abs(SCALE * value) < 0.005 else format_points(value)


def format_score_interval(low: float, high: float) -> str:
    """Format an interval of scores."""
    return f"[{SCALE * low:.2f}, {SCALE * high:.2f}]"


def format_p_value(p: float) -> str:
    """Format a p with four decimals; a smaller one as a bound, the precision of the tests."""
    return "<0.0001" if 0 < p < 0.0001 else f"{p:.4f}"


def format_p_clause(p: float) -> str:
    """Format a p for a sentence.

    >>> format_p_clause(0.00794), format_p_clause(1e-9)
    ('p = 0.0079', 'p < 0.0001')
    """
    value = format_p_value(p)
    return f"p < {value[1:]}" if value.startswith("<") else f"p = {value}"


def describe_comparison(c: Comparison) -> list[str]:
    """Return the sentences after the verdict, each without a line break."""
    lines = [f"{describe_verdict(c, finding)}." for finding in c.findings[1:]]
    lines += describe_answers(c)
    for finding in c.findings:
        lines += _describe_interval(c, finding)
    if c.seed_level:
        lines += _describe_design(c, c.seed_level)
        lines += _describe_effect_sizes(c, c.seed_level)
        lines += _describe_outlying_seeds(c, c.seed_level.outlying)
        lines += _describe_plan(c, c.answers.plan, c.answers.power)
    if c.item_level:
        lines += _describe_items(c, c.item_level)
    if c.task_level:
        lines += _describe_task_level(c, c.task_level)
    if c.item_reason:
        lines.append(f"Items: left out: {c.item_reason}.")
    if c.corrected_tasks:
        lines.append(_describe_tasks(c))
    return [*lines, *c.limits, *c.notes]


def describe_questions(c: Comparison) -> list[str]:
    """Return the answers to --margin, --claim and --published, of those that were asked."""
    asked = c.asked.margin or c.asked.claim is not None
    lines = describe_answers(c) if asked or "as given" in c.asked.published else []
    return [line for line in lines if not line.startswith("Published: ") or "(as given)" in line]


def describe_answers(c: Comparison) -> list[str]:
    """Describe equality, a claim and published differences, in the scope of the verdict."""
    answers, asked, scope = c.answers, c.asked, describe_scope(c, c.headline)
    scope, lines = f"for {scope[0].lower()}{scope[1:]}", []
    if (asked.margin or asked.claim is not None) and (why := c.headline.unjudged):
        lines.append(f"Neither equality nor a claim can be judged: {why}.")
    if answers.margin:
        lines.append(_describe_equivalence(answers.margin, scope))
    if answers.claim:
        lines.append(_describe_claim(answers.claim, f"{c.first} over {c.second}", scope))
    return lines + _describe_published(c)


def _describe_equivalence(answer: Equivalence, scope: str) -> str:
    size = f"{SCALE * answer.margin:.2f} points"
    if answer.verdict == "different":
        p = format_p_clause(answer.p_different)
        return f"Different by more than {size} {scope} (one-sided t test, {p})."
    ends = format_difference_interval(answer.low, answer.high)
    inner = f"the {format_percent(2 * answer.level - 1)} interval {ends}"
    test = f"two one-sided t tests, {format_p_clause(answer.p)}"
    if answer.verdict == "equal within":
        return f"Equal within {size} {scope}: {inner} lies inside ({test})."
    return (
        f"Equality within {size} {scope} is not shown: {inner} reaches beyond ({test}). The smallest margin "
        f"that it would show is {round_points_up(answer.largest)} points."
    )


def _describe_claim(answer: Claim, who: str, scope: str) -> str:
    size = f"a lead of {who} of at least {SCALE * answer.size:.2f} points"
    p = answer.p_against if answer.verdict == "contradicted" else answer.p
    test = f"at {format_percent(answer.level)} (one-sided t test, {format_p_clause(p)})"
    least, most = f"{format_points(answer.low)} points", f"{format_points(answer.high)} points"
    if answer.verdict == "supported":
        return f"The records support {size} {scope}: the lead is at least {least} {test}."
    if answer.verdict == "contradicted":
        return f"The records contradict {size} {scope}: the lead is at most {most} {test}."
    return (
        f"The records do not support {size} {scope}: all that is sure {test} is a lead of at least {least}. "
        f"They don't rule it out: at most {most} are possible."
    )


def _describe_published(c: Comparison) -> list[str]:
    lines = []
    for published in c.answers.published:
        place = "outside: other seeds alone hardly make it: something else differs too"
        if published.inside:
            place = "inside: other seeds alone can make it"
        ends = format_difference_interval(published.low, published.high)
        lines.append(
            f"Published: {format_points(published.difference)} points ({published.source}). If each were "
            f"trained once more, the difference of these two runs would lie in {ends} with a chance of "
            f"{format_percent(c.level)}; the published one lies {place}."
        )
    if c.asked.published and not c.answers.published:
        lines.append("Published: not checked, as our runs give no spread over seeds.")
    return lines


def _describe_interval(c: Comparison, f: ComparisonFinding) -> list[str]:
    """Return a line for an interval whose measured coverage is not its level."""
    if f.coverage is None or f.coverage.exact is not False:
        return []
    width = "wider than it need be" if f.coverage.keeps else "too narrow"
    return [f"{describe_scope(c, f)}, the interval is {width}: {describe_coverage(f.coverage)}."]


def describe_coverage(row: CoverageRow) -> str:
    """Describe the measured coverage of an interval."""
    n = f"{row.n_a} seeds per side" if row.n_a == row.n_b else f"{row.n_a} and {row.n_b} seeds"
    if row.n_b == 1:
        n = f"{row.n_a} seeds against a fixed score"
    elif row.correlation is not None:
        n = f"{row.n_a} pairs"
    spreads = " and unequal spreads" if row.design.startswith("spread") else ""
    held = f"such a 95% interval held the true difference in {100 * row.measured:.1f}%"
    return f"in simulations with {n}{spreads}, {held}"


def _describe_design(c: Comparison, level: SeedLevel) -> list[str]:
    """Describe the test over seeds, its reason and its effect."""
    design = level.design
    lines = [f"Test over seeds: {TESTS[design.test]}, {_explain_design(design)}."]
    if left_out := _name_seeds(c, *design.left_out):
        lines.append(f"Left out: {' and '.join(left_out)}, which have no partner on the other side.")
    sides = [len(seeds) for seeds in c.seeds]
    if design.test == "welch" and is_uneven(*sides):
        lines.append(
            f"One side has {min(sides)} seeds, the other twice as many or more: the test has the smaller "
            f"side's degrees of freedom, {min(sides) - 1}."
        )
    if level.pairs:
        pairs, d = level.pairs, level.pairs.unpaired
        r = "" if pairs.correlation is None else f" with a correlation of {pairs.correlation:+.2f}"
        wide = ""
        if pairs.gain is not None and pairs.gain >= 1:
            wide = f", {pairs.gain:.1f} times as wide"
        elif pairs.gain is not None:
            wide = f", {1 / pairs.gain:.1f} times narrower"
        lines.append(
            f"Pairs: {pairs.n}{r}. Welch's interval, which ignores them, is "
            f"{format_difference_interval(d.low, d.high)}{wide}."
        )
    if exact := level.exact.get(AVERAGE):
        kind, equal = "the permutation of runs", ", but equal spreads"
        if design.paired or design.test == "student":
            kind, equal = "sign flips", ""
        lines.append(
            f"The exact test by {kind} needs no normal scores{equal}: {format_p_clause(exact.p)} (minimum "
            f"attainable p: {format_p_value(exact.minimum_p)})."
        )
    if (row := level.unequal) and row.keeps is False:
        lines.append(
            f"The sides spread unequally: in simulations with {row.n_a} seeds that spread three times as far "
            f"as the others' {row.n_b}, the permutation of runs called equal methods different in "
            f"{100 * row.measured:.1f}%."
        )
    return lines


def _name_seeds(c: Comparison, first: Sequence[int], second: Sequence[int]) -> list[str]:
    """Name the seeds of each side that has some."""
    sides = ((c.first, first), (c.second, second))
    return [f"{format_seeds(seeds)} of {name}" for name, seeds in sides if seeds]


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
    """Describe effect sizes and robust statistics."""
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


def _describe_outlying_seeds(c: Comparison, outlying: OutlyingSeeds) -> list[str]:
    named = _name_seeds(c, outlying.first, outlying.second)
    if outlying.pairs:
        named.append(f"the difference of {format_seeds(outlying.pairs)}")
    if not named or outlying.coverage is None:
        return []
    coverage = describe_coverage(outlying.coverage)
    return [
        f"Far from the others: {', '.join(named)}. Where one run in ten collapses, the interval can't be "
        f"relied on: {coverage}. Look at these runs, and at the interquartile means."
    ]


def _describe_plan(c: Comparison, plan: SeedPlan | None, power: Range | None) -> list[str]:
    if plan is None or power is None:
        return []
    detect = f"a true difference of {SCALE * plan.detect:.2f} points on these {name_items(c)}"
    detect += f" with a chance of {POWER:.0%}"
    seeds, chance = describe_seed_plan(plan), f"{power.value:.0%} ({power.low:.0%} to {power.high:.0%})"
    if c.answers.level != c.level:
        seeds += f", at {format_percent(c.answers.level)} each so that all comparisons hold together"
    line = f"to show {detect} takes {seeds}"
    if not plan.sure:
        line = f"how many seeds show {detect} {seeds}; so small a pilot is none to plan from"
    sizes = format_sample_sizes(c).removesuffix(" against a method without seeds")
    return [
        f"Plan: {line}. The present {sizes} show it with a chance of {chance}; the ranges come from the "
        "estimated spread."
    ]


def _describe_items(c: Comparison, level: ItemLevel) -> list[str]:
    d = level.tasks[AVERAGE]
    least = "Minimum attainable p:"
    if c.headline.speaks_for != "items":
        ends = format_difference_interval(d.low, d.high)
        least = f"{name_checkpoints(c).capitalize()}, new items: interval {ends}, "
        least += f"{format_p_clause(d.p)}; minimum attainable p:"
    drawn = f"(paired bootstrap, {d.draws:,} draws). It says nothing of other seeds."
    lines = [f"{least} {format_p_value(d.minimum_p)} {drawn}", *describe_units(c.suite, level.units)]
    lines += describe_rough_intervals(level.tasks)
    if any(pair.williams for pair in level.checkpoints):
        size = max(find_coverage(name, 1, 1).measured for name in ("williams", "steiger"))
        lines.append(
            "Williams' and Steiger's tests cross-check this for single pairs of checkpoints. They call "
            f"{100 * size:.0f}% of equal systems different at p <= .05 (graded gold scores), so don't rely "
            "on them alone."
        )
    if any(pair.clustered for pair in level.checkpoints):
        lines.append(
            "The t test by clusters cross-checks this for single pairs of checkpoints, in place of Williams' "
            "and Steiger's tests: they take items as independent, and these share sentences."
        )
    if any(pair.mcnemar for pair in level.checkpoints):
        flips = ", by flips of whole clusters" if level.units.shared else ""
        lines.append(
            "McNemar's exact test cross-checks this for single pairs of checkpoints, on the items that only "
            f"one of them has right{flips}."
        )
    return lines


def _describe_task_level(c: Comparison, level: TaskLevel) -> list[str]:
    """Describe the tests over tasks: their unit, and the mean over types of task."""
    lines = [describe_task_unit(level.types, level.tasks), *[PICKED] * (c.headline.corrected is None)]
    if test := level.averages.get("types"):
        ends = f" {format_difference_interval(*test.interval)}" if test.interval else ""
        p = "" if test.p is None else f", {format_p_clause(test.p)}"
        types = len(set(level.types))
        lines.append(
            f"Mean over the {types} types of task instead of over tasks: {c.first} - {c.second} = "
            f"{format_points(test.difference)} points{ends}{p}."
        )
    return lines


def _describe_tasks(c: Comparison) -> str:
    test, intervals = "items", "over items"
    if c.seed_level:
        test = c.seed_level.design.test
        intervals = "of the t test over seeds" if test in EXACT else "over seeds"
    levels = " and ".join(map(format_percent, sorted({task.level for task in c.corrected_tasks.values()})))
    return (
        f"Tasks: judge a single task by its corrected p ({TESTS[test]}, corrected by Benjamini-Hochberg over "
        f"the {len(c.corrected_tasks)} tasks). The tasks' intervals {intervals} agree with it: they are at "
        f"{levels}."
    )
