"""Comparison of two methods or two checkpoints: difference, tests and answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from bench.comparison.confounders import describe_confounders, find_shared_stage
from bench.comparison.design import choose_comparison_design
from bench.comparison.evidence import DrawItems, ItemLevel, SeedLevel, compare_over_items, compare_over_seeds
from bench.comparison.finding import (
    EXACT,
    ComparisonFinding,
    Corrected,
    CorrectionMethod,
    Scope,
    collect_findings,
    correct_findings,
    correct_tasks,
)
from bench.comparison.item_bootstrap import RefusedError, list_common_tasks
from bench.comparison.questions import NOTHING_ELSE, Answers, Questions, answer_questions
from bench.comparison.selection import Group
from bench.comparison.task_evidence import LEAST_TASKS, TaskLevel, compare_over_tasks
from bench.errors import BenchError, InputError, NotComparableError
from bench.records.imported import is_published, lacks_seed
from bench.stats.item_statistics import AVERAGE
from bench.stats.seed_design import RequestedTest


@dataclass(frozen=True)
class Comparison:
    """Two groups of runs on one suite, in the metric's unit; differences are first - second.

    Args:
        seeds: Used seeds of the first and of the second; () for a deterministic method.
        means: By task, "avg" the last: mean of the first and of the second.
        findings: The difference of the average: the first is the verdict's, the others speak for less.
        corrected_tasks: Several tasks after Benjamini and Hochberg's correction, of seeds or else of items.
        item_level: If asked for, unless ``item_reason`` prevents it.
        task_level: Of rows that have neither seeds nor items.
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
    task_level: TaskLevel | None = None

    @property
    def headline(self) -> ComparisonFinding:
        """The finding of the verdict."""
        return self.findings[0]

    def find(self, scope: Scope) -> ComparisonFinding | None:
        """Return the finding that speaks for seeds, items or both."""
        return next((finding for finding in self.findings if finding.speaks_for == scope), None)


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

    The verdict speaks for the scope: further "seeds", further "items", or "both", which is the default with
    seeds, items and no exact test. ``draw`` returns each run's scores in common draws of items; without it,
    only seeds are compared.
    """
    profile, suite = " and ".join(dict.fromkeys((a.place[0], b.place[0]))), a.place[1]
    where = f"{profile}, suite {suite}"
    names, design = _check_common_tasks(a, b, where), None
    for group in (a, b):
        if len(group.runs) == 1 and not group.single and not group.deterministic:
            raise InputError(
                f"{group.label} has one finished seed",
                where=where,
                expected="two seeds or more",
                hint=f"{group.label}#{group.seeds[0]} compares the checkpoint on its items",
            )
        if not group.is_checkpoint and (role := find_shared_stage([run.record for run in group.runs])):
            raise NotComparableError(
                f"seeds of {group.label} share the trained stage '{role}', so they depend on one another",
                where=where,
                hint=f"{group.label}#{group.seeds[0]} compares the checkpoint on its items",
            )
    if not (a.is_checkpoint or b.is_checkpoint) and a.seeds + b.seeds:
        a, b, design = choose_comparison_design(a, b, test, where)
    paired = design is not None and design.paired
    _check_unknown_seeds(a, b, where)
    tasks = compare_over_tasks(a, b, level) if scope in (None, "tasks") else None
    items, reason = _compare_items(a, b, names, level, None if tasks else draw, paired=paired)
    seeds = compare_over_seeds(a, b, design, (*names, AVERAGE), level) if design else None
    if seeds and scope == "both" and seeds.design.test in EXACT:
        raise InputError(f"--for both with --test {test}", where=where, expected="--for seeds")
    findings = collect_findings(seeds, items, level, scope, tasks)
    if not findings:
        raise _no_finding_error(a, b, seeds, scope, reason, where)
    notes = dict.fromkeys(note for run in (*a.runs, *b.runs) for note in run.record.notes)
    return Comparison(
        profile=profile,
        suite=suite,
        first=a.label,
        second=b.label,
        seeds=(a.seeds, b.seeds),
        level=level,
        means={task: (fmean(a.scores(task)), fmean(b.scores(task))) for task in (*names, AVERAGE)},
        findings=findings,
        corrected_tasks=correct_tasks(seeds, items, level),
        seed_level=seeds,
        item_level=items,
        item_reason=reason,
        asked=asked,
        answers=answer_questions(asked, findings[0], seeds),
        limits=tuple(describe_confounders(a, b)),
        notes=tuple(notes),
        task_level=tasks,
    )


def _check_unknown_seeds(a: Group, b: Group, where: str) -> None:
    """Raise InputError for an imported result of an unknown seed against a method with seeds."""
    if a.is_checkpoint or b.is_checkpoint or not (a.seeds + b.seeds):
        return
    for group in (a, b):
        if lacks_seed(run.record for run in group.runs):
            raise InputError(
                f"{group.label} is one result of an unknown seed: how much others would differ isn't known",
                where=where,
                expected="seeds on both sides",
                hint="bench report lists both, without a test",
            )


def correct_comparisons(
    comparisons: Sequence[Comparison], family: str, method: CorrectionMethod
) -> list[Comparison]:
    """Correct the verdicts for the number of comparisons; a single one stays as it is.

    Findings below the verdict are corrected among those of their scope; a comparison without one counts with
    its verdict, so that every family has all comparisons. All answers hold together.
    """
    count = len(comparisons)
    if count < 2:
        return list(comparisons)
    heads = correct_findings([c.headline for c in comparisons], family, method)
    findings = [[head] for head in heads]
    scopes: tuple[Scope, ...] = ("both", "seeds")
    for scope in scopes:
        corrected = correct_findings([c.find(scope) or c.headline for c in comparisons], family, method)
        for c, finding, of_comparison in zip(comparisons, corrected, findings, strict=True):
            if any(other.speaks_for == scope for other in c.findings[1:]):
                of_comparison.append(finding)
    result = []
    for c, (head, *others) in zip(comparisons, findings, strict=True):
        answers = answer_questions(c.asked, head, c.seed_level, together=count)
        result.append(replace(c, findings=(head, *others), answers=answers))
    return result


def _compare_items(
    a: Group,
    b: Group,
    names: Sequence[str],
    level: float,
    draw: DrawItems | None,
    *,
    paired: bool,
) -> tuple[ItemLevel | None, str | None]:
    """Return the items' level, or the obstacle."""
    if draw is None:
        return None, None
    try:
        return compare_over_items(a, b, names, level, draw, paired=paired), None
    except RefusedError:
        raise
    except BenchError as error:
        return None, str(error)


