"""Simulations of rank correlations over methods, for coverage.py: plain, and with a variable held fixed.

The variables are normal, and each method is a draw of its own. The numbers that are asked for are Spearman's:
a normal pair of Pearson's r has 6 / pi asin(r / 2). x and y each correlate 0.5 with the z that is held fixed,
or 0.9. Where x or y has the order of z nothing is left of it, and a correlation of 1 or -1 has no interval;
such draws aren't counted, as nothing is printed of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
from coverage_rows import CHECKED, LEVEL, Array, Ends, Setting, Sizes, agree, holds, rng_of, row
from scipy import stats

from bench.stats.correlations import EQUAL, partial_spearman
from bench.stats.coverage import CoverageRow
from bench.stats.item_statistics import spearman_interval
from bench.stats.resampling import spearman_rows

METHODS = (5, 10, 20, 40)
TRUE = (0.0, 0.6, 0.9)
DESIGNS = (
    ("rank correlation", "normal", None),
    ("partial rank correlation", "normal, z 0.5", 0.5),
    ("partial rank correlation", "normal, z 0.9", 0.9),
)
"""Method, design, and the true correlation of x and of y with what is held fixed; None for nothing."""
TARGET = "further methods"


def draw(rng: np.random.Generator, rho: float, with_z: float, size: tuple[int, int]) -> tuple[Array, ...]:
    """x, y and z, (simulations, methods) each; rho is the true correlation of x and y with z held fixed."""
    spearman = np.eye(3)
    spearman[0, 1] = spearman[1, 0] = rho * (1 - with_z**2) + with_z**2
    spearman[2, :2] = spearman[:2, 2] = with_z
    root = np.linalg.cholesky(2 * np.sin(np.pi / 6 * spearman))  # Pearson's
    drawn = rng.normal(size=(*size, 3)) @ root.T
    return drawn[..., 0], drawn[..., 1], drawn[..., 2]


def spearman(x: Array, y: Array) -> Array:
    """Spearman's correlation in every simulation."""
    a, b = (stats.zscore(stats.rankdata(side, axis=1), axis=1) for side in (x, y))
    return np.asarray((a * b).mean(axis=1))


def ends(r: Array, n: int, held: int) -> Ends:
    """Bonett and Wright's interval."""
    half = stats.norm.ppf((1 + LEVEL) / 2) * np.sqrt((1 + r**2 / 2) / (n - held - 3))
    return np.tanh(np.arctanh(r) - half), np.tanh(np.arctanh(r) + half)


def over_methods(sizes: Sizes) -> Iterator[CoverageRow]:
    """Intervals of a rank correlation over methods, and of a partial one."""
    for name, design, with_z in DESIGNS:
        for rho, n in product(TRUE, METHODS):
            setting, held = Setting(design, (n, n), rho), int(with_z is not None)
            x, y, z = draw(rng_of(name, setting), rho, with_z or 0.0, (sizes.many, n))
            r = spearman(x, y)
            if held:
                r_xz, r_yz = spearman(x, z), spearman(y, z)
                left = (1 - r_xz**2) * (1 - r_yz**2)
                r = np.where(left > EQUAL, (r - r_xz * r_yz) / np.sqrt(np.maximum(left, EQUAL)), 1.0)
            printed = np.abs(r) < 1 - EQUAL
            found = ends(r[printed], n, held)
            first = zip(x[printed][:CHECKED], y[printed][:CHECKED], z[printed][:CHECKED], strict=True)
            ours = [partial_spearman(*one) if held else spearman_rows(*one[:2])[0] for one in first]
            agree((spearman_interval(float(own), n, LEVEL, held=held) for own in ours), found, setting)
            yield row(name, setting, holds(found, rho), LEVEL, TARGET)


PARTS = (over_methods,)
