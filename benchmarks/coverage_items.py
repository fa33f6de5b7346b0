"""Simulations of seeds and items together, and of items alone, for coverage.py.

One simulation draws ten runs of a method and ten of another, the other once independent and once for every
correlation with the first; the rows of fewer seeds take the first of them. All see the same draws of items.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from claim import PAIRS
from coverage_rows import (
    ALPHA,
    BOTH,
    CHECKED,
    CORRELATIONS,
    FEW,
    LEVEL,
    THESE,
    Array,
    Ends,
    Setting,
    Sizes,
    agree,
    ends_of,
    graded,
    holds,
    row,
    t_ends,
    welch_ends,
)
from scipy import stats

from bench.stats.argument_checks import make_generator
from bench.stats.classification_statistics import mcnemar
from bench.stats.correlations import steiger, williams
from bench.stats.coverage import CoverageRow
from bench.stats.item_statistics import SuiteDraws, draw_suite, paired_bootstrap, spearman_interval
from bench.stats.resampling import spearman_rows
from bench.stats.variance_components import hierarchical_bootstrap, variance_components

ITEMS = (950,)
SEVEN = tuple(size // 10 for size in PAIRS.values())
MOST, DRAWS, FURTHER = 10, 200, 16
CLOSE = 0.9  # above, what further seeds give on these items isn't known well enough from 32 runs
AS_WRONG = -0.84  # a fifth of predictions lie below and count as wrong, for McNemar's test


@dataclass(frozen=True)
class Seeds:
    """What seeds decide of some runs on one task: (runs,) of the correlation, (runs, items) of the noise."""

    own: Array
    noise: Array

    def like(self, r: float, other: Seeds) -> Seeds:
        """Runs that correlate by r with these, the rest as in others."""
        rest = np.sqrt(1 - r**2)
        return Seeds(r * self.own + rest * other.own, r * self.noise + rest * other.noise)


@dataclass(frozen=True)
class World:
    """Methods of equal expectation on some tasks.

    Args:
        name: The design.
        sd: Over seeds, of the correlation 0.75 of predictions and latent gold.
        correlations: Of b's runs with a's.
        tasks: Their numbers of items.
        further: Seeds, each with its opposite, for the true difference on these items; 0 to leave it out.
    """

    name: str
    sd: float
    correlations: tuple[float, ...] = CORRELATIONS
    tasks: tuple[int, ...] = ITEMS
    further: int = FURTHER

    def draw(self, rng: np.random.Generator) -> tuple[SuiteDraws, tuple[float, float]]:
        """A sample with methods a, "b 0" to "b 0.99" and fixed, and a - b and a - fixed on these items."""
        predictions: dict[str, dict[str, Array]] = {}
        gold, true = {}, np.zeros(2)
        common = {name: rng.normal(size=MOST) for name in ("a", "b", "further")}
        for number, size in enumerate(self.tasks):
            task = f"t{number}"
            latent, shared, of_a, of_b = rng.normal(size=(4, size))
            gold[task] = graded(latent)

            def runs(seeds: Seeds, of: Array, latent: Array = latent, shared: Array = shared) -> Array:
                r = (0.75 + self.sd * seeds.own)[:, None]
                both = np.sqrt(0.6) * shared + np.sqrt(0.2) * of + np.sqrt(0.2) * seeds.noise
                return np.asarray(r * latent + np.sqrt(1 - r**2) * both)

            a, b = (
                Seeds(
                    np.sqrt(0.8) * common[side] + np.sqrt(0.2) * rng.normal(size=MOST),
                    rng.normal(size=(MOST, size)),
                )
                for side in "ab"
            )
            alone = Seeds(np.zeros(1), rng.normal(size=(1, size)))
            drawn = {"a": runs(a, of_a), "fixed": runs(alone, of_b)}
            drawn |= {f"b {r:g}": runs(a.like(r, b), of_b) for r in self.correlations}
            for name, found in drawn.items():
                predictions.setdefault(name, {})[task] = found
            if self.further:  # runs and their opposites: what is odd in a seed's effect cancels
                own, noise = rng.normal(size=self.further), rng.normal(size=(self.further, size))
                many = Seeds(np.concatenate([own, -own]), np.concatenate([noise, -noise]))
                over_a, over_b = (spearman_rows(runs(many, of), gold[task]).mean() for of in (of_a, of_b))
                fixed = spearman_rows(drawn["fixed"], gold[task])[0]
                true += np.array([over_a - over_b, over_a - fixed]) / len(self.tasks)
        return draw_suite(predictions, gold, rng, DRAWS), (float(true[0]), float(true[1]))


@dataclass
class Case:
    """One setting: what its simulations found, and the sample of the first few for the tool's functions."""

    setting: Setting
    b: str
    fixed: bool = False
    scores: list[tuple[Array, Array]] = field(default_factory=list)
    items: list[Array] = field(default_factory=list)
    percentile: list[tuple[float, float]] = field(default_factory=list)
    hierarchical: list[tuple[float, float]] = field(default_factory=list)
    true: list[float] = field(default_factory=list)
    samples: list[SuiteDraws] = field(default_factory=list)

    def add(self, sample: SuiteDraws, true: tuple[float, float], rng: np.random.Generator) -> None:
        """Take the setting's seeds of a simulation."""
        first, second = sample.rows["a"].start, sample.rows[self.b].start
        rows = {
            side: slice(start, start + n)
            for side, start, n in zip("ab", (first, second), self.setting.n, strict=True)
        }
        own = replace(sample, rows=rows)
        (seen_a, draws_a), (seen_b, draws_b) = own.select("a"), own.select("b")
        differences = draws_a.mean(1) - draws_b.mean(1)
        low, high = np.quantile(differences.mean(1), [ALPHA / 2, 1 - ALPHA / 2])
        self.scores.append((seen_a.mean(1), seen_b.mean(1)))
        self.items.append(differences.var(axis=0, ddof=1) / len(sample.tasks) ** 2)
        self.percentile.append((float(low), float(high)))
        if self.setting.r is None and not self.fixed:
            self.hierarchical += ends_of([hierarchical_bootstrap(own, "a", "b", rng)])
        self.true.append(true[self.fixed])
        if len(self.samples) < CHECKED:
            self.samples.append(own)

    def intervals(self) -> dict[str, Ends]:
        """All intervals of all simulations, by formula; the tool's own agree on the first."""
        a, b = (np.array([pair[side] for pair in self.scores]) for side in (0, 1))
        items, (n_a, n_b) = np.array(self.items), self.setting.n
        per_task = np.array(self.samples[0].pairs) - 1.0
        d, paired = a.mean(1) - b.mean(1), self.setting.r is not None
        of_seeds = [(a.var(1, ddof=1) / n_a, n_a - 1.0)]
        if not self.fixed:
            of_seeds.append((b.var(1, ddof=1) / n_b, n_b - 1.0))
            if min(n_a, n_b) < 5 and max(n_a, n_b) >= 2 * min(n_a, n_b):
                of_seeds = [(of_seeds[0][0] + of_seeds[1][0], min(n_a, n_b) - 1.0)]
        found = {"components": self._components(d, of_seeds, items, per_task)}
        agree(
            ends_of(variance_components(x, "a", "b", deterministic_b=self.fixed) for x in self.samples),
            found["components"],
            self.setting,
        )
        if paired:
            of_pairs = [((a - b).var(1, ddof=1) / n_a, n_a - 1.0)]
            found["components, paired"] = self._components(d, of_pairs, items, per_task)
            ours = ends_of(variance_components(x, "a", "b", paired=True) for x in self.samples)
            agree(ours, found["components, paired"], self.setting)
            found["paired t"] = _of_test(stats.ttest_rel(a, b, axis=1))
        elif self.fixed:
            found["student"] = _of_test(stats.ttest_1samp(a - b, 0, axis=1))
        else:
            found["welch"] = welch_ends(a, b)
            found["hierarchical"] = _ends(self.hierarchical)
        found["item bootstrap"] = _ends(self.percentile)
        ours = ends_of(paired_bootstrap(x, "a", "b")["avg"] for x in self.samples)
        agree(ours, found["item bootstrap"], self.setting)
        return found

    @staticmethod
    def _components(d: Array, of_seeds: list[tuple[Array, float]], items: Array, per_task: Array) -> Ends:
        parts = np.concatenate([np.stack([part for part, _ in of_seeds], axis=1), items], axis=1)
        freedom = np.r_[[freedom for _, freedom in of_seeds], per_task]
        low, high = t_ends(d, parts, freedom)
        own_low, own_high = t_ends(d, parts[:, : len(of_seeds)], freedom[: len(of_seeds)])
        return np.minimum(low, own_low), np.maximum(high, own_high)


