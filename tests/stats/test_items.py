from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from scipy.stats import binomtest
from sklearn.metrics import average_precision_score, f1_score  # type: ignore[import-untyped]

from bench.stats import resampling
from bench.stats.argument_checks import FloatArray, make_generator
from bench.stats.classification_statistics import average_precision, mcnemar, weighted_f1
from bench.stats.correlations import CorrelationTest, partial_spearman, rank_correlation, steiger, williams
from bench.stats.item_statistics import draw_suite, item_difference, paired_bootstrap, spearman_interval
from bench.stats.resampling import spearman_draws, spearman_rows
from tests.support.item_draws import mean_draws


def graded(latent: FloatArray) -> FloatArray:
    """Scores of nine grades, so with many ties."""
    return np.round(np.clip(2 + latent, 0, 4) * 2) / 2


def systems(
    rng: np.random.Generator, pairs: int, r: float = 0.75
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Gold and two systems of equal expected correlation whose noise is partly shared."""
    latent, shared, one, other = rng.normal(size=(4, pairs))
    rows = [r * latent + np.sqrt(1 - r**2) * (0.8 * shared + 0.6 * own) for own in (one, other)]
    return latent, *rows


def with_ties(pairs: int) -> NDArray[np.float32]:
    """Rows with no tie, one, a few, many, and almost only ties."""
    rng = make_generator(0, f"rows {pairs}")
    plain, one, few, many, most = rng.normal(size=(5, pairs))
    one[1] = one[0]
    few[: pairs // 10] = few[0]
    most[: pairs // 2 + 2] = most[0]
    return np.stack([plain, one, few, np.round(many), most]).astype(np.float32)


@pytest.mark.parametrize("pairs", [12, 61, 400])
def test_every_draw_is_scipys_correlation_of_the_same_pairs(pairs: int) -> None:
    rows, gold = with_ties(pairs), graded(make_generator(0, "gold").normal(size=pairs))
    found = spearman_draws(rows, gold, make_generator(1, "draws"), 150)
    chosen = make_generator(1, "draws").integers(0, pairs, (150, pairs))
    expected = [[stats.spearmanr(row[draw], gold[draw]).statistic for row in rows] for draw in chosen]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


def test_the_distribution_is_that_of_scipys_paired_bootstrap() -> None:
    gold, a, b = systems(make_generator(0, "scipy"), 40)

    def difference(gold: FloatArray, a: FloatArray, b: FloatArray) -> float:
        return float(stats.spearmanr(a, gold).statistic - stats.spearmanr(b, gold).statistic)

    reference = stats.bootstrap(
        (gold, a, b),
        difference,
        paired=True,
        vectorized=False,
        n_resamples=200,
        method="percentile",
        rng=make_generator(1, "draws"),
    )
    sample = draw_suite({"a": {"t": a}, "b": {"t": b}}, {"t": gold}, make_generator(1, "draws"), 200)
    ours = sample.draws[:, 0, 0] - sample.draws[:, 1, 0]
    np.testing.assert_allclose(ours, reference.bootstrap_distribution, rtol=0, atol=1e-12)
    found = paired_bootstrap(sample, "a", "b")["t"]
    interval = reference.confidence_interval
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high), abs=1e-12)
    assert found.difference == pytest.approx(difference(gold, a, b))


def test_draws_do_not_depend_on_how_many_are_held_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, gold = with_ties(61), graded(make_generator(0, "gold").normal(size=61))
    whole = spearman_draws(rows, gold, make_generator(1, "draws"), 101)
    for chunk in (1, 61 * 2, 61 * 50):
        monkeypatch.setattr(resampling, "_CHUNK", chunk)
        np.testing.assert_array_equal(spearman_draws(rows, gold, make_generator(1, "draws"), 101), whole)
        np.testing.assert_array_equal(
            spearman_draws(rows, gold, make_generator(1, "draws"), 100), whole[:100]
        )


def test_rows_are_scipys_correlations() -> None:
    rows, gold = with_ties(61), graded(make_generator(0, "gold").normal(size=61))
    expected = [stats.spearmanr(row, gold).statistic for row in rows]
    np.testing.assert_allclose(spearman_rows(rows, gold), expected, rtol=0, atol=1e-12)
    assert spearman_rows(gold, gold) == 1
    assert spearman_rows(-gold, gold) == -1


def test_large_ranks_stay_exact() -> None:
    gold = np.arange(300_000.0)
    swapped = gold.copy()
    swapped[[0, -1]] = swapped[[-1, 0]]
    n = len(gold)
    assert spearman_rows(swapped, gold)[0] == pytest.approx(1 - 6 * 2 * (n - 1) ** 2 / (n**3 - n), abs=1e-15)


def test_a_suite_holds_every_method_run_and_task() -> None:
    rng = make_generator(0, "suite")
    gold = {"one": rng.normal(size=20), "two": rng.normal(size=30)}
    several = {task: rng.normal(size=(3, len(scores))) for task, scores in gold.items()}
    single = {task: rng.normal(size=len(scores)) for task, scores in reversed(gold.items())}
    sample = draw_suite({"several": several, "single": single}, gold, make_generator(1, "draws"), 100)
    assert (sample.tasks, sample.pairs) == (("one", "two"), (20, 30))
    draws = make_generator(1, "draws")
    for i, (task, scores) in enumerate(gold.items()):
        rows = np.vstack([several[task], single[task]])
        expected = spearman_draws(rows, scores, draws, 100)
        for name, part in (("several", slice(0, 3)), ("single", slice(3, 4))):
            observed, drawn = sample.select(name)
            np.testing.assert_array_equal(observed[:, i], spearman_rows(rows[part], scores))
            np.testing.assert_array_equal(drawn[:, :, i], expected[:, part])


def test_paired_bootstrap_averages_runs_and_tasks_in_each_draw() -> None:
    rng = make_generator(0, "average")
    gold = {"one": rng.normal(size=30), "two": rng.normal(size=50)}
    a = {task: scores + rng.normal(size=(2, len(scores))) for task, scores in gold.items()}
    b = {task: scores + 2 * rng.normal(size=len(scores)) for task, scores in gold.items()}
    sample = draw_suite({"a": a, "b": b}, gold, rng, 200)
    found = paired_bootstrap(sample, "a", "b", level=0.9)
    expected = (sample.draws[:, 0] + sample.draws[:, 1]) / 2 - sample.draws[:, 2]
    for i, task in enumerate(gold):
        assert (found[task].low, found[task].high) == pytest.approx(np.quantile(expected[:, i], [0.05, 0.95]))
        assert found[task].n == len(gold[task])
    average = expected.mean(1)
    assert (found["avg"].low, found["avg"].high) == pytest.approx(np.quantile(average, [0.05, 0.95]))
    assert found["avg"].difference == pytest.approx(found["one"].difference / 2 + found["two"].difference / 2)
    assert (found["avg"].n, found["avg"].draws, found["avg"].minimum_p) == (80, 200, 2 / 201)
    turned = paired_bootstrap(sample, "b", "a", level=0.9)["avg"]
    assert (turned.low, turned.high, turned.p) == pytest.approx(
        (-found["avg"].high, -found["avg"].low, found["avg"].p)
    )


@pytest.mark.parametrize(
    ("values", "p"),
    [([1.0] * 9, 2 / 10), ([-1.0] * 9, 2 / 10), ([1.0] * 7 + [-1.0, 0.0], 6 / 10), ([0.0] * 9, 1.0)],
)
def test_bootstrap_p_counts_the_smaller_side(values: list[float], p: float) -> None:
    assert item_difference(values, 0.5, 30).p == pytest.approx(p)


def test_paired_bootstrap_holds_its_level() -> None:
    rng, simulations = make_generator(0, "bootstrap level"), 400
    false = 0
    for _ in range(simulations):
        latent, a, b = systems(rng, 200)
        sample = draw_suite({"a": {"t": a}, "b": {"t": b}}, {"t": graded(latent)}, rng, 300)
        false += paired_bootstrap(sample, "a", "b")["t"].p <= 0.05
    low, high = stats.binom.interval(0.999, simulations, 0.05)
    assert low <= false <= high


@pytest.mark.parametrize(
    ("test", "r", "n", "statistic", "p"),
    [
        (williams, (0.4, 0.5, 0.1), 103, -0.891, 0.375),  # psych's r.test
        (williams, (0.3, 0.4, 0.5), 100, -1.0767, 0.2843),  # DEPCOR: Silver, Hittner and May 2006
        (steiger, (0.4, 0.5, 0.1), 103, -0.8887185, 0.374),  # cocor, of Steiger 1980's case A
        (steiger, (0.3, 0.4, 0.5), 100, -1.0718, 0.2838),  # DEPCOR
    ],
)
def test_published_examples(
    test: Callable[..., CorrelationTest], r: Sequence[float], n: int, statistic: float, p: float
) -> None:
    found, turned = test(*r, n), test(r[1], r[0], r[2], n)
    assert found.statistic == pytest.approx(statistic, abs=6e-4 if n == 103 and test is williams else 6e-5)
    assert found.p == pytest.approx(p, abs=6e-4)
    assert found.df == (n - 3 if test is williams else None)
    assert (turned.statistic, turned.p) == pytest.approx((-found.statistic, found.p))
    assert found.difference == pytest.approx(-0.1)


def test_williams_has_n_minus_3_degrees_of_freedom() -> None:
    found = williams(0.8, 0.1, 0.3, 6)
    assert found.p == pytest.approx(2 * stats.t.sf(found.statistic, 3))


@pytest.mark.parametrize("test", [williams, steiger])
def test_equal_systems_do_not_differ(test: Callable[..., CorrelationTest]) -> None:
    for r in ((0.7, 0.7, 1.0), (0.7, 0.7, 0.9), (0.0, 0.0, 0.0)):
        assert (test(*r, 50).statistic, test(*r, 50).p) == (0, 1)


@pytest.mark.parametrize("test", [williams, steiger])
def test_tests_of_dependent_correlations_hold_their_level(test: Callable[..., CorrelationTest]) -> None:
    rng, simulations, pairs = make_generator(0, "dependent level"), 2000, 100
    false = 0
    for _ in range(simulations):
        r = np.asarray(np.corrcoef(systems(rng, pairs)))
        false += test(r[0, 1], r[0, 2], r[1, 2], pairs).p <= 0.05
    low, high = stats.binom.interval(0.999, simulations, 0.05)
    assert low <= false <= high


def rank_residuals(x: FloatArray, z: FloatArray) -> FloatArray:
    """What a linear regression of the ranks of x on those of z leaves."""
    of_x, of_z = stats.rankdata(x), stats.rankdata(z)
    fit = stats.linregress(of_z, of_x)
    return np.asarray(of_x - fit.intercept - fit.slope * of_z)


@pytest.mark.parametrize("pairs", [5, 12, 60])
def test_a_partial_correlation_is_that_of_the_residuals_of_rank_regressions(pairs: int) -> None:
    rng = make_generator(0, f"partial {pairs}")
    for _ in range(20):
        z, *own = rng.normal(size=(3, pairs))
        x, y = (np.round(2 * z + 2 * noise) for noise in own)  # with ties
        expected = stats.pearsonr(rank_residuals(x, z), rank_residuals(y, z)).statistic
        assert partial_spearman(x, y, z) == pytest.approx(expected, abs=1e-12)
        assert partial_spearman(y, x, -z) == pytest.approx(expected, abs=1e-12)


def test_a_partial_correlation_at_its_limits() -> None:
    x = [1, 2, 3, 4, 5, 6, 7, 8]
    y, apart = [2, 1, 4, 3, 6, 5, 8, 7], [3, 7, 2, 6, 6, 2, 7, 3]
    assert spearman_rows(x, apart)[0] == 0
    r_xy, r_yz = spearman_rows(x, y)[0], spearman_rows(y, apart)[0]
    assert partial_spearman(x, y, apart) == pytest.approx(r_xy / np.sqrt(1 - r_yz**2))  # z says nothing of x
    assert partial_spearman(x, x, apart) == 1
    assert partial_spearman(x, np.negative(x), y) == -1


def test_an_interval_with_variables_held_fixed_is_that_of_fewer_pairs() -> None:
    assert spearman_interval(0.4, 20, held=1) == spearman_interval(0.4, 19)
    assert spearman_interval(0.4, 20, 0.9, held=2) == spearman_interval(0.4, 18, 0.9)


def test_rank_correlation_is_scipys_also_with_ties() -> None:
    rng = np.random.default_rng(1)
    for n in (4, 7, 30):
        x, y = rng.integers(0, 5, (2, n)).tolist()
        x[:2], y[:2] = [0, 1], [0, 1]
        found = rank_correlation(x, y, 0.9)
        assert found.rho == pytest.approx(stats.spearmanr(x, y).statistic)
        assert found.tau == pytest.approx(stats.kendalltau(x, y).statistic)
        assert (found.low, found.high) == spearman_interval(found.rho or 0.0, n, 0.9)
        assert (found.n, found.level) == (n, 0.9)


@pytest.mark.parametrize(
    ("x", "y", "rho"),
    [
        ((1, 2, 3), (1, 2, 3), None),
        ((1, 1, 1, 1), (1, 2, 3, 4), None),
        ((1, 2, 3, 4), (5, 5, 5, 5), None),
        ((), (), None),
        ((1, 2, 3, 4, 5), (1, 2, 3, 4, 5), 1.0),  # 1 - 2e-16 in floating point
        ((1, 2, 3, 4, 5), (5, 4, 3, 2, 1), -1.0),
        ((1, 1, 3, 4), (2, 2, 5, 7), 1.0),
    ],
)
def test_rank_correlations_without_interval(
    x: tuple[float, ...], y: tuple[float, ...], rho: float | None
) -> None:
    found = rank_correlation(x, y)
    assert (found.rho, found.low, found.high) == (rho, None, None)
    assert found.tau == (None if rho is None else pytest.approx(rho))


RNG = np.random.default_rng(2)
COUNTS = np.array([[1] * 40, [2, 0] * 20, RNG.multinomial(40, [1 / 40] * 40)])


def repeated(values: np.ndarray, counts: np.ndarray) -> np.ndarray:
    return np.repeat(values, counts)


@pytest.mark.parametrize("classes", [2, 7, 40])
def test_weighted_f1_is_scikit_learns_in_every_draw(classes: int) -> None:
    gold = RNG.permutation(np.arange(40) % classes)
    said = np.where(RNG.random(40) < 0.6, gold, RNG.integers(-1, classes, 40))
    found = weighted_f1(said, gold, COUNTS)
    for value, counts in zip(found, COUNTS, strict=True):
        expected = f1_score(
            repeated(gold, counts), repeated(said, counts), average="weighted", zero_division=0
        )
        assert value == pytest.approx(expected, abs=1e-14)


@pytest.mark.parametrize("digits", [1, 8])  # many ties, and none
def test_average_precision_is_scikit_learns_in_every_draw(digits: int) -> None:
    labels = RNG.integers(0, 2, 40)
    scores = (labels + RNG.normal(size=40)).round(digits)
    found = average_precision(scores, labels, COUNTS)
    for value, counts in zip(found, COUNTS, strict=True):
        expected = average_precision_score(repeated(labels, counts), repeated(scores, counts))
        assert value == pytest.approx(expected, abs=1e-14)


@pytest.mark.parametrize(("only_first", "only_second"), [(6, 1), (1, 6), (9, 9), (0, 0), (0, 30)])
def test_mcnemar_is_the_exact_binomial_test(only_first: int, only_second: int) -> None:
    first = np.array([1] * only_first + [0] * only_second + [1] * 5 + [0] * 3)
    second = np.array([0] * only_first + [1] * only_second + [1] * 5 + [0] * 3)
    found = mcnemar(first, second)
    n = only_first + only_second
    assert (found.only_first, found.only_second, found.n) == (only_first, only_second, n + 8)
    assert found.p == pytest.approx(binomtest(only_first, n).pvalue if n else 1)
    assert found.minimum_p == pytest.approx(min(1, binomtest(0, n).pvalue if n else 1))


def test_means_are_drawn_as_by_hand_and_in_any_company() -> None:
    values = np.vstack([RNG.integers(0, 2, 31), RNG.random(31)])
    chosen = make_generator(1, "draws").integers(0, 31, (150, 31))
    together = mean_draws(values, make_generator(1, "draws"), 150)
    np.testing.assert_allclose(together, values[:, chosen].mean(2).T, rtol=0, atol=1e-14)
    for row, alone in zip(values, together.T, strict=True):
        np.testing.assert_array_equal(mean_draws(row, make_generator(1, "draws"), 150)[:, 0], alone)
