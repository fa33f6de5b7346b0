"""Simulations of scores without items, for coverage.py: intervals, decisions, plans, exact tests, rules."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from coverage_rows import (
    ALPHA,
    CHECKED,
    CORRELATIONS,
    DEPTH,
    FEW,
    LEVEL,
    Array,
    Ends,
    Setting,
    Sizes,
    agree,
    ends_of,
    holds,
    rng_of,
    row,
    settings,
    t_ends,
    welch_ends,
)
from scipy import stats

from bench.stats import effect_sizes, outliers
from bench.stats.argument_checks import make_generator
from bench.stats.coverage import CoverageRow
from bench.stats.effect_sizes import almost_stochastic_order
from bench.stats.equivalence import (
    claim_test,
    equivalence_test,
    estimate_from_interval,
    largest_possible_difference,
    predict_run_difference,
)
from bench.stats.seed_pairs import paired_t
from bench.stats.seed_planning import plan_seeds
from bench.stats.seeds import ExactTest, exact_permutation, one_sample, sign_flip, welch
from bench.stats.spread import Spread, spread_of_pairs, spread_of_sides

EQUAL = tuple((n, n) for n in (2, 3, 4, 5, 6, 8, 10))
UNEVEN = ((3, 10), (5, 10))
UNEQUAL = ((2, 5), (2, 10), (3, 5), (3, 10), (5, 10))
DRAWS, CHUNK = 400, 1000


def t_test(a: Array, b: Array, paired: bool) -> Any:
    """The t test of all simulations by scipy: paired, of one sample, or Welch's."""
    if paired:
        return stats.ttest_rel(a, b, axis=1)
    if b.shape[1] == 1:
        return stats.ttest_1samp(a, 0, axis=1)
    return stats.ttest_ind(a, b, axis=1, equal_var=False)


def t_intervals(sizes: Sizes) -> Iterator[CoverageRow]:
    """Welch's, Student's and the paired t interval."""
    spread = (*EQUAL, *UNEQUAL, *((m, n) for n, m in UNEQUAL))
    sides = settings((("normal", (*EQUAL, *UNEQUAL)), ("spread 3:1", spread), ("collapse", FEW)))
    ours: dict[str, tuple[list[Setting], Callable[[Array, Array], Any]]] = {
        "welch": (sides + settings((("normal", FEW),), CORRELATIONS), welch),
        "student": (
            settings((("normal", [(n, 1) for n, _ in EQUAL]), ("collapse", [(n, 1) for n, _ in FEW]))),
            lambda a, b: one_sample(a, float(b[0])),
        ),
        "paired t": (
            settings((("normal", EQUAL), ("spread 3:1", FEW), ("collapse", FEW)), CORRELATIONS),
            paired_t,
        ),
    }
    for method, (cases, tool) in ours.items():
        for case in cases:
            a, b = case.draw(rng_of(method, case), sizes.many)
            if method == "welch":
                ends = welch_ends(a, b)
            else:
                found = t_test(a, b, method == "paired t").confidence_interval(LEVEL)
                ends = (found.low, found.high)
            agree(ends_of(map(tool, a[:CHECKED], b[:CHECKED])), ends, (method, case))
            yield row(method, case, holds(ends, case.true), LEVEL)


def decisions(sizes: Sizes) -> Iterator[CoverageRow]:
    """Equivalence, claims and the largest possible difference where the true one is the margin."""
    margin = 4.0
    for case in settings((("normal", FEW),), (None, 0.9)):
        a, b = case.draw(rng_of("decisions", case), sizes.many)
        a, tool = a + margin, welch if case.r is None else paired_t
        found, d = t_test(a, b, case.r is not None), a.mean(1) - b.mean(1)
        error = d / found.statistic
        upper, lower = (stats.t.cdf((d + sign * margin) / error, found.df) for sign in (-1, 1))
        largest = np.abs(d) + stats.t.ppf(LEVEL, found.df) * error
        equal = np.maximum(upper, 1 - lower) <= ALPHA
        for i, (x, y) in enumerate(zip(a[:CHECKED], b[:CHECKED], strict=True)):
            mine = estimate_from_interval(tool(x, y))
            said, claimed = equivalence_test(mine, margin), claim_test(mine, margin)
            agree([(said.p_upper, said.p_lower)], (upper[i : i + 1], 1 - lower[i : i + 1]), case)
            agree(
                [(claimed.p, largest_possible_difference(mine))],
                (1 - upper[i : i + 1], largest[i : i + 1]),
                case,
            )
            assert (said.verdict == "equal within") == equal[i], case
            assert (claimed.verdict == "supported") == (upper[i] >= LEVEL), case
        yield row("equivalence", case, equal, ALPHA)
        yield row("equivalence, different", case, 2 * np.minimum(1 - upper, lower) <= ALPHA, ALPHA)
        yield row("claim", case, upper >= LEVEL, ALPHA)
        yield row("largest possible", case, margin <= largest, LEVEL)


