"""Two methods side by side: is their difference larger than what their seeds explain?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from bench.errors import InputError, NotComparableError, unknown
from bench.record import ALL, RunRecord
from bench.stats.seeds import SeedDifference, one_sample, welch


@dataclass(frozen=True)
class Comparison:
    """Two methods on one suite, in the metric's own unit.

    Args:
        profile: Profile of both.
        suite: Suite of both.
        first: Method id.
        second: Method id.
        seeds: Seeds of the first, seeds of the second.
        differences: By task, "avg" the last: first - second.
    """

    profile: str
    suite: str
    first: str
    second: str
    seeds: tuple[tuple[int, ...], tuple[int, ...]]
    differences: dict[str, SeedDifference]

    @property
    def average(self) -> SeedDifference:
        """The difference of the suite averages, the one that a verdict rests on."""
        return self.differences["avg"]

    def verdict(self, level: float) -> str:
        """Say in words what the interval of the average allows to say."""
        d = self.average
        sizes = f"{d.n_a} and {d.n_b} seeds"
        if 1 in (d.n_a, d.n_b):
            sizes = f"{max(d.n_a, d.n_b)} seeds against one run without seed"
        text = f"{100 * d.difference:+.2f} points [{100 * d.low:+.2f}, {100 * d.high:+.2f}]"
        if d.low <= 0 <= d.high:
            return f"{sizes} show no difference of {self.first} and {self.second}: {text} at {level:.0%}"
        winner = self.first if d.difference > 0 else self.second
        return f"{winner} is ahead: {self.first} - {self.second} = {text} at {level:.0%}, {sizes}"


def compare(records: Sequence[RunRecord], first: str, second: str, level: float = 0.95) -> list[Comparison]:
    """Compare two methods on every profile and suite that has finished seeds of both.

    Args:
        records: Records of a campaign.
        first: Method id.
        second: Method id.
        level: Confidence level of Welch's intervals.

    Raises:
        InputError: an unknown method, no suite with both, one finished seed of a method, or no seed in both.
        NotComparableError: both were measured on different data, or a method under several specifications.
    """
    if first == second:
        raise InputError(f"'{first}' against itself", where="bench compare", expected="two methods")
    names = {record.method for record in records}
    for name in (first, second):
        if name not in names:
            raise unknown("method", name, names, where="bench compare")
    groups: dict[tuple[str, str], list[list[RunRecord]]] = {}
    for record in records:
        if record.status == "ok" and record.method in (first, second):
            sides = groups.setdefault((record.profile, record.suite), [[], []])
            sides[record.method == second].append(record)
    found = [
        _comparison(profile, suite, (a, b), level)
        for (profile, suite), (a, b) in sorted(groups.items())
        if a and b
    ]
    if not found:
        raise InputError(
            f"no suite has finished records of both {first} and {second}",
            where="bench compare",
            hint="bench report shows what there is",
        )
    return found


def _comparison(
    profile: str, suite: str, sides: tuple[list[RunRecord], list[RunRecord]], level: float
) -> Comparison:
    where = f"{profile}, suite {suite}"
    one, other = sides
    names = one[0].method, other[0].method
    for name, side in zip(names, sides, strict=True):
        if len({record.family for record in side}) > 1:
            raise NotComparableError(
                f"the seeds of {name} were measured under different specifications", where=where
            )
        if len(side) < 2 and side[0].seed is not None:
            raise InputError(
                f"{name} has one finished seed",
                where=where,
                expected="two seeds or more: one run says nothing about its spread",
            )
    if len(one) == len(other) == 1:
        raise InputError(f"neither {names[0]} nor {names[1]} has seeds", where=where)
    data = {
        tuple(sorted((task, facts["sha256"]) for task, facts in record.tasks.items()))
        for side in sides
        for record in side
    }
    if len(data) > 1:
        raise NotComparableError(
            f"{names[0]} and {names[1]} were measured on different versions of the data", where=where
        )
    tasks = [s.task for s in one[0].scores if (s.subset, s.metric) == (ALL, "spearman")]
    return Comparison(
        profile,
        suite,
        *names,
        seeds=(_seeds(one), _seeds(other)),
        differences={task: _difference(_scores(one, task), _scores(other, task), level) for task in tasks},
    )


def _difference(one: list[float], other: list[float], level: float) -> SeedDifference:
    """Welch's for seeds against seeds; Student's against the one score of a deterministic method."""
    if len(other) == 1:
        return one_sample(one, other[0], level)
    if len(one) == 1:
        d = one_sample(other, one[0], level)
        return replace(d, difference=-d.difference, low=-d.high, high=-d.low, n_a=d.n_b, n_b=d.n_a)
    return welch(one, other, level)


def _seeds(records: list[RunRecord]) -> tuple[int, ...]:
    return tuple(sorted(record.seed for record in records if record.seed is not None))


def _scores(records: list[RunRecord], task: str) -> list[float]:
    return [value for record in records if (value := record.score(task)) is not None]
