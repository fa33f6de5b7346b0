from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from bench.errors import InputError
from bench.stats.argument_checks import FloatArray, make_generator
from bench.stats.item_statistics import SuiteDraws
from bench.stats.seed_design import RequestedTest, SeedDesign, SeedTest, choose_design, common_seeds
from bench.stats.seed_pairs import paired_t, pairing_gain
from bench.stats.seeds import sign_flip, welch
from bench.stats.variance_components import variance_components
from tests.support.messages import missing_facts


def sample_of(a: FloatArray, b: FloatArray, noise: FloatArray, pairs: tuple[int, ...]) -> SuiteDraws:
    """Two methods of as many runs; ``noise`` (draws, tasks) moves a alone."""
    observed = np.concatenate([a, b])
    draws = np.repeat(observed[None], len(noise), axis=0)
    draws[:, : len(a)] += noise[:, None]
    rows = {"a": slice(0, len(a)), "b": slice(len(a), len(observed))}
    return SuiteDraws(rows, tuple(f"t{i}" for i in range(len(pairs))), pairs, observed, draws)


def test_paired_t_by_hand() -> None:
    # differences 1, 1, 2, 4: mean 2, squares about it 1 + 1 + 0 + 4 = 6, so s^2 = 2 and the error sqrt(2 / 4)
    found = paired_t([2, 3, 5, 8], [1, 2, 3, 4], level=0.9)
    half = stats.t.ppf(0.95, 3) * math.sqrt(0.5)
    assert found.difference == 2
    assert (found.low, found.high) == pytest.approx((2 - half, 2 + half))
    assert found.t == pytest.approx(2 / math.sqrt(0.5))
    assert found.p == pytest.approx(2 * stats.t.sf(2 / math.sqrt(0.5), 3))
    assert (found.df, found.n, found.n_a, found.n_b, found.minimum_p) == (3, 4, 4, 4, 0)
    assert found.sd == pytest.approx(math.sqrt(2))
    # deviations -2.5 -1.5 .5 3.5 and -1.5 -.5 .5 1.5: products 10, squares 21 and 5
    assert found.correlation == pytest.approx(10 / math.sqrt(21 * 5))


@pytest.mark.parametrize("n", [2, 3, 7])
def test_it_is_scipys(n: int) -> None:
    rng = make_generator(n, "paired")
    a, b = rng.normal(size=(2, n))
    found, theirs = paired_t(a, b), stats.ttest_rel(a, b)
    assert (found.t, found.p, found.df) == pytest.approx((theirs.statistic, theirs.pvalue, theirs.df))
    assert (found.low, found.high) == pytest.approx(tuple(theirs.confidence_interval(0.95)))
    expected = None if n == 2 else pytest.approx(stats.pearsonr(a, b).statistic)
    assert found.correlation == expected


def test_turning_changes_the_signs() -> None:
    a, b = [76.1, 76.4, 75.9], [75.8, 76.2, 75.7]
    found, turned = paired_t(a, b), paired_t(b, a)
    for name in ("p", "sd", "correlation", "df", "n"):
        assert getattr(found, name) == pytest.approx(getattr(turned, name)), name
    assert (found.difference, found.low, found.high, found.t) == pytest.approx(
        (-turned.difference, -turned.high, -turned.low, -(turned.t or 0))
    )


@pytest.mark.parametrize(
    ("a", "b", "difference", "p"),
    [
        ([0.75, 0.5], [0.75, 0.5], 0.0, 1.0),
        ([0.75, 0.5, 0.625], [0.5, 0.25, 0.375], 0.25, 0.25),
        ([0.7613, 0.7721, 0.7504], [0.7513, 0.7621, 0.7404], 0.01, 0.25),  # equal but for rounding
        ([0.1 + 0.2, 0.7], [0.3, 0.7], 0.0, 1.0),
    ],
)
def test_differences_that_do_not_vary(a: list[float], b: list[float], difference: float, p: float) -> None:
    found = paired_t(a, b)
    assert found.difference == pytest.approx(difference, abs=1e-12)
    assert (found.low, found.high) == (found.difference, found.difference)
    assert (found.t, found.df, found.p, found.sd) == (None, None, p, 0)
    exact = sign_flip(a, b, same_order=True)
    assert found.minimum_p == paired_t(b, a).minimum_p == exact.minimum_p
    assert p == pytest.approx(exact.p)
    assert pairing_gain(a, b) is None


def test_a_spread_just_above_rounding_counts() -> None:
    found = paired_t([0.7613, 0.7721, 0.7504 + 1e-12], [0.7513, 0.7621, 0.7404])
    assert found.df == 2
    assert 0 < found.high - found.low < 1e-11