def further_runs(sizes: Sizes) -> Iterator[CoverageRow]:
    """Where the difference of one further run each lies, to check a published one."""
    for case in settings((("normal", FEW), ("spread 3:1", FEW))):
        rng = rng_of("one run each", case)
        (a, b), (next_a, next_b) = case.draw(rng, sizes.many), replace(case, n=(1, 2)).draw(rng, sizes.many)
        parts = np.stack([side.var(1, ddof=1) * (1 + 1 / side.shape[1]) for side in (a, b)], axis=1)
        ends = t_ends(a.mean(1) - b.mean(1), parts, np.array(case.n) - 1.0)
        agree(map(predict_run_difference, a[:CHECKED], b[:CHECKED]), ends, case)
        yield row("one run each", case, holds(ends, next_a[:, 0] - next_b[:, 0]), LEVEL)


def plans(sizes: Sizes) -> Iterator[CoverageRow]:
    """Whether the interval of the number of seeds holds the true one, for a difference of one SD."""
    for case in settings((("normal", FEW), ("spread 3:1", FEW)), (None, 0.9)):
        a, b = case.draw(rng_of("plan", case), sizes.many)
        if case.r is None:
            parts = np.stack([side.var(1, ddof=1) for side in (a, b)], axis=1)
            variance, truth = parts.sum(1), case.wide**2 + 1
            df = variance**2 / (parts**2 / (np.array(case.n) - 1)).sum(1)
            true, pilot = Spread("sides", case.wide, 1.0), spread_of_sides
        else:
            variance, truth = (a - b).var(1, ddof=1), case.wide**2 + 1 - 2 * case.r * case.wide
            df = np.full(len(a), case.n[0] - 1.0)
            true, pilot = Spread("pairs", float(np.sqrt(truth))), spread_of_pairs
        held = holds((stats.chi2.ppf(0.05, df), stats.chi2.ppf(0.95, df)), df * variance / truth)
        needed, off = plan_seeds(1.0, true).seeds or 0, 2 if case.r is None else 0
        for x, y, inside in zip(a[:2], b[:2], held, strict=False):
            found = plan_seeds(1.0, pilot(x, y))  # of sides, the pilot's ratio of spreads is not the true one
            near = (found.low or 0) - off <= needed <= (found.high or 10_000) + off
            assert near or not inside, (case, found, needed)
        yield row("plan", case, held, 0.9)


def exact_tests(sizes: Sizes) -> Iterator[CoverageRow]:
    """Size at p <= .05 of the permutation and the sign-flip test; scipy must give the same p."""
    splits = settings((("normal", (*EQUAL[1:], *UNEQUAL[2:])), ("spread 3:1", (*FEW[2:], *UNEVEN))))
    flips = settings((("normal", ((6, 6), (8, 8), (10, 10))),), (0.9,))
    tests: list[tuple[str, list[Setting], Callable[[Array, Array], ExactTest], Any]] = [
        ("permutation", splits, exact_permutation, "independent"),
        ("sign flip", flips, partial(sign_flip, same_order=True), "samples"),
    ]
    for method, cases, tool, kind in tests:
        for case in cases:
            a, b = case.draw(rng_of(method, case), sizes.many)
            p = np.array([tool(x, y).p for x, y in zip(a, b, strict=True)])
            if max(case.n) <= 6:
                theirs = stats.permutation_test(
                    (a[0], b[0]),
                    lambda x, y, axis: np.mean(x, axis) - np.mean(y, axis),
                    permutation_type=kind,
                    n_resamples=10**5,
                )
                assert abs(theirs.pvalue - p[0]) < 1e-9, (method, case)
            yield row(method, case, p <= ALPHA, ALPHA)


def iqm_ends(a: Array, b: Array, chosen_a: Any, chosen_b: Any, paired: bool) -> tuple[Ends, Ends]:
    """Both intervals of the difference in IQM: with the bootstrap's standard error, and rliable's.

    Args:
        a: (simulations, seeds).
        b: The same.
        chosen_a: (simulations, draws, seeds) places in a.
        chosen_b: The same of b.
        paired: Whether the draws take pairs.
    """

    def drawn(side: Array, chosen: Any) -> Array:
        taken = np.take_along_axis(side[:, None], chosen, axis=2)
        return np.asarray(stats.trim_mean(taken, 0.25, axis=2))

    of_a, of_b = drawn(a, chosen_a), drawn(b, chosen_b)
    groups = [(of_a - of_b, a)] if paired else [(of_a, a), (of_b, b)]
    n = np.array([side.shape[1] for _, side in groups])
    parts = np.stack([of.var(1, ddof=1) for of, _ in groups], axis=1) * n / (n - 1)
    low, high = np.quantile(of_a - of_b, [ALPHA / 2, 1 - ALPHA / 2], axis=1)
    difference = np.asarray(stats.trim_mean(a, 0.25, axis=1) - stats.trim_mean(b, 0.25, axis=1))
    return t_ends(difference, parts, n - 1), (low, high)


