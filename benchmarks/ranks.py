"""Ranks of k methods: how often all pairs with one correction show a false difference, and what ranks cover.

The peer is the percentile interval of each rank in draws of the seeds, as leaderboards elsewhere have it.

Prints one JSON line a case: k methods with 5 seeds each, tested pair by pair with Welch's test (independent
normal scores) or the paired t test (scores of a seed correlate at 0.9). ``step`` is the distance of
neighbouring means, in standard deviations of a method's own part of the score; ``halves`` are two groups of
equal methods, 3 apart. A rank is covered if its interval holds all that the method may have: equal methods
share theirs.

Then, for equal methods of which half have fewer seeds than the others, with Welch's tests: how often any pair
is called different, by Satterthwaite's degrees of freedom and by those that bench takes.

Then, for two equal methods whose seeds are pairs: how often one of several looks, each at all seeds so far,
calls them different.

    python benchmarks/ranks.py [--simulations 20000] [--bootstraps 2000]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from itertools import chain, combinations

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from bench.stats.argument_checks import make_generator
from bench.stats.method_ranking import PairTest, rank_methods
from bench.stats.seeds import satterthwaite, side_parts

SEEDS, SHARED, DRAWS, ALPHA = 5, 0.9, 1000, 0.05
Array = NDArray[np.float64]


def means_of(case: str, k: int) -> Array:
    """True means, the best first, in standard deviations of a method's own part."""
    if case == "halves":
        return np.repeat([3.0, 0.0], [k // 2, k - k // 2])
    return np.asarray(np.arange(k)[::-1] * float(case.split()[1]))


def p_values(scores: Array, *, paired: bool) -> tuple[list[tuple[int, int]], Array, Array]:
    """Pairs, and the (simulations, pairs) differences and p of (simulations, seeds, methods) scores."""
    pairs = list(combinations(range(scores.shape[2]), 2))
    first, second = (scores[:, :, [pair[side] for pair in pairs]] for side in (0, 1))
    if paired:
        p = stats.ttest_rel(first, second, axis=1).pvalue
    else:
        p = stats.ttest_ind(first, second, axis=1, equal_var=False).pvalue
    return pairs, (first - second).mean(1), np.asarray(p)


def cases(arguments: argparse.Namespace) -> Iterator[dict[str, object]]:
    """Yield a line a case."""
    for k in (5, 10):
        for paired in (False, True):
            for case in ("step 0", "step 1e-6", "step 0.5", "step 1", "halves"):
                rng = make_generator(0, f"ranks/{k}/{paired}/{case}")
                means = means_of(case, k) * (np.sqrt(1 - SHARED) if paired else 1)
                shape = (arguments.simulations, SEEDS, k)
                scores = means + np.sqrt(1 - SHARED if paired else 1) * rng.normal(size=shape)
                if paired:
                    scores += np.sqrt(SHARED) * rng.normal(size=(*shape[:2], 1))
                tests = "paired" if paired else "welch"
                yield {"benchmark": "ranks", "k": k, "tests": tests, "means": case} | measure(
                    scores, means, paired, arguments.bootstraps
                )


def uneven(simulations: int) -> Iterator[dict[str, object]]:
    """Yield a line a case: ten equal methods of few seeds, whose spread may be larger, and ten of many."""
    k = 10
    first, second = np.array(list(combinations(range(2 * k), 2))).T
    for few, many, spread in (
        (2, 3, 10),
        (2, 10, 1),
        (3, 10, 1),
        (3, 10, 3),
        (4, 8, 3),
        (5, 10, 1),
        (5, 10, 3),
        (3, 5, 3),
        (3, 5, 5),
    ):
        rng = make_generator(0, f"uneven/{few}/{many}/{spread}")
        seeds, sd = np.repeat([few, many], k), np.repeat([spread, 1.0], k)
        variance = sd**2 / seeds * rng.chisquare(seeds - 1, (simulations, 2 * k)) / (seeds - 1)
        means = sd / np.sqrt(seeds) * rng.normal(size=(simulations, 2 * k))
        smallest: dict[str, list[Array]] = {"satterthwaite": [], "bench": []}
        for a, b in zip(first, second, strict=True):
            sides = [(variance[:, one], int(seeds[one]) - 1) for one in (a, b)]
            t = np.abs(means[:, a] - means[:, b]) / np.sqrt(variance[:, a] + variance[:, b])
            for name, parts in (("satterthwaite", sides), ("bench", side_parts(*sides))):
                smallest[name].append(2 * stats.t.sf(t, satterthwaite(parts)))
        false = {name: np.min(p, axis=0) <= ALPHA / len(first) for name, p in smallest.items()}
        yield {"benchmark": "ranks uneven", "seeds": f"{few} and {many}", "spread": spread} | {
            f"false_difference, {name}": round(float(each.mean()), 4) for name, each in false.items()
        }


def looks(simulations: int) -> Iterator[dict[str, object]]:
    """Yield a line a plan: how often one of several looks calls two equal methods different (paired t)."""
    gaps = make_generator(0, "looks").normal(size=(max(simulations, 200_000), 10))
    p = {n: np.asarray(stats.ttest_1samp(gaps[:, :n], 0.0, axis=1).pvalue) for n in range(3, 11)}
    for at in ((5,), (3, 5), (3, 5, 10), (5, 6, 7, 8), tuple(range(3, 11))):
        false = np.min(np.stack([p[n] for n in at]), axis=0) <= ALPHA
        yield {"benchmark": "ranks looks", "seeds": at, "false_difference": round(float(false.mean()), 4)}


def measure(scores: Array, means: Array, paired: bool, bootstraps: int) -> dict[str, object]:
    """Rates of one case."""
    k, false, together, single, width = len(means), 0, 0, 0.0, 0.0
    best, last = (means[:, None] < means).sum(1) + 1, k - (means[:, None] > means).sum(1)
    pairs, differences, p = p_values(scores, paired=paired)
    names = [f"{i:02}" for i in range(k)]
    for one, gaps, values in zip(scores.mean(1), differences, p, strict=True):
        table = {
            (names[a], names[b]): PairTest(float(gap), float(value), tests_name(paired))
            for (a, b), gap, value in zip(pairs, gaps, values, strict=True)
        }
        ranking = rank_methods(dict(zip(names, map(float, one), strict=True)), table)
        false += any(
            pair.differs and means[int(pair.first)] <= means[int(pair.second)] for pair in ranking.pairs
        )
        ends = np.array([ranking.intervals[name] for name in names])
        covered = (ends[:, 0] <= best) & (ends[:, 1] >= last)
        together, single = together + int(covered.all()), single + covered.mean()
        width += (ends[:, 1] - ends[:, 0] + 1).mean()
    n, drawn = len(scores), np.zeros((bootstraps, k), dtype=bool)
    rng = make_generator(1, "bootstrap")
    for i in range(bootstraps):
        ends = bootstrap_ranks(scores[i], rng, paired=paired)
        drawn[i] = (ends[:, 0] <= best) & (ends[:, 1] >= last)
    return {
        "false_difference": round(false / n, 4),
        "ranks_covered_together": round(together / n, 4),
        "rank_covered": round(single / n, 4),
        "ranks_in_interval": round(width / n, 2),
        "bootstrap_covered_together": round(float(drawn.all(1).mean()), 3),
        "bootstrap_rank_covered": round(float(drawn.mean()), 3),
    }


def bootstrap_ranks(scores: Array, rng: np.random.Generator, *, paired: bool) -> NDArray[np.int64]:
    """(methods, 2) ends of the 95% percentile intervals of the ranks, from draws of (seeds, methods) scores.

    Methods in pairs take the same seeds in a draw; equal means share their ranks.
    """
    seeds, k = scores.shape
    taken = rng.integers(0, seeds, (DRAWS, seeds, 1 if paired else k))
    means = np.take_along_axis(scores[None], np.broadcast_to(taken, (DRAWS, seeds, k)), axis=1).mean(1)
    above = (means[:, None, :] > means[:, :, None]).sum(2)
    equal = (means[:, None, :] == means[:, :, None]).sum(2)
    low = np.quantile(above + 1, 0.025, axis=0, method="inverted_cdf")
    high = np.quantile(above + equal, 0.975, axis=0, method="inverted_cdf")
    return np.stack([low, high], axis=1).astype(np.int64)


def tests_name(paired: bool) -> str:
    """Name of the test."""
    return "paired t" if paired else "Welch"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--simulations", type=int, default=20_000)
    parser.add_argument("--bootstraps", type=int, default=2_000)
    given = parser.parse_args()
    for line in chain(cases(given), uneven(given.simulations), looks(given.simulations)):
        print(json.dumps(line), flush=True)
