"""Two methods or two checkpoints side by side, and the verdict that their difference allows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from bench.comparison.confounders import describe_confounders
from bench.comparison.design import choose_comparison_design
from bench.comparison.evidence import DrawItems, ItemLevel, SeedLevel, compare_over_items, compare_over_seeds
from bench.comparison.finding import (
    EXACT,
    ComparisonFinding,
    Corrected,
    CorrectionMethod,
    Scope,
    Test,
    collect_findings,
    correct_findings,
    correct_tasks,
)
from bench.comparison.item_bootstrap import RefusedError, list_common_tasks
from bench.comparison.questions import NOTHING_ELSE, Answers, Questions, answer_questions
from bench.comparison.selection import Group
from bench.errors import BenchError, InputError, NotComparableError
from bench.stats.item_statistics import AVERAGE
from bench.stats.seed_design import RequestedTest


@dataclass(frozen=True)
class Comparison:
    """Two groups of runs on one suite, in the metric's unit; differences are first - second.

    Args:
        profile: Profile of both, or both profiles.
        suite: Suite.
        first: One side's name.
        second: The other's.
        seeds: Seeds of the first, seeds of the second, as far as they are used; none of a deterministic
            method.
        level: Confidence level of the intervals; one minus it is the verdict's error rate.
        means: By task, "avg" the last: mean of the first and of the second.
        findings: The difference of the average: the first is the verdict's, the others speak for less.
        corrected_tasks: Each task among the tasks, after Benjamini and Hochberg's correction: by the test
            over seeds, else by the items; empty for one task.
        seed_level: None where a side is one checkpoint, or neither has seeds.
        item_level: None where it was not asked for, or where something for it is missing.
        item_reason: What is missing.
        asked: What was asked besides.
        answers: The answers.
        limits: What else differs, in sentences.
        notes: What every output with these records must say.
    """

    profile: str
    suite: str
    first: str
    second: str
    seeds: tuple[tuple[int, ...], tuple[int, ...]]
    level: float
    means: dict[str, tuple[float, float]]
    findings: tuple[ComparisonFinding, ...]
    corrected_tasks: dict[str, Corrected]
    seed_level: SeedLevel | None
    item_level: ItemLevel | None
    item_reason: str | None
    asked: Questions
    answers: Answers
    limits: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def headline(self) -> ComparisonFinding:
        """What the verdict rests on."""
        return self.findings[0]

    @property
    def test(self) -> Test:
        """Its test."""
        return self.headline.test

    @property
    def difference(self) -> float:
        """Of the average."""
        return self.headline.difference

    @property
    def interval(self) -> tuple[float, float]:
        """Its confidence interval, before any correction."""
        return self.headline.low, self.headline.high

    @property
    def p(self) -> float:
        """Its p, before any correction."""
        return self.headline.p

    @property
    def corrected(self) -> Corrected | None:
        """Its place among several comparisons."""
        return self.headline.corrected

    def of(self, scope: Scope) -> ComparisonFinding | None:
        """What speaks for seeds, items or both."""
        return next((one for one in self.findings if one.speaks_for == scope), None)


def compare(
    a: Group,
    b: Group,
    *,
    level: float = 0.95,
    test: RequestedTest = "auto",
    scope: Scope | None = None,
    draw: DrawItems | None = None,
    asked: Questions = NOTHING_ELSE,
) -> Comparison:
    """Compare two groups of runs on their suite.

    Args:
        a: One side.
        b: The other.
        level: Confidence level of the intervals, in (0, 1).
        test: Of seeds: "auto" is the paired t test where the records say that the runs of a seed are pairs,
            else Welch's; see ``bench.stats.seed_design``.
        scope: What the verdict is to speak for: further "seeds", further "items", or "both". Default: both
            where there are seeds and items, and the test isn't exact.
        draw: Gives each run's scores in common draws of items; None: seeds only.
        asked: What else to answer.

    Raises:
        RefusedError: a record whose scores its predictions contradict.
        InputError: one finished seed of a method, or a test or scope that these sides don't allow.
        NotComparableError: the sides were measured on different data.
    """
    profile, suite = " and ".join(dict.fromkeys((a.place[0], b.place[0]))), a.place[1]
    where = f"{profile}, suite {suite}"
    names, design = _check_common_tasks(a, b, where), None
    _refuse_one_seed(a, where)
    _refuse_one_seed(b, where)
    if not (a.is_checkpoint or b.is_checkpoint) and a.seeds + b.seeds:
        a, b, design = choose_comparison_design(a, b, test, where)
    items, reason = _compare_items(a, b, names, level, draw, paired=design is not None and design.paired)
    seeds = compare_over_seeds(a, b, design, (*names, AVERAGE), level) if design else None
    if seeds and scope == "both" and seeds.design.test in EXACT:
        what = f"--for both with --test {test}"
        raise InputError(what, where=where, expected="--for seeds: it has no items")
    if not (found := collect_findings(seeds, items, level, scope)):
        raise _no_finding_error(a, b, seeds, scope, reason, where)
    return Comparison(
        profile=profile,
        suite=suite,
        first=a.label,
        second=b.label,
        seeds=(a.seeds, b.seeds),
        level=level,
        means={task: (fmean(a.scores(task)), fmean(b.scores(task))) for task in (*names, AVERAGE)},
        findings=found,
        corrected_tasks=correct_tasks(seeds, items, level),
        seed_level=seeds,
        item_level=items,
        item_reason=reason,
        asked=asked,
        answers=answer_questions(asked, found[0], seeds),
        limits=tuple(describe_confounders(a, b)),
        notes=tuple(dict.fromkeys(note for run in (*a.runs, *b.runs) for note in run.record.notes)),
    )


def correct_comparisons(
    comparisons: Sequence[Comparison], family: str, method: CorrectionMethod
) -> list[Comparison]:
    """Correct the verdicts for the number of comparisons; a single one is left as it is.

    What speaks for less than the verdict is corrected among its like; a comparison that has none counts with
    its verdict, so that every family is of all comparisons. Answers are given again, each at one
    minus the error rate divided by the number of comparisons, so that all hold together.

    Args:
        comparisons: The family.
        family: Its name.
        method: "holm" for one method against others, "fdr_bh" (Benjamini-Hochberg) for an exploratory grid.
    """
    if len(comparisons) < 2:
        return list(comparisons)
    heads = correct_findings([c.headline for c in comparisons], family, method)
    rest: list[list[ComparisonFinding]] = [[] for _ in comparisons]
    scopes: tuple[Scope, ...] = ("both", "seeds")
    for scope in scopes:
        again = correct_findings([c.of(scope) or c.headline for c in comparisons], family, method)
        for c, one, kept in zip(comparisons, again, rest, strict=True):
            if any(each.speaks_for == scope for each in c.findings[1:]):
                kept.append(one)
    return [
        replace(
            c,
            findings=(head, *more),
            answers=answer_questions(c.asked, head, c.seed_level, together=len(comparisons)),
        )
        for c, head, more in zip(comparisons, heads, rest, strict=True)
    ]


def _compare_items(
    a: Group, b: Group, names: Sequence[str], level: float, draw: DrawItems | None, *, paired: bool
) -> tuple[ItemLevel | None, str | None]:
    """The items' level, or why it is left out."""
    if draw is None:
        return None, None
    try:
        return compare_over_items(a, b, names, level, draw, paired=paired), None
    except RefusedError:
        raise
    except BenchError as error:
        return None, str(error)


