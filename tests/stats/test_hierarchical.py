from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from bench.stats.argument_checks import FloatArray, make_generator
from bench.stats.equivalence import equivalence_test, estimate_from_interval
from bench.stats.item_statistics import SuiteDraws, draw_suite
from bench.stats.variance_components import hierarchical_bootstrap, variance_components


def constant_items(a: FloatArray, b: FloatArray, draws: int = 4000, pairs: int = 1000) -> SuiteDraws:
    """A sample in which items add nothing: every draw is the observed (runs, tasks) table."""
    table = np.concatenate([a, b])
    rows = {"a": slice(0, len(a)), "b": slice(len(a), len(table))}
    tasks = tuple(f"t{i}" for i in range(table.shape[1]))
    return SuiteDraws(rows, tasks, (pairs,) * len(tasks), table, np.repeat(table[None], draws, axis=0))


def constant_seeds(draws: FloatArray, runs: int = 3) -> SuiteDraws:
    """A sample of (draws, tasks) differences in which seeds add nothing."""
    shape = (len(draws), runs, draws.shape[1])
    zeros, a = np.zeros(shape), np.broadcast_to(draws[:, None], shape)
    rows = {"a": slice(0, runs), "b": slice(runs, 2 * runs)}
    tasks = tuple(f"t{i}" for i in range(draws.shape[1]))
    observed = np.zeros((2 * runs, draws.shape[1]))
    return SuiteDraws(rows, tasks, (101,) * len(tasks), observed, np.concatenate([a, zeros], axis=1))


def test_seed_rows_are_resampled_whole() -> None:
    # the tasks cancel within a seed, so the average varies only if tasks had seeds of their own
    a = np.array([[0.8, 0.6], [0.6, 0.8], [0.7, 0.7]])
    found = hierarchical_bootstrap(constant_items(a, a[:2] - 0.1), "a", "b", make_generator(0, "rows"))
    assert (found.difference, found.low, found.high) == pytest.approx((0.1, 0.1, 0.1))
    assert (found.superiority, found.superiority_low, found.superiority_high) == (1, 1, 1)
    assert (found.n_a, found.n_b, found.draws) == (3, 2, 4000)


def test_seeds_alone_give_the_bootstrap_of_two_means() -> None:
    a, b = np.array([[0.70], [0.72], [0.77]]), np.array([[0.70], [0.71]])
    found = hierarchical_bootstrap(constant_items(a, b, 40_000), "a", "b", make_generator(0, "seeds"))
    rng = make_generator(1, "seeds")
    means = [rng.choice(side.ravel(), (40_000, len(side))).mean(1) for side in (a, b)]
    assert (found.low, found.high) == pytest.approx(
        np.quantile(means[0] - means[1], [0.025, 0.975]), abs=0.002
    )
    assert found.superiority == pytest.approx(4.5 / 6)  # one tie of six pairs
    assert 0 <= found.superiority_low < found.superiority < found.superiority_high <= 1


def test_items_alone_give_the_items_interval() -> None:
    draws = make_generator(0, "items").normal(size=(500, 2))
    found = hierarchical_bootstrap(constant_seeds(draws), "a", "b", make_generator(1, "items"), level=0.9)
    assert (found.low, found.high) == pytest.approx(np.quantile(draws.mean(1), [0.05, 0.95]))


def test_components_of_seeds_alone_are_welchs_interval() -> None:
    a, b = np.array([[0.70], [0.72], [0.77]]), np.array([[0.70], [0.71], [0.73]])
    found = variance_components(constant_items(a, b), "a", "b")
    test = stats.ttest_ind(a.ravel(), b.ravel(), equal_var=False)
    low, high = test.confidence_interval(0.95)
    assert (found.low, found.high, found.df) == pytest.approx((low, high, test.df))
    assert (found.seeds, found.items) == pytest.approx((0.0013 / 3 + 0.0007 / 9, 0), abs=1e-12)
    assert (found.t, found.p) == pytest.approx((test.statistic, test.pvalue))


def test_components_add_up_by_hand() -> None:
    rng = make_generator(0, "components")
    runs = [rng.normal(size=(n, 2)) for n in (4, 3)]
    noise = 0.3 * rng.normal(size=(300, 7, 2)) * [1.0, 2.0]
    rows = {"a": slice(0, 4), "b": slice(4, 7)}
    observed = np.concatenate(runs)
    found = variance_components(
        SuiteDraws(rows, ("s", "t"), (50, 80), observed, observed + noise), "a", "b", level=0.9
    )
    seeds = [part.mean(1).var(ddof=1) / len(part) for part in runs]
    items = [(noise[:, :4, t].mean(1) - noise[:, 4:, t].mean(1)).var(ddof=1) / 4 for t in (0, 1)]
    total = sum(seeds) + sum(items)
    df = total**2 / (seeds[0] ** 2 / 3 + seeds[1] ** 2 / 2 + items[0] ** 2 / 49 + items[1] ** 2 / 79)
    half = stats.t.ppf(0.95, df) * math.sqrt(total)
    difference = runs[0].mean() - runs[1].mean()
    assert (found.seeds, found.items) == pytest.approx((sum(seeds), sum(items)))
    assert found.p == pytest.approx(2 * stats.t.sf(abs(difference) / math.sqrt(total), df))
    assert (found.df, found.low, found.high) == pytest.approx((df, difference - half, difference + half))


