"""Simulations of a family against one baseline, for coverage.py: do all of its intervals hold at once?

Each of 5, 20 or 46 rows and the baseline have the same seeds. "spread 4:1": every other row has four times
the baseline's SD. "log-normal 4:1": the same with log-normal scores. "collapse": each run of each row, not of
the baseline, falls by 6 SD with a chance of 10%. "collapsing baseline": the baseline's runs do. "copies":
rows differ from one another by a tenth of what they differ from the baseline.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
from coverage_rows import ALPHA, CHANCE, Array, Setting, Sizes, holds, rng_of, row, t_ends, welch_ends
from scipy import stats

from bench.stats.coverage import CoverageRow
from bench.stats.single_step import common_correlation, correct_family

ROWS = (5, 20, 46)
SEEDS = (2, 3, 5, 8, 10)
UNPAIRED = ((2, 2), (3, 3), (5, 5), (10, 10), (3, 5), (5, 3), (5, 10), (10, 5), (2, 10))
DESIGNS = ("normal", "spread 4:1", "log-normal 4:1", "collapse", "collapsing baseline", "copies")
FALL = 6.0
TARGET = "further seeds, all rows at once"


def draw(rng: np.random.Generator, design: str, seeds: int, rows: int) -> tuple[Array, Array]:
    """Differences (seeds, rows) from the baseline, and their true values (rows,)."""
    scores, baseline = rng.standard_normal((seeds, rows)), rng.standard_normal((seeds, 1))
    true = np.zeros(rows)
    if design == "log-normal 4:1":
        mean = np.exp(0.5)
        scores, baseline = np.exp(scores) - mean, np.exp(baseline) - mean
    if design.endswith("4:1"):
        scores[:, ::2] *= 4
    if design == "copies":
        scores = 0.1 * scores + rng.standard_normal((seeds, 1))
    if design == "collapse":
        scores -= FALL * (rng.random(scores.shape) < CHANCE)
        true -= FALL * CHANCE
    if design == "collapsing baseline":
        baseline -= FALL * (rng.random(baseline.shape) < CHANCE)
        true += FALL * CHANCE
    return scores - baseline, true


def judge_family(differences: Array, true: Array) -> tuple[bool, bool]:
    """Whether every simultaneous interval holds its row's true value, and whether none lies above 0."""
    seeds, rows = differences.shape
    level = correct_family([seeds] * rows, common_correlation(differences)).level(ALPHA)
    half = stats.t.ppf((1 + level) / 2, seeds - 1) * differences.std(0, ddof=1) / np.sqrt(seeds)
    means = differences.mean(0)
    return bool(np.all(np.abs(means - true) <= half)), not np.any(means - half > 0)


def family(sizes: Sizes) -> Iterator[CoverageRow]:
    """Shares of simulations in which all intervals against the baseline hold, and in which it is bold.

    It should be bold where no row is truly better.
    """
    for design, rows, seeds in product(DESIGNS, ROWS, SEEDS):
        setting = Setting(f"{design}, {rows} rows", (seeds, seeds))
        rng = rng_of("max-t", setting)
        judged = [judge_family(*draw(rng, design, seeds, rows)) for _ in range(sizes.few)]
        held, bold = zip(*judged, strict=True)
        yield row("max-t", setting, held, 1 - ALPHA, TARGET)
        if design != "collapsing baseline":
            yield row("best", setting, bold, 1 - ALPHA, TARGET)


def unpaired(sizes: Sizes) -> Iterator[CoverageRow]:
    """Welch's intervals of a family by Bonferroni, rows of n_a seeds against a baseline of n_b.

    They have the degrees of freedom of the fewer seeds.
    """
    for design, rows, (few, base) in product(("normal", "spread 4:1"), ROWS, UNPAIRED):
        setting = Setting(f"{design}, {rows} rows", (few, base))
        rng, width = rng_of("bonferroni", setting), 4 if design == "spread 4:1" else 1
        a = width * rng.standard_normal((sizes.few, rows, few))
        b = rng.standard_normal((sizes.few, 1, base))
        total = a.var(2, ddof=1) / few + b.var(2, ddof=1) / base
        half = stats.t.ppf(1 - ALPHA / rows / 2, min(few, base) - 1) * np.sqrt(total)
        means = a.mean(2) - b.mean(2)
        yield row("bonferroni", setting, (np.abs(means) <= half).all(1), 1 - ALPHA, TARGET)
        yield row("best, unpaired", setting, ~(means - half > 0).any(1), 1 - ALPHA, TARGET)


def skewed(sizes: Sizes) -> Iterator[CoverageRow]:
    """Welch's and the paired t interval of log-normal scores, of which a's have four times b's spread."""
    for seeds in SEEDS:
        setting = Setting("log-normal 4:1", (seeds, seeds))
        rng, shape = rng_of("skewed", setting), (sizes.many, seeds)
        a, b = 4 * np.exp(rng.standard_normal(shape)), np.exp(rng.standard_normal(shape))
        difference = a - b
        true, freedom = 3 * np.exp(0.5), np.array([seeds - 1.0])
        paired = t_ends(difference.mean(1), difference.var(1, ddof=1, keepdims=True) / seeds, freedom)
        yield row("welch", setting, holds(welch_ends(a, b), true), 1 - ALPHA)
        yield row("paired t", setting, holds(paired, true), 1 - ALPHA)


PARTS = (family, unpaired, skewed)