def _of_test(test: Any) -> Ends:
    ends = test.confidence_interval(LEVEL)
    return ends.low, ends.high


def _ends(pairs: list[tuple[float, float]]) -> Ends:
    low, high = np.array(pairs).T
    return low, high


WORLDS = (
    World("items dominate", 0.008),
    World("seeds dominate", 0.03),
    World("seven tasks", 0.008, (0.0, 0.9), SEVEN, 0),
)


def cases_of(world: World) -> list[Case]:
    """The settings of a world: independent sides, a side without seeds, and pairs."""
    numbers = FEW if world.tasks == SEVEN else (*FEW, (2, 5), (5, 10))
    cases = [Case(Setting(world.name, n), "b 0") for n in numbers]
    cases += [Case(Setting(world.name, (n, 1)), "fixed", fixed=True) for n, _ in FEW]
    return cases + [Case(Setting(world.name, n, r), f"b {r:g}") for r in world.correlations for n in FEW]


def both_levels(sizes: Sizes) -> Iterator[CoverageRow]:
    """Seeds and items: what each interval holds of further seeds on these items, and on further ones."""
    for world in WORLDS:
        rng, cases = make_generator(0, f"coverage/{world.name}"), cases_of(world)
        for _ in range(sizes.few):
            sample, true = world.draw(rng)
            for case in cases:
                case.add(sample, true, rng)
        for case in cases:
            known = world.further and (case.setting.r or 0) <= CLOSE
            for method, ends in case.intervals().items():
                yield row(method, case.setting, holds(ends, 0.0), LEVEL, BOTH)
                if known:
                    yield row(method, case.setting, holds(ends, np.array(case.true)), LEVEL, THESE)


