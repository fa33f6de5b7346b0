"""What tables say of the tests of all pairs of methods: groups, ranks, bold, daggers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from types import MappingProxyType
from typing import TYPE_CHECKING

from bench.records.record import RunRecord
from bench.render.grid import DASH, interval
from bench.reports.campaign import Campaign
from bench.reports.records import by_method, values
from bench.reports.tables.standings import ALPHA, Standings

if TYPE_CHECKING:
    from bench.stats.ranks import Ranking

LEVEL = 1 - ALPHA
ABOVE, BELOW = "\N{DAGGER}", "\N{DOUBLE DAGGER}"
BOLD = "Bold: the best methods of each column, tested by itself, of which no two are shown to differ"
NO_BOLD = "Nothing is bold: no method is shown to be better than another."


@dataclass(frozen=True)
class Averages:
    """A method's suite averages, in the metric's unit.

    Args:
        method: Method id.
        values: One a finished seed.
        deterministic: True if it has no seeds.
    """

    method: str
    values: tuple[float, ...]
    deterministic: bool


def averages(campaign: Campaign, records: Sequence[RunRecord]) -> list[Averages]:
    """Return the averages of every method with a finished run, in the order of the campaign's rows."""
    found = [
        Averages(method, scores, runs[0].seed is None)
        for method, runs in by_method(records).items()
        if (scores := tuple(values(runs)))
    ]
    return sorted(found, key=lambda one: campaign.place(one.method, fmean(one.values)))


def level_in_words(level: float) -> str:
    """Return a confidence level in percent, with two digits of what it leaves.

    >>> level_in_words(0.95), level_in_words(1 - 0.05 / 42), level_in_words(1 - 0.05 / 4005)
    ('95%', '99.88%', '99.9988%')
    """
    return f"{100 - float(f'{100 * (1 - level):.2g}'):.10g}%"


def tests_in_words(ranking: Ranking) -> str:
    """Say by which tests, of how many pairs each, with which correction."""
    from bench.stats.pair_test import AND_ITEMS, ITEMS, PAIRED, STUDENT, WELCH

    names = {
        PAIRED: "paired t where runs of a seed share stages or batches",
        WELCH: "Welch's",
        STUDENT: "Student's against a method without seeds",
        ITEMS: "the items' bootstrap between two such methods",
    }
    tests = [one.test for one in ranking.pairs if one.p is not None]
    counts = Counter(test.removesuffix(AND_ITEMS) for test in tests)
    used = [f"{words} ({counts[test]})" for test, words in names.items() if counts[test]]
    both = any(test.endswith(AND_ITEMS) for test in tests)
    scope = "over seeds and items (variance components)" if both else "over seeds on these items"
    return f"tests {scope}: {', '.join(used)}; {ranking.caption}"


def uneven_seeds(found: Standings) -> list[str]:
    """Say which of Welch's tests have the degrees of freedom of the fewer seeds."""
    from bench.stats.pair_test import AND_ITEMS, WELCH
    from bench.stats.seeds import FEW, UNEVEN, uneven

    tested = (one for one in found.of().pairs if one.test.removesuffix(AND_ITEMS) == WELCH)
    count = sum(uneven(*found.sizes(one.first, one.second)) for one in tested)
    if not count:
        return []
    pairs = "One of Welch's tests is" if count == 1 else f"{count} of Welch's tests are"
    return [
        f"{pairs} of fewer than {FEW} seeds against {UNEVEN} times as many or more, or of 2 against 3: with "
        "the degrees of freedom of the fewer."
    ]


def interval_text(found: Standings, a: str, b: str) -> str:
    """The interval of a - b on average and its level, or a dash."""
    ends, level = found.interval(a, b), found.of().pair(a, b).level
    shown = interval(*(ends or (None, None)))
    return shown if shown == DASH or level is None else f"{shown} ({level_in_words(level)})"


INTERVAL = (
    "Interval: each pair by itself, at the level in parentheses, that of its step of Holm's correction; it "
    "holds 0 just where no difference is shown."
)


def standing_notes(
    ranking: Ranking, few_seeds: Sequence[str] = (), shown: Callable[[str], str] = str
) -> list[str]:
    """Say what a group and a rank mean, which pairs were not tested, and ``few_seeds`` of those that were.

    Args:
        ranking: The methods.
        few_seeds: What is said of the tests of unequal numbers of seeds.
        shown: What a method is called.
    """
    if not ranking.methods:
        return []
    notes = [
        "group: methods that share a letter are not shown to differ on average, p > 0.05 by "
        f"{tests_in_words(ranking)}.",
        "Methods that share none differ, or two methods from the one to the other do or were not tested: "
        "Differences (--table significance) has every pair.",
        "rank: the ranks that these tests leave open; with 95% confidence all true ranks are among them.",
    ]
    if ranking.left_out:
        alone = ", ".join(map(shown, ranking.left_out))
        notes.append(
            f"One seed, so no test, rank or group: {alone}, not counted in the others' ranks; where one is "
            "the best, nothing is bold."
        )
    notes += few_seeds
    if untested := ranking.untested:
        pairs = dict.fromkeys(name for one in untested for name in (one.first, one.second))
        names = ", ".join(map(shown, pairs))
        notes.append(
            f"Not tested against each other: {names}, which have no seeds; bench stats draws the "
            "items for such tests."
        )
    return notes


def daggers(
    ranking: Ranking,
    baseline: str | None,
    shown: Callable[[str], str] = str,
    apart: Mapping[str, str] = MappingProxyType({}),
) -> tuple[Mapping[str, str], tuple[str, ...]]:
    """Return the dagger of every method that differs from the baseline, and what the table says of them.

    Args:
        ranking: The methods that are tested.
        baseline: What they are compared with; None for no daggers.
        shown: What a method is called.
        apart: Why methods with finished runs are not among those tested.
    """
    if baseline is None:
        return {}, ()
    if baseline not in ranking.methods:
        why = apart.get(baseline, "no finished run of it here")
        if baseline in ranking.left_out:
            alone = f"{shown(baseline)} has one seed"
            tests = {one.test for one in ranking.pairs if baseline in (one.first, one.second)}
            why = "it has one seed" if alone in tests else "no other method has two seeds"
        return {}, (f"No daggers: {shown(baseline)} can't be tested, {why}.",)
    signs = {}
    for one in ranking.pairs:
        if one.differs and baseline in (one.first, one.second):
            other = one.second if one.first == baseline else one.first
            signs[other] = ABOVE if (one.difference > 0) == (other == one.first) else BELOW
    said = f"{ABOVE} above, {BELOW} below {shown(baseline)} on average, by the same tests and correction."
    return signs, (said,)
