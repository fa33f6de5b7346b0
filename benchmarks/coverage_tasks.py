"""Which test over tasks holds: coverage of intervals of one pair, and false differences among all pairs.

Tables of m methods and 7, 16 or 41 tasks in 3, 5 or 7 types, one score each. Differences are normal, heavy
(t with 3 degrees of freedom) or skewed (exponential), spread by type (SD 0.5 to 4), or have a mean of their
own in each type ("means"; the average's is known). "tasks drawn": types are drawn with the tasks, otherwise
each type keeps its number of tasks. With the FOLDER of mteb_board.py, tasks of its table are drawn with
replacement, each model's average set to 0; of models that are alike in most tasks the first stands for all.

Intervals of one pair: "t" is bench's. "t within types" has types as strata, Satterthwaite's degrees of
freedom, and a pooled variance for a type with one task. "percentile" draws tasks, "bootstrap t" too, with
the t of each draw; "percentile within types" draws them within types. A line has coverage in percent, and
the median width.

Among all pairs of equal methods: how often a procedure shows any difference at 5%. "holm, t" is bench's, for
one method against the others Bonferroni ("against the first"). "flips" is the largest difference, over the
root of its sum of squares, in random flips of the signs of tasks that all pairs share. "halves": half of the
methods are better by 3 SD.

    python benchmarks/coverage_tasks.py [FOLDER] [--simulations 2000] [--families 400]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from bench.stats.argument_checks import make_generator
from bench.stats.correction import adjust_p_values
from bench.stats.task_averages import TaskScores, task_weights
from bench.stats.task_tests import compare_tasks, task_pair_test

SIZES = {7: (3, 2, 2), 16: (5, 4, 3, 2, 2), 41: (10, 9, 8, 8, 3, 2, 1)}
DESIGNS = ("normal", "heavy", "skewed", "spread", "means", "spread, means", "means, tasks drawn")
SPREADS, MEANS = (1.0, 4.0, 2.0, 0.5, 3.0, 1.0, 2.0), (1.5, -1.0, 0.5, 2.0, -2.0, 0.0, 1.0)
ALPHA, LEVEL, DRAWS, METHODS = 0.05, 0.95, 999, (5, 20)
Array = NDArray[np.float64]
Numbers = NDArray[np.intp]


def number_types(tasks: int) -> Numbers:
    """Return the (T,) numbers of the types of tasks."""
    return np.repeat(np.arange(len(SIZES[tasks])), SIZES[tasks])


def draw_noise(rng: np.random.Generator, design: str, shape: tuple[int, ...], types: Numbers) -> Array:
    """Return noise of mean 0, the last axis of which is tasks."""
    if design == "heavy":
        noise = rng.standard_t(3, shape)
    elif design == "skewed":
        noise = rng.exponential(size=shape) - 1
    else:
        noise = rng.standard_normal(shape)
    return np.asarray(noise * np.array(SPREADS)[types] if "spread" in design else noise)


def draw_pair(rng: np.random.Generator, design: str, types: Numbers, weights: Array) -> tuple[Array, float]:
    """Return the (T,) differences of two methods, and the true difference of their averages."""
    if design.endswith("drawn"):
        count = np.bincount(types)
        own = rng.choice(np.array(MEANS)[types], len(types))
        return own + rng.standard_normal(len(types)), float(
            count @ np.array(MEANS[: len(count)]) / len(types)
        )
    means = np.array(MEANS)[types] if "means" in design else np.zeros(len(types))
    return means + draw_noise(rng, design, types.shape, types), float(weights @ means)


def t_within_types(gaps: Array, weights: Array, types: ArrayLike) -> tuple[float, float, float]:
    """Return difference, half width of the 95% interval and p of a t test with types as strata.

    The variance of a type with one task is the pooled variance of the others.
    """
    numbers = np.unique(np.asarray(types), return_inverse=True)[1]
    counts = np.bincount(numbers)
    means = np.bincount(numbers, gaps) / counts
    freedom = np.maximum(counts - 1, 0)
    squares = np.bincount(numbers, (gaps - means[numbers]) ** 2)
    shares = np.bincount(numbers, weights**2)
    alone = shares[counts == 1].sum() / freedom.sum()
    parts = squares * (shares / np.maximum(freedom, 1) + alone) * (freedom > 0)
    variance, difference = float(parts.sum()), float(weights @ gaps)
    if not variance:
        return difference, 0.0, float(difference == 0)
    df = variance**2 / float((parts**2 / np.maximum(freedom, 1)).sum())
    half = float(stats.t.ppf(1 - ALPHA / 2, df)) * variance**0.5
    return difference, half, float(2 * stats.t.sf(abs(difference) / variance**0.5, df))


def percentile_ends(gaps: Array, weights: Array, counts: Array) -> tuple[float, float]:
    """Return the percentile interval of draws of tasks given as (draws, T) counts."""
    drawn = counts * weights
    low, high = np.quantile(drawn @ gaps / drawn.sum(axis=1), [ALPHA / 2, 1 - ALPHA / 2])
    return float(low), float(high)


def bootstrap_t_ends(gaps: Array, weights: Array, counts: Array) -> tuple[float, float]:
    """Return the studentised bootstrap interval of draws of tasks given as (draws, T) counts."""
    drawn = counts * weights
    whole = drawn.sum(axis=1)
    means, difference = drawn @ gaps / whole, float(weights @ gaps)
    errors = np.sqrt((counts * weights**2 * (gaps - means[:, None]) ** 2).sum(axis=1)) / whole
    error = float(np.sqrt((weights**2 * (gaps - difference) ** 2).sum()))
    t = (means - difference) / np.maximum(errors, 1e-12)
    low, high = np.quantile(t, [ALPHA / 2, 1 - ALPHA / 2])
    return difference - float(high) * error, difference - float(low) * error


def pair_intervals(
    gaps: Array, weights: Array, types: Numbers, average: str, counts: Sequence[Array]
) -> Mapping[str, tuple[float, float]]:
    """Return the intervals of one pair by procedure; ``counts`` are draws of tasks, and within types."""
    zeros, names = np.zeros(len(gaps)), [str(number) for number in types]
    ours = task_pair_test(gaps, zeros, names, average=average, level=LEVEL).interval
    difference, half, _ = t_within_types(gaps, weights, types)
    return {
        "t": ours or (np.nan, np.nan),
        "t within types": (difference - half, difference + half),
        "percentile": percentile_ends(gaps, weights, counts[0]),
        "percentile within types": percentile_ends(gaps, weights, counts[1]),
        "bootstrap t": bootstrap_t_ends(gaps, weights, counts[0]),
    }


def pairs(simulations: int) -> Iterator[dict[str, object]]:
    """Yield a line a setting: how often intervals of one pair hold, in percent, and their median width."""
    for average, tasks, design in product(("tasks", "types"), SIZES, DESIGNS):
        if average == "types" and design.endswith("drawn"):
            continue  # types that are drawn with the tasks have no fixed weights
        rng, types = make_generator(0, f"tasks/{average}/{tasks}/{design}"), number_types(tasks)
        weights = task_weights(tasks, [str(number) for number in types], average)
        counts = draw_counts(rng, types)
        held: dict[str, list[bool]] = {}
        widths: dict[str, list[float]] = {}
        for _ in range(simulations):
            gaps, true = draw_pair(rng, design, types, weights)
            for name, (low, high) in pair_intervals(gaps, weights, types, average, counts).items():
                held.setdefault(name, []).append(low <= true <= high)
                widths.setdefault(name, []).append(high - low)
        yield {"benchmark": "coverage_tasks", "average": average, "tasks": tasks, "design": design} | {
            name: (round(100 * float(np.mean(each)), 1), round(float(np.median(widths[name])), 2))
            for name, each in held.items()
        }


def draw_counts(rng: np.random.Generator, types: Numbers) -> tuple[Array, Array]:
    """Return (draws, T) counts of tasks in draws of all, and in draws within types."""
    tasks = len(types)
    within = [rng.multinomial(count, np.full(count, 1 / count), DRAWS) for count in np.bincount(types)]
    whole = rng.multinomial(tasks, np.full(tasks, 1 / tasks), DRAWS)
    return whole.astype(np.float64), np.concatenate(within, axis=1).astype(np.float64)


def draw_table(rng: np.random.Generator, design: str, methods: int, types: Numbers) -> Array:
    """Return (m, T) scores of methods of equal averages over tasks."""
    noise = draw_noise(rng, design, (methods, len(types)), types)
    if design == "skewed":
        noise *= np.linspace(0.5, 4, methods)[:, None]  # otherwise differences would be symmetric
    if "means" in design:
        counts = np.bincount(types)
        own = rng.standard_normal((methods, len(counts))) * 2
        noise += (own - (own @ counts / len(types))[:, None])[:, types]
    return noise


def flip_pairs(gaps: Array) -> Array:
    """Return the (pairs,) p of (pairs, T) differences, corrected by joint flips of the signs of tasks."""
    signs = make_generator(0, "flips").choice([-1.0, 1.0], (DRAWS, gaps.shape[1]))
    standard = gaps / np.maximum(np.linalg.norm(gaps, axis=1, keepdims=True), 1e-12)
    largest = np.sort(np.abs(standard @ signs.T).max(axis=0))
    reached = DRAWS - np.searchsorted(largest, np.abs(standard.sum(axis=1)) * (1 - 1e-9))
    return np.asarray((reached + 1) / (DRAWS + 1))


def false_differences(scores: Array, types: Numbers, equal: NDArray[np.bool_]) -> dict[str, bool]:
    """Return by procedure whether it shows a difference among pairs of ``equal`` (m, m) methods."""
    first, second = np.triu_indices(len(scores), 1)
    of_equal, weights = equal[first, second], np.full(len(types), 1 / len(types))
    names = tuple(str(number) for number in range(len(scores)))
    tests = compare_tasks(TaskScores(names, scores))
    p = tests.p[first, second]
    within = [
        t_within_types(scores[i] - scores[j], weights, types)[2] for i, j in zip(first, second, strict=True)
    ]
    found = {
        "t": p,
        "holm, t": tests.adjusted[first, second],
        "holm, t within types": np.array(adjust_p_values(within, "holm")),
        "flips": flip_pairs(scores[first] - scores[second]),
    }
    false = {name: bool((values[of_equal] <= ALPHA).any()) for name, values in found.items()}
    base = tests.against(names[0])
    false["against the first"] = bool((base.p[equal[0, 1:]] <= ALPHA).any())
    false["first not best"] = not tests.may_be_best[0]
    return false


def families(simulations: int) -> Iterator[dict[str, object]]:
    """Yield a line a setting: how often a procedure shows any false difference among all pairs."""
    designs = (*DESIGNS[:-1], "normal, halves", "heavy, halves")
    for tasks, methods, design in product(SIZES, METHODS, designs):
        kind, types = design.removesuffix(", halves"), number_types(tasks)
        rng = make_generator(0, f"task families/{tasks}/{methods}/{design}")
        better = (
            np.arange(methods) < methods // 2 if design.endswith("halves") else np.zeros(methods, dtype=bool)
        )

        def draw(
            rng: np.random.Generator = rng,
            kind: str = kind,
            types: Numbers = types,
            better: NDArray[np.bool_] = better,
        ) -> Array:
            return draw_table(rng, kind, len(better), types) + 3.0 * better[:, None]

        setting = {"tasks": tasks, "methods": methods, "design": design}
        yield setting | count_false(draw, types, better[:, None] == better, simulations)


def count_false(
    draw: Callable[[], Array], types: Numbers, equal: NDArray[np.bool_], simulations: int
) -> dict[str, object]:
    """Return by procedure the percentage of drawn tables with a false difference."""
    found = [false_differences(draw(), types, equal) for _ in range(simulations)]
    return {name: round(100 * float(np.mean([one[name] for one in found])), 1) for name in found[0]}


def real(folder: Path, simulations: int) -> Iterator[dict[str, object]]:
    """Yield lines for tables whose tasks are drawn from those of mteb's board."""
    from mteb_board import read_board

    table, _ = read_board(folder)
    types = np.unique(list(table.types), return_inverse=True)[1]
    values: list[Array] = []
    for row in table.values:  # twins, alike in most tasks, have no spread in many drawn tables
        if all((row != other).sum() > len(types) / 2 for other in values):
            values.append(row)
    centred = np.array(values) - np.mean(values, axis=1, keepdims=True)
    for methods, within in product((*METHODS, 60), (False, True)):
        rng = make_generator(0, f"task families/mteb/{methods}/{within}")

        def draw(rng: np.random.Generator = rng, methods: int = methods, within: bool = within) -> Array:
            chosen = rng.permutation(len(centred))[:methods]
            places = np.arange(len(types))
            pool = [places[types == kind] if within else places for kind in types]
            return np.asarray(centred[np.ix_(chosen, [rng.choice(one) for one in pool])])

        setting = {"tasks": "mteb", "methods": methods, "design": "within types" if within else "tasks drawn"}
        yield setting | count_false(draw, types, np.full((methods, methods), True), simulations)


def main() -> None:
    """Print the lines."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", nargs="?", type=Path, metavar="FOLDER")
    parser.add_argument("--simulations", type=int, default=2_000)
    parser.add_argument("--families", type=int, default=400)
    given = parser.parse_args()
    lines = [pairs(given.simulations), families(given.families)]
    if given.folder is not None:
        lines.append(real(given.folder, given.families))
    for part in lines:
        for line in part:
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