def _check_common_tasks(a: Group, b: Group, where: str) -> tuple[str, ...]:
    """Tasks of all runs, which must have been measured on the same data."""
    records = [run.record for group in (a, b) for run in group.runs]
    data = {tuple(sorted((task, facts["sha256"]) for task, facts in r.tasks.items())) for r in records}
    if len(data) > 1:
        raise NotComparableError(
            f"{a.label} and {b.label} were measured on different versions of the data", where=where
        )
    return list_common_tasks(records, where)


def _refuse_one_seed(group: Group, where: str) -> None:
    if len(group.runs) == 1 and not group.single and not group.deterministic:
        raise InputError(
            f"{group.label} has one finished seed",
            where=where,
            expected="two seeds or more: one run says nothing about its spread",
            hint=f"{group.label}#{group.seeds[0]} names the checkpoint, to compare it on the items",
        )


def _no_finding_error(
    a: Group, b: Group, seeds: SeedLevel | None, scope: Scope | None, reason: str | None, where: str
) -> InputError:
    """The error where nothing speaks for what was asked."""
    if seeds:
        return InputError(
            f"nothing speaks for {'further items' if scope == 'items' else 'seeds and items together'}",
            where=where,
            expected="the items",
            hint=reason or "leave out --seeds-only",
        )
    what = f"neither {a.label} nor {b.label} has seeds"
    if a.is_checkpoint or b.is_checkpoint:
        what = f"{a.label} against {b.label}: one run says nothing about its spread over seeds"
    expected = "--for items" if scope in ("seeds", "both") else "two seeds or more, or the items"
    return InputError(what, where=where, expected=expected, hint=reason)
