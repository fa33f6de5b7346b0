"""What the simulations of coverage.py share: how scores are drawn, and how a row of the table is made."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from bench.stats.argument_checks import make_generator
from bench.stats.coverage import CoverageRow

LEVEL, ALPHA = 0.95, 0.05
FEW = tuple((n, n) for n in (2, 3, 5, 10))
CORRELATIONS = (0.0, 0.5, 0.9, 0.99)
DEPTH, CHANCE = 8.0, 0.1  # of a collapse
SEEDS, THESE, BOTH = "further seeds", "further seeds, these items", "further seeds, further items"
CHECKED = 8

Array = NDArray[np.float64]
Bools = NDArray[np.bool_]
Ends = tuple[Array, Array]


@dataclass(frozen=True)
class Sizes:
    """Numbers of simulations: of scores alone, and of scores with items."""

    many: int
    few: int


@dataclass(frozen=True)
class Setting:
    """How scores are drawn.

    Args:
        design: "normal", "spread 3:1", "collapse", or the name of a design with items.
        n: Seeds of a and of b; of b 1 for a fixed score, the true mean.
        r: Correlation of the pairs; None for independent sides.
    """

    design: str
    n: tuple[int, int]
    r: float | None = None

    def draw(self, rng: np.random.Generator, simulations: int) -> tuple[Array, Array]:
        """Scores (simulations, seeds) of both sides."""
        a, b = (rng.normal(size=(simulations, size)) for size in self.n)
        if self.n[1] == 1:
            b = np.zeros_like(b)
        if self.r is not None:
            b = self.r * a + np.sqrt(1 - self.r**2) * b
        if self.design == "collapse":
            a = a - DEPTH * (rng.random(a.shape) < CHANCE)
        return self.wide * a, b

    @property
    def wide(self) -> float:
        """The standard deviation of a's scores; b's is 1."""
        return 3.0 if self.design.startswith("spread") else 1.0

    @property
    def true(self) -> float:
        """The true difference in means."""
        return -DEPTH * CHANCE if self.design == "collapse" else 0.0


def settings(
    designs: Iterable[tuple[str, Iterable[tuple[int, int]]]], r: Iterable[float | None] = (None,)
) -> list[Setting]:
    """All settings of designs with their numbers of seeds and of correlations."""
    correlations = tuple(r)
    return [Setting(design, n, each) for design, sizes in designs for each in correlations for n in sizes]


def rng_of(method: str, setting: Setting) -> np.random.Generator:
    """A stream of its own for a row."""
    return make_generator(0, f"coverage/{method}/{setting}")


def graded(latent: Array) -> Array:
    """Gold scores 0 to 5 in steps of 0.2, as most of STS has them."""
    return np.round(np.clip(2.5 + 1.25 * latent, 0, 5) * 5) / 5


def row(
    method: str, setting: Setting, found: ArrayLike, nominal: float | None, target: str = SEEDS
) -> CoverageRow:
    """A row with the 99% interval of its share."""
    held = np.asarray(found, dtype=bool)
    count, total = int(held.sum()), len(held)
    ends = stats.binomtest(count, total).proportion_ci(0.99)
    low, high = round(float(ends.low), 4), round(float(ends.high), 4)
    share = round(count / total, 5)
    return CoverageRow(
        method, setting.design, *setting.n, setting.r, target, nominal, share, total, low, high
    )


def holds(ends: Ends, true: Array | float) -> Bools:
    """Which intervals hold the true value."""
    return np.asarray((ends[0] <= true) & (true <= ends[1]))


def agree(ours: Iterable[tuple[float, float]], theirs: Ends, where: object) -> None:
    """Raise AssertionError unless the tool's own pairs of numbers are the first of the simulation's."""
    mine = np.array(list(ours))
    other = np.stack(theirs, axis=1)[: len(mine)]
    assert len(mine), f"{where}: nothing to compare"
    assert np.allclose(mine, other, rtol=1e-9, atol=1e-9), f"{where}: {mine} against {other}"


def ends_of(tool: Iterable[Any]) -> list[tuple[float, float]]:
    """The ends of what the tool's own functions return."""
    return [(found.low, found.high) for found in tool]


def welch_ends(a: Array, b: Array) -> Ends:
    """Welch's intervals of (simulations, seeds) sides; those of few seeds against many with their freedom."""
    parts = np.stack([side.var(1, ddof=1) / side.shape[1] for side in (a, b)], axis=1)
    few, many = sorted((a.shape[1], b.shape[1]))
    if few < 5 and many >= 2 * few:
        return t_ends(a.mean(1) - b.mean(1), parts.sum(1, keepdims=True), np.array([few - 1.0]))
    return t_ends(a.mean(1) - b.mean(1), parts, np.array([a.shape[1], b.shape[1]]) - 1.0)


def t_ends(difference: Array, parts: Array, freedom: Array) -> Ends:
    """Intervals by Student's t with Satterthwaite's degrees of freedom.

    Args:
        difference: (simulations,).
        parts: (simulations, parts) of the difference's variance.
        freedom: (parts,) degrees of freedom.
    """
    total = parts.sum(1)
    half = stats.t.ppf((1 + LEVEL) / 2, total**2 / (parts**2 / freedom).sum(1)) * np.sqrt(total)
    return difference - half, difference + half
