"""What every statistic refuses, with the facts of its error."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from bench.stats.argument_checks import make_generator
from bench.stats.classification_statistics import average_precision, mcnemar, weighted_f1
from bench.stats.correction import Family, benjamini_hochberg, holm
from bench.stats.correlations import partial_spearman, rank_correlation, steiger, williams
from bench.stats.coverage import find_coverage
from bench.stats.difference_test import pair_test
from bench.stats.effect_sizes import (
    almost_stochastic_order,
    cohen_d,
    interquartile_mean,
    iqm_difference,
    performance_profile,
    probability_of_superiority,
    superiority_interval,
)
from bench.stats.equivalence import (
    DifferenceEstimate,
    claim_test,
    equivalence_test,
    estimate_from_interval,
    largest_possible_difference,
    predict_run_difference,
)
from bench.stats.item_statistics import SuiteDraws, draw_suite, item_difference, spearman_interval
from bench.stats.method_ranking import PairTest, rank_methods
from bench.stats.outliers import outlier_limit
from bench.stats.resampling import draw_counts, mean_statistic, spearman_draws
from bench.stats.seed_pairs import paired_t, pairing_gain
from bench.stats.seed_planning import detectable_difference, plan_seeds, welch_power
from bench.stats.seeds import (
    exact_permutation,
    judge_p_value,
    one_sample,
    seed_difference,
    sign_flip,
    welch,
)
from bench.stats.spread import Spread, spread_of_correlated, spread_of_pairs, spread_of_sides
from bench.stats.variance_components import hierarchical_bootstrap, variance_components
from tests.support.messages import missing_facts

NAN, INF = math.nan, math.inf
RNG, FOUR, FIVE = make_generator(0, "refused"), [1, 2, 3, 4], [1.0, 2.0, 3.0, 4.0, 5.0]
ESTIMATE, PAIRS = DifferenceEstimate(0.0, 1.0, 3), Spread("pairs", 1.0)
AB, BOTH = {"a": 1.0, "b": 0.0}, (True, True)
FIVE_RUNS, THREE_RUNS = np.ones((5, 2)), np.ones((3, 2))


def sample(n_a: int, n_b: int) -> SuiteDraws:
    observed = np.ones((n_a + n_b, 1))
    rows = {"a": slice(0, n_a), "b": slice(n_a, n_a + n_b)}
    return SuiteDraws(rows, ("t",), (50,), observed, np.repeat(observed[None], 9, axis=0))


Refusal = tuple[Callable[[], object], tuple[object, ...]]
ITEMS: list[Refusal] = [
    (lambda: spearman_draws([1, 2, 3], [1, 2, 3], RNG), ("3 pairs", "at least 4")),
    (lambda: spearman_draws(FIVE, FOUR, RNG), ("(5,)", "(4,)", "(runs, pairs)")),
    *((lambda s=s: spearman_draws(np.zeros(s), FOUR, RNG), (s, "(4,)")) for s in ((2, 2, 4), (0, 4))),
    (lambda: spearman_draws(FOUR, [1, 2, NAN, 4], RNG), ("gold", "not finite")),
    (lambda: spearman_draws([1, 2, 3, INF], FOUR, RNG), ("predictions", "not finite")),
    (lambda: spearman_draws(FOUR, FOUR, RNG, 99), ("99 draws", "at least 100")),
    *(
        (lambda g=g: spearman_draws(FOUR, g, RNG, 100), ("gold scores are equal",))
        for g in ([1] * 4, [1, 1, 1, 2])
    ),
    (lambda: spearman_draws([FOUR * 5, [1] * 20], FOUR * 5, RNG, 100), ("predictions of a run are equal",)),
    (lambda: list(draw_counts(1_000_001, RNG, 100)), (1_000_001, "at most 1000000")),
    (lambda: list(draw_counts(0, RNG, 100)), ("0 pairs", "expected")),
    (lambda: mean_statistic([[NAN, 1.0]]), ("(1, 2)", "finite")),
    (lambda: mean_statistic([1.0, 2.0])(np.zeros((1, 2), dtype=np.int64)), ("no item",)),
    (lambda: draw_suite({}, {"t": FOUR}, RNG), ("0 methods", "1 tasks")),
    (lambda: draw_suite({"m": {}}, {}, RNG), ("1 methods", "0 tasks")),
    (lambda: draw_suite({"m": {"u": FOUR}}, {"t": FOUR}, RNG), ("m has tasks", "['u']", "['t']")),
    (lambda: draw_suite({"m": {"t": [1, 2]}}, {"t": FOUR}, RNG), ("m, t: ", "(2,)", "(4,)")),
    (
        lambda: draw_suite({"m": {"t": np.eye(2, 4), "u": FOUR}}, {"t": FOUR, "u": FOUR}, RNG),
        ("m has [1, 2] runs", "same runs"),
    ),
    (lambda: sample(2, 2).select("other"), ("'other'", "a, b")),
    *((lambda v=v: item_difference(v, 0.5, 30), (np.shape(v), "(draws,)")) for v in ([[1.0, 2.0]], [])),
    (lambda: item_difference([1.0], 0.5, 30, 95), ("level=95",)),
    *(
        (lambda n=n, h=h: spearman_interval(0.4, n, held=h), (f"n={n}", f"held={h}"))
        for n, h in ((4, 1), (10, -1))
    ),
    (lambda: mcnemar([1, 0], [1]), ("(2,)", "(1,)", "expected")),
    (lambda: weighted_f1([1, 0], [1, 0], [[1, 1, 1]]), ("(1, 3)", "expected")),
    (lambda: average_precision([], [], [[]]), ("(0,)", "expected")),
    (lambda: average_precision(FOUR, [0] * 4, [[1] * 4]), ("no positive", "in a draw")),
    (lambda: williams(0.4, 0.5, 0.1, 3), ("3 pairs", "at least 4")),
    (lambda: williams(0.4, 1.5, 0.1, 10), ("r12=0.4", "r13=1.5", "r23=0.1", "[-1, 1]")),
    (lambda: williams(0.4, NAN, 0.1, 10), ("r13=nan", "[-1, 1]")),
    *((lambda t=t: t(0.9, -0.9, 0.9, 10), ("r13=-0.9", "impossible")) for t in (williams, steiger)),
    (lambda: williams(1.0, -1.0, -1.0, 10), ("undefined",)),
    (lambda: steiger(1.0, 0.5, 0.5, 10), ("r12=1.0", "(-1, 1)")),
    (lambda: partial_spearman(FOUR, [1, 3, 2, 4], [10, 20, 30, 40]), ("x has", "order of z")),
    (lambda: partial_spearman([1, 3, 2, 4, 5], [5, 4, 3, 2, 1], FIVE), ("y has", "order of z")),
    (lambda: partial_spearman([FOUR], [1, 3, 2, 4], [2, 1, 3, 4]), ("(1, 4)", "(n,)")),
    (lambda: partial_spearman([1] * 4, [1, 3, 2, 4], FOUR), ("equal",)),
    (lambda: partial_spearman([1, 2, 3], [1, 3, 2], [1, 2, 3]), ("3 pairs", "at least 4")),
    (lambda: partial_spearman(FOUR, [1, 3, 2, 4], [1, 2, 3]), ("(4,)", "(3,)")),
    (lambda: partial_spearman([1, 2, 3, NAN], [1, 3, 2, 4], FOUR), ("not finite",)),
    (lambda: rank_correlation(FOUR, FIVE), ("4 and 5",)),
    (lambda: rank_correlation([1, 2, 3, NAN], FOUR), ("finite",)),
]
SEEDS: list[Refusal] = [
    (lambda: welch([1.0], [1.0, 2.0]), ("a has 1 seed", "at least 2")),
    (lambda: welch([1.0, 2.0], [1.0, NAN]), ("b:", "not finite")),
    (lambda: welch([[1.0, 2.0]], [1.0, 2.0]), ("a has shape (1, 2)", "(runs,)")),
    *((lambda v=v: welch([1, 2], [1, 2], v), (f"level={v}",)) for v in (0.0, 1.0, 95.0)),
    *((lambda v=v: one_sample([1, 2], 1, v), (f"level={v}",)) for v in (0.0, 1.0, 95.0)),
    (lambda: exact_permutation([], [1.0]), ("a has 0 seed", "at least 1")),
    (lambda: exact_permutation([1.0] * 20, [1.0] * 21), ("41 seeds", "at most 40", "welch")),
    (lambda: sign_flip([1.0] * 6, [2.0] * 7, same_order=True), ("6 against 7", "pairs")),
    (lambda: sign_flip([1.0] * 41, [2.0] * 41, same_order=True), ("41 seeds", "at most 40")),
    (lambda: sign_flip([1.0] * 6, [2.0] * 6, same_order=False), ("data order", "welch")),
    (lambda: judge_p_value(0.01, 0.1), ("p=0.01", "minimum_p=0.1")),
    (lambda: cohen_d([1.0, 1.0], [2.0, 2.0]), ("no score varies",)),
    (lambda: seed_difference([1.5], [1.5]), ("a has 1 seed", "at least 2")),
    (lambda: probability_of_superiority([1.0], [INF]), ("b:", "not finite")),
    *(
        (lambda f=f, a=a, b=b, v=v: f(a, b, v), (*facts,))
        for f in (paired_t, pairing_gain)
        for a, b, v, *facts in (
            ([1, 2, 3], [1, 2], 0.95, "3 against 2", "pairs"),
            ([1], [2], 0.95, "a has 1 seed", "at least 2"),
            ([1, 2], [2], 0.95, "b has 1 seed", "at least 2"),
            ([1, NAN], [1, 2], 0.95, "a:", "not finite"),
            ([[1, 2]], [1, 2], 0.95, "(1, 2)", "(runs,)"),
            ([1, 2], [1, 3], 1.0, "level=1.0"),
        )
    ),
    (lambda: variance_components(sample(2, 3), "a", "b", paired=True), ("2 against 3", "pairs")),
    (lambda: variance_components(sample(2, 3), "a", "c"), ("'c'", "a, b")),
    (lambda: variance_components(sample(2, 1), "a", "b"), ("b has 1 run", "at least 2")),
    (
        lambda: variance_components(sample(2, 2), "a", "b", deterministic_b=True),
        ("b has 2 run", "expected 1"),
    ),
    *((lambda v=v: variance_components(sample(2, 2), "a", "b", level=v), (v,)) for v in (0, 95)),
    (lambda: hierarchical_bootstrap(sample(2, 1), "a", "b", RNG), ("2 against 1", "at least 2")),
    *((lambda v=v: hierarchical_bootstrap(sample(2, 2), "a", "b", RNG, v), (v,)) for v in (0, 95)),
    (lambda: rank_methods(AB, {}), ("a against b", "every pair")),
    (lambda: rank_methods(AB, {("a", "b"): PairTest(1.0, 1.5, "Welch")}), ("a against b", "p=1.5", "[0, 1]")),
    (lambda: rank_methods({"a": NAN}, {}), ("scores", "not finite")),
    (lambda: rank_methods({}, {}, alpha=1.0), ("level=1.0",)),
    (lambda: pair_test([1, 2], [1], deterministic=BOTH), ("a has 2 runs", "expected 1")),
    (lambda: pair_test([1, 2], [1, 2, 3], paired=True), ("2 against 3", "pairs")),
    (lambda: iqm_difference(FIVE_RUNS, FIVE_RUNS[:, :1], RNG), ("(5, 2)", "(5, 1)", "same tasks")),
    (lambda: iqm_difference(FIVE_RUNS, THREE_RUNS, RNG, paired=True), ("(5, 2)", "(3, 2)", "same runs")),
    (lambda: iqm_difference([1], [2], RNG), ("one run", "at least two")),
    (lambda: iqm_difference(FIVE_RUNS, THREE_RUNS, RNG, draws=99), ("99 draws", "at least 100")),
    (lambda: iqm_difference([1, INF], [1, 2], RNG), ("a:", "not finite")),
    (lambda: iqm_difference([[[1, 2]]], THREE_RUNS, RNG), ("(1, 1, 2)", "(runs, tasks)")),
    (lambda: superiority_interval([1], [2], paired=True), ("one run", "at least two")),
    (lambda: superiority_interval([1, 2, 3], [1, 2], paired=True), ("3 against 2", "pairs")),
    (lambda: outlier_limit(3), ("3 seeds", "at least 4")),
    (lambda: almost_stochastic_order(FOUR, FIVE, RNG), ("a has 4 seed", "at least 5")),
    (lambda: almost_stochastic_order(FIVE, FIVE, RNG, draws=99), ("99 draws",)),
    (lambda: almost_stochastic_order(FIVE, FIVE, RNG, level=1), ("level=1",)),
    *(
        (lambda v=v: interquartile_mean(v), (np.shape(v), "(runs, tasks)"))
        for v in (np.ones(2), np.ones((1, 0)))
    ),
    (lambda: performance_profile([[1.0, NAN]], [0.5]), ("scores", "not finite")),
    (lambda: performance_profile([[1.0, 2.0]], [INF]), ("thresholds", "not finite")),
]
ANSWERS: list[Refusal] = [
    *((lambda m=m: equivalence_test(ESTIMATE, m), (f"margin={m}", "above 0")) for m in (0.0, -1.0, INF, NAN)),
    *((lambda v=v: equivalence_test(ESTIMATE, 1.0, v), (f"level={v}",)) for v in (0.5, 1.0)),
    *((lambda v=v: claim_test(ESTIMATE, 1.0, v), (f"level={v}",)) for v in (0.5, 1.0)),
    *((lambda v=v: largest_possible_difference(ESTIMATE, v), ("(0.5, 1)",)) for v in (0.5, 1.0)),
    (lambda: claim_test(ESTIMATE, NAN), ("size=nan", "finite")),
    (lambda: estimate_from_interval(welch(FIVE, FIVE), 1), ("level=1", "(0, 1)")),
    (lambda: DifferenceEstimate(0.0, -1.0, 3), ("difference=0.0", "error=-1.0", "df=3")),
    (lambda: predict_run_difference([1], [2]), ("one run", "at least two")),
    *((lambda d=d: plan_seeds(d, PAIRS), (f"detect={d}", "other than 0")) for d in (0.0, NAN, INF)),
    (lambda: plan_seeds(1.0, PAIRS, power=1.5), ("level=1.5", "(0, 1)")),
    (lambda: detectable_difference(PAIRS, 5, power=0.05), ("power=0.05", "(0.05, 1)")),
    (lambda: detectable_difference(PAIRS, 1), ("n=1", "at least 2 pairs")),
    (lambda: welch_power(1, 1, 1, 1, 5), ("1 against 5", "at least 2")),
    (lambda: welch_power(1, 0, 1, 5, 5), ("sd_a=0", "sd_b=1", "positive")),
    (lambda: Spread("pairs", 0.0), ("[0.0]", "df=None", "positive")),
    (lambda: Spread("sides", 1.0, 1.0, df=0), ("[1.0, 1.0]", "df=0", "positive")),
    (lambda: Spread("sides", 1.0), ("1 standard deviation", "sides")),
    (lambda: Spread("pairs", 1.0, 1.0), ("2 standard deviation", "pairs")),
    (lambda: spread_of_correlated(1.0, 1.0), ("correlation=1.0", "[-1, 1)")),
    (lambda: spread_of_pairs([1, 2, 3], [0, 1, 2]), ("differences", "don't vary")),
    (lambda: spread_of_sides([1, 1], [2]), ("no score varies",)),
    (lambda: find_coverage("wald", 5, 5), ("'wald'", "design None", "target None")),
    (lambda: find_coverage("welch", 5, 5, design="odd"), ("'welch'", "design odd")),
    (lambda: find_coverage("welch", 0, 5), ("0 against 5", "at least 1")),
]


def bad_families(correct: Callable[..., Family]) -> list[Refusal]:
    return [
        (lambda: correct({}, "all"), ("'all'", "0 comparisons")),
        (lambda: correct({"a": 0.1}, " "), ("expected a name",)),
        *((lambda p=p: correct({"a": p}, "all"), (f"a: p={p}", "[0, 1]")) for p in (NAN, 1.5)),
        (lambda: correct({"a": 0.1}, "all", {"a": 0.2}), ("p=0.1", "minimum_p=0.2")),
        (lambda: correct({"a": 0.1}, "all", {"b": 0.2}), ("minimum p", "['b']", "comparisons")),
    ]


REFUSALS = [*ITEMS, *SEEDS, *ANSWERS, *bad_families(holm), *bad_families(benjamini_hochberg)]


@pytest.mark.parametrize(("call", "facts"), REFUSALS)
def test_impossible_arguments_are_refused(call: Callable[[], object], facts: tuple[object, ...]) -> None:
    with pytest.raises(ValueError) as error:  # noqa: PT011 - the facts say which one
        call()
    assert not missing_facts(error.value, *facts)