def iqms(sizes: Sizes) -> Iterator[CoverageRow]:
    """Intervals of the difference in IQM; the true one is that of the distributions."""
    million, _ = Setting("collapse", (1_000_000, 1)).draw(make_generator(0, "coverage/iqm"), 1)
    of_collapse = float(stats.trim_mean(million[0], 0.25))
    sides = settings((("normal", (*FEW, *UNEQUAL)), ("spread 3:1", FEW), ("collapse", FEW)))
    for case in sides + settings((("normal", FEW), ("collapse", FEW)), (0.9, 0.99)):
        rng, paired = rng_of("iqm", case), case.r is not None
        a, b = case.draw(rng, sizes.many)
        true, held, outside = of_collapse if case.design == "collapse" else 0.0, [], []
        for start in range(0, len(a), CHUNK):
            x, y = a[start : start + CHUNK], b[start : start + CHUNK]
            chosen = [rng.integers(0, n, (len(x), DRAWS, n)) for n in case.n]
            ends, percentile = iqm_ends(x, y, chosen[0], chosen[0] if paired else chosen[1], paired)
            held.append(holds(ends, true))
            outside.append(holds(percentile, true))
        for i in range(2):
            one, other = (make_generator(i, f"coverage/iqm/{case}") for _ in range(2))
            mine = effect_sizes.iqm_difference(a[i], b[i], one, paired=paired, draws=DRAWS)
            picked = [other.integers(0, n, (1, DRAWS, n)) for n in case.n[: 1 if paired else 2]]
            theirs = iqm_ends(a[i : i + 1], b[i : i + 1], picked[0], picked[-1], paired)
            agree([(mine.low, mine.high)], theirs[0], case)
            agree([mine.percentile], theirs[1], case)
        yield row("iqm", case, np.concatenate(held), LEVEL)
        yield row("iqm, percentile", case, np.concatenate(outside), LEVEL)


def shares(sizes: Sizes) -> Iterator[CoverageRow]:
    """Interval of P(A > B) at true shares of 1/2 and 0.92; the ends depend on the share alone."""
    sides = settings((("normal", (*EQUAL, *UNEQUAL)), ("spread 3:1", FEW)))
    for gap, more in ((0.0, ""), (2.0, ", far ahead")):
        for case in sides + settings((("normal", FEW),), (0.9,)):
            paired = case.r is not None
            a, b = case.draw(rng_of(f"superiority/{gap}", case), sizes.many)
            spread = np.sqrt(case.wide**2 + 1 - 2 * (case.r or 0) * case.wide)
            a, true = a + gap * spread / np.sqrt(2), float(stats.norm.cdf(gap / np.sqrt(2)))
            sign = np.sign(a - b) if paired else np.sign(a[:, :, None] - b[:, None]).reshape(len(a), -1)
            share = (sign.mean(1) + 1) / 2
            _, first, which = np.unique(np.round(share, 9), return_index=True, return_inverse=True)
            found = [effect_sizes.superiority_interval(a[i], b[i], paired=paired) for i in first]
            assert np.allclose([one.share for one in found], share[first])
            low, high = np.array(ends_of(found))[which].T
            method = "superiority, paired" if paired else "superiority"
            yield row(method, replace(case, design=case.design + more), holds((low, high), true), LEVEL)


def rules(sizes: Sizes) -> Iterator[CoverageRow]:
    """Naming of outlying seeds, by chance and of collapsed ones; almost stochastic order of equals."""
    for design, method in (("normal", "outlying"), ("collapse", "outlying, found")):
        for n in (4, 5, 6, 8, 10, 20):
            case = Setting(design, (n, 1))
            a, _ = case.draw(rng_of(method, case), sizes.many)
            fallen = a < -DEPTH / 2
            a, fallen = (a, fallen) if design == "normal" else (a[fallen.any(1)], fallen[fallen.any(1)])
            away = np.abs(a - np.median(a, axis=1, keepdims=True))
            far = away > outliers.outlier_limit(n) * outliers.MAD_SCALE * np.median(
                away, axis=1, keepdims=True
            )
            for x, named in zip(a[:CHECKED], far, strict=False):
                assert outliers.find_outliers(x) == tuple(np.flatnonzero(named)), case
            if design == "normal":
                yield row(method, case, far.any(1), ALPHA)
            else:
                yield row(method, case, (far & fallen).any(1), None)
    for case in settings((("normal", FEW[2:]),)):
        rng = rng_of("aso", case)
        a, b = case.draw(rng, sizes.few)
        yield row(
            "aso",
            case,
            [almost_stochastic_order(x, y, rng, draws=DRAWS) < 0.5 for x, y in zip(a, b, strict=True)],
            None,
        )


PARTS = (t_intervals, decisions, further_runs, plans, exact_tests, iqms, shares, rules)