def items_alone(sizes: Sizes) -> Iterator[CoverageRow]:
    """Two checkpoints on further items: the paired bootstrap, Williams, Steiger, McNemar; one by itself."""
    rng, target = make_generator(0, "coverage/rho"), "further items"
    latent, noise = rng.normal(size=(2, 1_000_000))
    true = float(spearman_rows(0.75 * latent + np.sqrt(1 - 0.75**2) * noise, graded(latent))[0])
    for size in (950, 100):
        case = Setting(f"{size} items", (1, 1))
        rng = make_generator(0, f"coverage/{case}")
        held: dict[str, list[bool]] = {}
        wrong: dict[str, list[bool]] = {}
        for _ in range(sizes.few):
            latent, shared, *own = rng.normal(size=(4, size))
            gold = graded(latent)
            a, b = (
                0.75 * latent + np.sqrt((1 - 0.75**2) / 5) * (np.sqrt(3) * shared + np.sqrt(2) * noise)
                for noise in own
            )
            sample = draw_suite({"a": {"t": a}, "b": {"t": b}}, {"t": gold}, rng, 5 * DRAWS)
            found = paired_bootstrap(sample, "a", "b")["avg"]
            held.setdefault("paired bootstrap", []).append(found.low <= 0 <= found.high)
            (seen, drawn), (other, _) = sample.select("a"), sample.select("b")
            low, high = np.quantile(drawn[:, 0, 0], [ALPHA / 2, 1 - ALPHA / 2])
            held.setdefault("item bootstrap, one run", []).append(bool(low <= true <= high))
            low, high = spearman_interval(float(seen[0, 0]), size)
            held.setdefault("bonett-wright", []).append(low <= true <= high)
            spearman = (float(seen[0, 0]), float(other[0, 0]), float(spearman_rows(a, b)[0]))
            matrix = np.corrcoef([latent, a, b])
            pearson = (float(matrix[0, 1]), float(matrix[0, 2]), float(matrix[1, 2]))
            for name, test in (("williams", williams), ("steiger", steiger)):
                wrong.setdefault(name, []).append(test(*spearman, size).p <= ALPHA)
                wrong.setdefault(f"{name}, Pearson's r", []).append(test(*pearson, size).p <= ALPHA)
            wrong.setdefault("mcnemar", []).append(mcnemar(a > AS_WRONG, b > AS_WRONG).p <= ALPHA)
        yield from (row(name, case, found, LEVEL, target) for name, found in held.items())
        yield from (row(name, case, found, ALPHA, target) for name, found in wrong.items())


PARTS = (both_levels, items_alone)
