"""Simulations of the gate over unchanged code, for coverage.py: how often does it fail by chance?

A gate has ten cells of n seeds on both sides, all independent draws of one method, with the same seed numbers
and no tolerance: the worst case of bench.gate.drops. "collapse": each run falls by 6 SD with a chance of 10%,
on both sides. "t3": scores of Student's t with three degrees of freedom.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
from coverage_rows import ALPHA, CHANCE, Array, Bools, Setting, Sizes, rng_of, row
from scipy import stats

from bench.stats.coverage import CoverageRow

CELLS, SEEDS, FALL = 10, (2, 3, 5, 8, 10), 6.0
DESIGNS = ("normal", "t3", "collapse")
TARGET = "unchanged code"


def draw(rng: np.random.Generator, design: str, shape: tuple[int, ...]) -> Array:
    """Scores of one side."""
    if design == "t3":
        return rng.standard_t(3, shape)
    scores = rng.standard_normal(shape)
    return scores - FALL * (rng.random(shape) < CHANCE) if design == "collapse" else scores


def fails(then: Array, now: Array) -> Bools:
    """Which gates of (simulations, cells, seeds) scores fail, by the interval or limit of a cell's drop."""
    then, now = (np.concatenate([side, side.mean(1, keepdims=True)], axis=1) for side in (then, now))
    cells, seeds = then.shape[1:]
    quantile = stats.t.ppf(1 - ALPHA / cells / 2, seeds - 1)
    differences = then - now
    drop = differences.mean(2)
    by_interval = drop > quantile * differences.std(2, ddof=1) / np.sqrt(seeds)
    by_limit = drop > quantile * then.std(2, ddof=1) * np.sqrt(2 / seeds)
    failed: Bools = (by_interval | by_limit).any(1)
    return failed


def gates(sizes: Sizes) -> Iterator[CoverageRow]:
    """Shares of gates over unchanged code that fail."""
    for design, seeds in product(DESIGNS, SEEDS):
        setting = Setting(design, (seeds, seeds))
        rng, shape = rng_of("gate", setting), (sizes.many, CELLS, seeds)
        yield row("gate", setting, fails(draw(rng, design, shape), draw(rng, design, shape)), ALPHA, TARGET)


PARTS = (gates,)