def test_a_side_that_does_not_vary_has_no_correlation() -> None:
    found = paired_t([1.0, 2.0, 4.0], [3.0, 3.0, 3.0])
    assert (found.correlation, found.df) == (None, 2)


@pytest.mark.parametrize("r", [0.0, 0.9, 0.99])
def test_what_pairing_gains(r: float) -> None:
    rng = make_generator(0, f"gain/{r}")
    a = rng.normal(size=(400, 5))
    b = r * a + math.sqrt(1 - r**2) * rng.normal(size=a.shape)
    gains = [pairing_gain(x, y) or 0 for x, y in zip(a, b, strict=True)]
    expected = stats.t.ppf(0.975, 8) / stats.t.ppf(0.975, 4) / math.sqrt(1 - r)
    assert np.median(gains) == pytest.approx(expected, rel=0.15)
    x, y = a[0], b[0]
    sides, pairs = welch(x, y, 0.9), paired_t(x, y, 0.9)
    ratio = (sides.high - sides.low) / (pairs.high - pairs.low)
    assert pairing_gain(x, y, 0.9) == pytest.approx(ratio)


def test_components_of_pairs_by_hand() -> None:
    rng = make_generator(0, "components")
    a, b, noise = rng.normal(size=(4, 2)), rng.normal(size=(4, 2)), rng.normal(size=(300, 2)) * [1.5, 3.0]
    found = variance_components(sample_of(a, b, noise, (50, 80)), "a", "b", level=0.9, paired=True)
    d = a.mean(1) - b.mean(1)
    parts = [d.var(ddof=1) / 4, noise[:, 0].var(ddof=1) / 4, noise[:, 1].var(ddof=1) / 4]
    df = sum(parts) ** 2 / (parts[0] ** 2 / 3 + parts[1] ** 2 / 49 + parts[2] ** 2 / 79)
    half = stats.t.ppf(0.95, df) * math.sqrt(sum(parts))
    assert (found.low, found.high, found.df) == pytest.approx((d.mean() - half, d.mean() + half, df))
    assert (found.difference, found.seeds, found.items, found.n_a, found.paired) == pytest.approx(
        (d.mean(), parts[0], parts[1] + parts[2], 4, True)
    )


def test_components_without_items_are_the_paired_t() -> None:
    a, b = np.array([[0.70], [0.72], [0.77]]), np.array([[0.69], [0.70], [0.77]])
    found = variance_components(sample_of(a, b, np.zeros((9, 1)), (50,)), "a", "b", paired=True)
    pairs = paired_t(a.ravel(), b.ravel())
    assert (found.low, found.high, found.df, found.p) == pytest.approx(
        (pairs.low, pairs.high, pairs.df, pairs.p)
    )
    same = variance_components(sample_of(a, a, np.zeros((9, 1)), (50,)), "a", "b", paired=True)
    assert (same.low, same.difference, same.high, same.df, same.p) == (0, 0, 0, None, 1)


def test_components_of_pairs_are_narrower_where_seeds_are_shared() -> None:
    rng = make_generator(0, "narrow")
    a = rng.normal(size=(5, 1))
    sample = sample_of(a, a + 0.1 * rng.normal(size=a.shape), 0.05 * rng.normal(size=(200, 1)), (500,))
    pairs, sides = variance_components(sample, "a", "b", paired=True), variance_components(sample, "a", "b")
    assert pairs.items == pytest.approx(sides.items)
    assert pairs.high - pairs.low < (sides.high - sides.low) / 5


FIVE = (1, 2, 3, 4, 5)


def span(first: int, last: int) -> tuple[int, ...]:
    return tuple(range(first, last + 1))


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
    assert choose_design((9,), FIVE, pairs=True, pair_subset=True) == SeedDesign("welch", ((9,), FIVE))
    for pair_subset in (False, True):  # seeds alone make no pairs
        unpaired = choose_design(FIVE, FIVE, pairs=False, pair_subset=pair_subset)
        assert unpaired == SeedDesign("welch", (FIVE, FIVE))


@pytest.mark.parametrize("asked", ["auto", "welch"])
def test_a_side_without_seeds_is_a_fixed_score(asked: RequestedTest) -> None:
    assert choose_design((), FIVE, pairs=True, asked=asked) == SeedDesign("student", ((), FIVE))
    assert choose_design(FIVE, (), pairs=False, asked=asked) == SeedDesign("student", (FIVE, ()))
    assert choose_design((), (), pairs=True, asked=asked).test == "student"


@pytest.mark.parametrize("asked", ["paired", "sign-flip", "permutation"])
def test_only_students_test_takes_a_side_without_seeds(asked: RequestedTest) -> None:
    with pytest.raises(InputError, match=f"{asked} test") as error:
        choose_design(FIVE, (), pairs=False, asked=asked)
    assert error.value.hint == "leave out --test"


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