def _check_common_tasks(a: Group, b: Group, where: str) -> tuple[str, ...]:
    """Return the tasks of all runs; raise NotComparableError for different data."""
    records = [run.record for run in (*a.runs, *b.runs)]
    data = [{task: facts["sha256"] for task, facts in record.tasks.items()} for record in records]
    if any(hashes != data[0] for hashes in data):
        what = f"{a.label} and {b.label} were measured on different versions of the data"
        raise NotComparableError(what, where=where)
    return list_common_tasks(records, where)


def _no_finding_error(
    a: Group, b: Group, seeds: SeedLevel | None, scope: Scope | None, reason: str | None, where: str
) -> InputError:
    if seeds:
        population = "further items" if scope == "items" else "seeds and items together"
        hint = reason or "leave out --seeds-only"
        return InputError(f"no test for {population}", where=where, expected="the items", hint=hint)
    records = [run.record for run in (*a.runs, *b.runs)]
    what = f"{a.label} and {b.label} have no seeds"
    published = all(is_published(record) for record in records)
    if published and not (a.seeds or b.seeds):
        what = f"{a.label} and {b.label} were imported without seeds and items"
        count = len(list_common_tasks(records, where))
        expected = "--for tasks"
        if count < LEAST_TASKS:
            expected = f"{LEAST_TASKS} tasks or more to test over, and these have {count}"
        return InputError(what, where=where, expected=expected)
    if a.is_checkpoint or b.is_checkpoint:
        what = f"{a.label} against {b.label}: one run has no spread over seeds"
    expected = "--for items" if scope in ("seeds", "both") else "two seeds or more, or the items"
    return InputError(what, where=where, expected=expected, hint=reason)