def test_a_deterministic_method_adds_no_seed_variance() -> None:
    a, b = np.array([[0.70], [0.72], [0.77]]), np.array([[0.5]])
    found = variance_components(constant_items(a, b), "a", "b", deterministic_b=True)
    low, high = stats.ttest_1samp(a.ravel(), 0.5).confidence_interval(0.95)
    assert (found.low, found.high, found.df) == pytest.approx((low - 0.5, high - 0.5, 2))
    both = variance_components(constant_items(b, b), "a", "b", deterministic_a=True, deterministic_b=True)
    assert (both.difference, both.low, both.high, both.df) == (0, 0, 0, None)


def test_what_holds_for_seeds_and_items_holds_for_seeds() -> None:
    """Two pairs: t(1) of the seeds alone is 12.7, t(2) with as much again from many items is 4.2."""
    a, b = np.array([[0.72], [0.74]]), np.array([[0.70], [0.73]])
    part = 0.01**2 / 2 / 2  # s_d^2 / n
    half = stats.t.ppf(0.975, 1) * math.sqrt(part)
    seeds_p = 2 * stats.t.sf(0.015 / math.sqrt(part), 1)
    noise = make_generator(0, "wider").normal(size=400)
    noise *= math.sqrt(part) / noise.std(ddof=1)
    for ratio in (0.4, 60.0):
        sample = constant_items(a, b, 400, 1800)
        sample.draws[:, :2, 0] += math.sqrt(ratio) * noise[:, None]
        found = variance_components(sample, "a", "b", paired=True)
        assert (found.seeds, found.items) == pytest.approx((part, ratio * part))
        total = part * (1 + ratio)
        df = total**2 / (part**2 + (ratio * part) ** 2 / 1799)
        own = stats.t.ppf(0.975, df) * math.sqrt(total)
        assert (own < half) == (ratio < 1)
        assert (found.low, found.high) == pytest.approx((0.015 - max(half, own), 0.015 + max(half, own)))
        assert found.p == pytest.approx(max(seeds_p, 2 * stats.t.sf(0.015 / math.sqrt(total), df)))


def test_at_every_level_the_wider_of_both_holds() -> None:
    """Of two pairs the seeds alone are wider at 95%, seeds and items at 90%."""
    sample = constant_items(np.array([[0.701], [0.712]]), np.array([[0.70], [0.71]]), 400, 1800)
    noise = make_generator(0, "levels").normal(size=400)
    sample.draws[:, :2, 0] += 0.003 * noise[:, None] / noise.std(ddof=1)
    found = variance_components(sample, "a", "b", paired=True)
    made = estimate_from_interval(found, also=found.also)
    assert (found.df, len(found.also)) == (1, 1)
    for level in (0.5, 0.8, 0.9, 0.95, 0.999):
        at = variance_components(sample, "a", "b", paired=True, level=level)
        assert made.half((1 + level) / 2) == pytest.approx(at.high - at.difference)
    assert equivalence_test(made, 0.005).verdict == "not shown"
    assert equivalence_test(replace(made, also=()), 0.005).verdict == "equal within"  # of the seeds alone
    assert made.below(0.005) == pytest.approx(max(made.below(0.005), replace(made, also=()).below(0.005)))


def test_seeds_that_do_not_vary_have_no_p_below_an_exact_test() -> None:
    sample = constant_seeds(5 + 0.1 * make_generator(0, "still").normal(size=(400, 2)))
    sample.observed[:3] += 5
    found = variance_components(sample, "a", "b")
    assert (found.seeds, found.p, found.minimum_p) == (0, 0.1, 0.1)
    sample.observed[:3], sample.observed[3:] = 0.8665641, 0.5841851  # variances that rounding makes above 0
    assert sample.observed[:3].mean(1).var(ddof=1) > 0
    found = variance_components(sample, "a", "b")
    assert (found.seeds, found.p, found.minimum_p) == (0, 0.1, 0.1)


def test_components_cover_seeds_and_items_together() -> None:
    rng, simulations, held = make_generator(0, "coverage"), 300, 0
    for _ in range(simulations):
        latent, shared = rng.normal(size=(2, 100))
        rows = {}
        for name in ("a", "b"):
            r = 0.7 + 0.04 * rng.normal(size=(4, 1))
            noise = 0.8 * shared + 0.4 * rng.normal(size=100) + 0.4 * rng.normal(size=(4, 100))
            rows[name] = {"t": r * latent + np.sqrt(1 - r**2) * noise}
        sample = draw_suite(rows, {"t": latent}, rng, 100)
        found = variance_components(sample, "a", "b")
        held += found.low <= 0 <= found.high
    assert stats.binom.interval(0.999, simulations, 0.95)[0] <= held < simulations
