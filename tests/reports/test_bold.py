"""Bold in a column: the first group, where tests set it apart from what follows."""

from __future__ import annotations

from bench.reports.tables.leaderboard import _first_group
from bench.stats.ranks import PairTest, rank_methods

MEANS = {"mean": 77.9, "cls": 77.5, "simcse": 75.0}


def first(
    p: dict[tuple[str, str], float | None], means: dict[str, float] = MEANS, sign: int = 1
) -> tuple[str, ...]:
    """What is bold, by the p of pairs; ``sign`` -1 for tests whose differences are those of other seeds."""
    tests = {
        pair: PairTest(sign * (means[pair[0]] - means[pair[1]]), value, "test" if value else "no seeds")
        for pair, value in p.items()
    }
    return _first_group(rank_methods(means, tests), means)


def test_it_is_the_group_that_a_test_parts_from_the_next() -> None:
    assert first({("mean", "cls"): 0.9, ("mean", "simcse"): 0.001, ("cls", "simcse"): 0.001}) == (
        "mean",
        "cls",
    )
    assert first({("mean", "cls"): 0.9, ("mean", "simcse"): 0.9, ("cls", "simcse"): 0.9}) == ()


def test_a_pair_that_nothing_tests_parts_nothing() -> None:
    """Two methods without seeds: either may be the best, so neither stands out."""
    assert first({("mean", "cls"): None, ("mean", "simcse"): 0.001, ("cls", "simcse"): 0.001}) == ()


def test_what_is_shown_to_be_behind_is_not_bold() -> None:
    """The means are of all seeds, a test of those in common: it may show the second to be ahead."""
    assert first({("mean", "cls"): 0.001}, {"mean": 70.0, "cls": 69.9}) == ("mean",)
    assert first({("mean", "cls"): 0.001}, {"mean": 70.0, "cls": 69.9}, sign=-1) == ()
