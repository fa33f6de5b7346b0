"""Two methods or two checkpoints side by side, and the verdict that their difference allows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Literal

from bench.compare.caveats import limits
from bench.compare.draws import RefusedError, common_tasks
from bench.compare.evidence import DrawItems, ItemLevel, SeedLevel, item_level, seed_level
from bench.compare.select import Group
from bench.errors import BenchError, InputError, NotComparableError
from bench.stats.correction import benjamini_hochberg, holm
from bench.stats.items import AVERAGE, ItemDifference
from bench.stats.seeds import ExactTest, SeedDifference

Test = Literal["welch", "permutation", "items"]


@dataclass(frozen=True)
class Corrected:
    """The p of a verdict among the comparisons of its family.

    Args:
        family: What was corrected together, and how.
        p: The p after it.
        minimum_p: The smallest that its test can give.
    """

    family: str
    p: float
    minimum_p: float


@dataclass(frozen=True)
class Comparison:
    """Two groups of runs on one suite, in the metric's unit; differences are first - second.

    Args:
        profile: Profile of both, or both profiles.
        suite: Suite.
        first: One side's name.
        second: The other's.
        seeds: Seeds of the first, seeds of the second; none of a deterministic method.
        level: Confidence level of the intervals; one minus it is the verdict's error rate.
        means: By task, "avg" the last: mean of the first and of the second.
        test: What the verdict rests on: "items" where a side is one checkpoint, or neither side has seeds.
        difference: Of the average.
        interval: Its confidence interval: Welch's (Student's against a method without seeds), or the items'.
        p: The test's p of the average.
        minimum_p: The smallest that it can give.
        corrected_tasks: Its p of each task after Benjamini and Hochberg's correction; empty for one task.
        corrected: The p of the average after a correction, where there are several comparisons.
        seed_level: None where a side is one checkpoint, or neither has seeds.
        item_level: None where it was not asked for, or where something for it is missing.
        item_reason: What is missing.
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
    test: Test
    difference: float
    interval: tuple[float, float]
    p: float
    minimum_p: float
    corrected_tasks: dict[str, float]
    corrected: Corrected | None
    seed_level: SeedLevel | None
    item_level: ItemLevel | None
    item_reason: str | None
    limits: tuple[str, ...]
    notes: tuple[str, ...]


def compare(
    a: Group, b: Group, *, level: float = 0.95, test: Test = "welch", draw: DrawItems | None = None
) -> Comparison:
    """Compare two groups of runs on their suite.

    Args:
        a: One side.
        b: The other.
        level: Confidence level of the intervals, in (0, 1).
        test: "welch" or "permutation", of seeds. Where a side is one checkpoint, or neither has seeds, the
            verdict rests on the items.
        draw: Gives each run's scores in common draws of items; None for seeds only.

    Raises:
        RefusedError: a record whose scores its predictions contradict.
        InputError: one finished seed of a method, a permutation test against a deterministic method or with
            more than 40 seeds, or neither seeds nor items to compare.
        NotComparableError: the sides were measured on different data.
    """
    profile = " and ".join(dict.fromkeys((a.place[0], b.place[0])))
    where = f"{profile}, suite {a.place[1]}"
    names = _common_tasks(a, b, where)
    for group in (a, b):
        _refuse_one_seed(group, where)
    items, reason = None, None
    if draw is not None:
        try:
            items = item_level(a, b, names, level, draw)
        except RefusedError:
            raise
        except BenchError as error:
            reason = str(error)
    seeds = None
    if not (a.is_checkpoint or b.is_checkpoint) and a.seeds + b.seeds:
        seeds = seed_level(a, b, (*names, AVERAGE), level)
    basis, tests, d = _basis(a, b, seeds, items, test, reason, where)
    return Comparison(
        profile=profile,
        suite=a.place[1],
        first=a.label,
        second=b.label,
        seeds=(a.seeds, b.seeds),
        level=level,
        means={task: (fmean(a.scores(task)), fmean(b.scores(task))) for task in (*names, AVERAGE)},
        test=basis,
        difference=d.difference,
        interval=(d.low, d.high),
        p=tests[AVERAGE].p,
        minimum_p=tests[AVERAGE].minimum_p,
        corrected_tasks=_correct_tasks({task: tests[task].p for task in names}),
        corrected=None,
        seed_level=seeds,
        item_level=items,
        item_reason=reason,
        limits=tuple(limits(a, b)),
        notes=tuple(dict.fromkeys(note for group in (a, b) for r in group.runs for note in r.record.notes)),
    )


def correct(
    comparisons: Sequence[Comparison], family: str, method: Literal["holm", "fdr_bh"]
) -> list[Comparison]:
    """Correct the verdicts' p for the number of comparisons; a single one is left as it is.

    Args:
        comparisons: The family.
        family: Its name.
        method: "holm" for one method against others, "fdr_bh" (Benjamini-Hochberg) for an exploratory grid.
    """
    if len(comparisons) < 2:
        return list(comparisons)
    names = {str(i): c for i, c in enumerate(comparisons)}
    function = holm if method == "holm" else benjamini_hochberg
    found = function(
        {name: c.p for name, c in names.items()}, family, {name: c.minimum_p for name, c in names.items()}
    )
    adjusted = found.comparisons
    return [
        replace(c, corrected=Corrected(found.caption, adjusted[name].adjusted, adjusted[name].minimum))
        for name, c in names.items()
    ]


def _correct_tasks(p: dict[str, float]) -> dict[str, float]:
    if len(p) < 2:
        return {}
    return {task: one.adjusted for task, one in benjamini_hochberg(p, "tasks").comparisons.items()}


def _common_tasks(a: Group, b: Group, where: str) -> tuple[str, ...]:
    """Tasks of all runs, which must have been measured on the same data."""
    records = [run.record for group in (a, b) for run in group.runs]
    data = {tuple(sorted((task, facts["sha256"]) for task, facts in r.tasks.items())) for r in records}
    if len(data) > 1:
        raise NotComparableError(
            f"{a.label} and {b.label} were measured on different versions of the data", where=where
        )
    return common_tasks(records, where)


def _refuse_one_seed(group: Group, where: str) -> None:
    if len(group.runs) == 1 and not group.single and not group.deterministic:
        raise InputError(
            f"{group.label} has one finished seed",
            where=where,
            expected="two seeds or more: one run says nothing about its spread",
            hint=f"{group.label}#{group.seeds[0]} names the checkpoint, to compare it on the items",
        )


def _basis(
    a: Group,
    b: Group,
    seeds: SeedLevel | None,
    items: ItemLevel | None,
    test: Test,
    reason: str | None,
    where: str,
) -> tuple[Test, Mapping[str, SeedDifference | ExactTest | ItemDifference], SeedDifference | ItemDifference]:
    """What the verdict rests on, its tests of all tasks, and the average's interval."""
    if seeds is not None and test != "permutation":
        return "welch", seeds.tasks, seeds.tasks[AVERAGE]
    if seeds is not None:
        if not seeds.permutations:
            raise InputError(
                "no permutation test against a method without seeds, or of more than 40 seeds",
                where=where,
                hint="use --test welch",
            )
        return "permutation", seeds.permutations, seeds.tasks[AVERAGE]
    if items is not None:
        return "items", items.tasks, items.tasks[AVERAGE]
    what = f"neither {a.label} nor {b.label} has seeds"
    if a.is_checkpoint or b.is_checkpoint:
        what = f"{a.label} against {b.label}: one run says nothing about its spread over seeds"
    raise InputError(what, where=where, expected="two seeds or more, or the items", hint=reason)
