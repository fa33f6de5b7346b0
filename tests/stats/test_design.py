"""The choice between paired and unpaired tests, on seeds written by hand."""

from __future__ import annotations

import pytest

from bench.errors import InputError
from bench.stats.seed_design import RequestedTest, SeedDesign, SeedTest, choose_design, common_seeds
from tests.support.messages import missing_facts

FIVE = (1, 2, 3, 4, 5)


def span(first: int, last: int) -> tuple[int, ...]:
    return tuple(range(first, last + 1))


def test_without_pairs_equal_seeds_are_unpaired() -> None:
    assert choose_design(FIVE, FIVE, pairs=False) == SeedDesign("welch", (FIVE, FIVE))
    assert choose_design(FIVE, FIVE, pairs=False, pair_subset=True).test == "welch"


@pytest.mark.parametrize("seeds", [(1,), (1, 2), FIVE])
def test_equal_seeds_of_pairs_are_paired_however_few(seeds: tuple[int, ...]) -> None:
    found = choose_design(seeds, seeds, pairs=True)
    assert found == SeedDesign("paired", (seeds, seeds))
    assert found.paired


@pytest.mark.parametrize(
    ("a", "b", "common"),
    [
        (span(1, 5), span(3, 7), (3, 4, 5)),
        (span(1, 6), span(4, 9), (4, 5, 6)),  # exactly half of six
        (span(1, 6), span(4, 40), (4, 5, 6)),  # half of the smaller side, whatever the larger one has
        (span(1, 3), span(1, 10), (1, 2, 3)),
    ],
)
def test_enough_seeds_in_common_leave_out_the_others(
    a: tuple[int, ...], b: tuple[int, ...], common: tuple[int, ...]
) -> None:
    left_out = tuple(sorted({*a} - {*common})), tuple(sorted({*b} - {*common}))
    assert choose_design(a, b, pairs=True) == SeedDesign("paired", (common, common), left_out)
    assert choose_design(b, a, pairs=True) == SeedDesign("paired", (common, common), left_out[::-1])
    assert choose_design(a, b, pairs=False) == SeedDesign("welch", (a, b))


@pytest.mark.parametrize(
    ("a", "b", "count"),
    [
        (span(1, 4), span(3, 6), 2),  # half, but under three
        (span(1, 7), span(5, 11), 3),  # three, but under half
        (span(1, 3), span(7, 9), 0),
    ],
)
def test_too_few_seeds_in_common_are_counted_and_not_used(
    a: tuple[int, ...], b: tuple[int, ...], count: int
) -> None:
    for pair_subset in (False, True):
        found = choose_design(a, b, pairs=True, pair_subset=pair_subset)
        assert found == SeedDesign("welch", (a, b), too_few=count)
        assert not found.paired


@pytest.mark.parametrize("few", [(2,), (2, 4)])
def test_one_or_two_seeds_that_the_other_side_has_are_pairs_if_wanted(few: tuple[int, ...]) -> None:
    rest = tuple(seed for seed in FIVE if seed not in few)
    wanted = choose_design(FIVE, few, pairs=True, pair_subset=True)
    assert wanted == SeedDesign("paired", (few, few), (rest, ()))
    assert choose_design(FIVE, few, pairs=True) == SeedDesign("welch", (FIVE, few), too_few=len(few))


def test_one_run_on_a_side_with_another_seed_has_no_partner() -> None:
    found = choose_design((9,), FIVE, pairs=True, pair_subset=True)
    assert found == SeedDesign("welch", ((9,), FIVE))


@pytest.mark.parametrize("asked", ["auto", "welch"])
def test_a_side_without_seeds_is_a_fixed_score(asked: RequestedTest) -> None:
    assert choose_design((), FIVE, pairs=True, asked=asked) == SeedDesign("student", ((), FIVE))
    assert choose_design(FIVE, (), pairs=False, asked=asked) == SeedDesign("student", (FIVE, ()))
    assert choose_design((), (), pairs=True, asked=asked).test == "student"


@pytest.mark.parametrize("asked", ["welch", "permutation"])
def test_an_unpaired_test_that_was_asked_for_uses_all_seeds(asked: SeedTest) -> None:
    a, b = span(1, 5), span(1, 4)
    assert choose_design(a, b, pairs=True, asked=asked) == SeedDesign(asked, (a, b))  # type: ignore[arg-type]


@pytest.mark.parametrize("asked", ["paired", "sign-flip"])
def test_a_paired_test_that_was_asked_for_needs_partners_but_no_records(asked: RequestedTest) -> None:
    assert choose_design(FIVE, FIVE, pairs=False, asked=asked) == SeedDesign(asked, (FIVE, FIVE))  # type: ignore[arg-type]
    found = choose_design(FIVE, span(2, 6), pairs=True, asked=asked)
    assert (found.test, found.seeds[0], found.left_out) == (asked, (2, 3, 4, 5), ((1,), (6,)))
    with pytest.raises(InputError) as error:
        choose_design(FIVE, span(2, 6), pairs=False, asked=asked, names=("x", "y"), where="here")
    assert not missing_facts(error.value, "x and y", "different seeds", "here", "--test welch")
    with pytest.raises(InputError, match="a and b"):
        choose_design(span(1, 4), span(3, 6), pairs=True, asked=asked)


@pytest.mark.parametrize("asked", ["paired", "sign-flip", "permutation"])
def test_only_students_test_takes_a_side_without_seeds(asked: RequestedTest) -> None:
    with pytest.raises(InputError, match=f"no {asked} test"):
        choose_design(FIVE, (), pairs=False, asked=asked)


def test_a_permutation_takes_forty_seeds_over_both_sides() -> None:
    assert choose_design(span(1, 20), span(1, 20), pairs=True, asked="permutation").test == "permutation"
    with pytest.raises(InputError, match="40 seeds"):
        choose_design(span(1, 21), span(1, 20), pairs=True, asked="permutation")


def test_sign_flips_take_forty_pairs_after_the_others_are_left_out() -> None:
    forty = span(1, 40)
    for a, b in ((forty, span(1, 60)), (span(1, 60), forty)):
        assert choose_design(a, b, pairs=True, asked="sign-flip").seeds == (forty, forty)
    with pytest.raises(InputError, match="40 pairs"):
        choose_design(span(1, 41), span(1, 60), pairs=True, asked="sign-flip")
    assert choose_design(span(1, 41), span(1, 41), pairs=True).test == "paired"


def test_seeds_in_common() -> None:
    assert common_seeds([3, 1], [1, 2, 3]) == ((3, 1), (1, 3))  # each in its own order
    assert common_seeds([1], [2]) == common_seeds([], [2]) == ((), ())
