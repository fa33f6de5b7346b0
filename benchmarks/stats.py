"""Statistics: speed of the item bootstrap against a loop over scipy, levels of the tests, coverage, power.

Every part prints one JSON line a case. All parts run on one thread.

- speed: Spearman of 10 methods in 10,000 draws of the seven STS tasks' sizes. The peer calls
  scipy.stats.spearmanr for each method and draw (``loop``), or once a draw on all columns (``matrix``), on
  the first ``--peer-draws`` draws of the same generator; its CPU time is scaled to 10,000 draws, and its
  values must agree to 1e-12. Gold scores are steps of 0.2; nine methods are float32 cosines, one has its
  cosines rounded to two decimals.
- levels: share of false positives at p <= .05 in simulations of each test's own null, with a 99% binomial
  interval, and the level that the test can at best attain there.
- coverage: of intervals for two methods with equal expectation, 5 seeds each, seven tasks: seeds have SD 0.8
  points, correlated 0.8 between tasks; systems share much of their noise on items.
- power: Welch's, simulated and by formula, for normal seeds of SD 0.8.
- aso: how often eps < 0.5 comes out of two samples of one normal distribution.

    python benchmarks/stats.py [--only speed] [--peer-draws 20] [--simulations 2000]
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from claim import PAIRS, add_json, faster, show, timed
from numpy.typing import NDArray
from scipy import stats
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from bench.stats.checks import generator
from bench.stats.correlations import steiger, williams
from bench.stats.descriptive import aso
from bench.stats.hierarchical import hierarchical_bootstrap, variance_components
from bench.stats.items import paired_bootstrap
from bench.stats.power import welch_power
from bench.stats.resampling import spearman_draws, spearman_rows
from bench.stats.seeds import exact_permutation, sign_flip, welch
from bench.stats.suite import SuiteDraws, suite_draws

METHODS, DRAWS = 10, 10_000
GOAL = 20
ALPHA = 0.05

Array = NDArray[np.float64]
Line = dict[str, Any]


def graded(latent: Array) -> Array:
    """Gold scores 0 to 5 in steps of 0.2, as most of STS has them."""
    return np.round(np.clip(2.5 + 1.25 * latent, 0, 5) * 5) / 5


def speed(arguments: argparse.Namespace) -> Iterator[Line]:
    """Time both sides task by task; the draws that both computed must agree."""
    ours_cpu = ours_wall = loop_cpu = matrix_cpu = largest = 0.0
    for task, pairs in PAIRS.items():
        rng = generator(0, f"speed/{task}")
        latent = rng.normal(size=pairs)
        gold = graded(latent)
        noise = rng.normal(size=(METHODS, pairs))
        rows = np.clip(0.6 + 0.1 * latent + 0.08 * noise, -1, 1).astype(np.float32)
        rows[-1] = np.round(rows[-1], 2)
        draw = partial(spearman_draws, rows, gold, generator(1, task), arguments.draws)
        values, wall, cpu = timed(draw)
        ours_wall, ours_cpu = ours_wall + wall, ours_cpu + cpu
        peer = values[: arguments.peer_draws]
        chosen = generator(1, task).integers(0, pairs, (len(peer), pairs))
        cpu = time.process_time()
        loop = [[stats.spearmanr(row[draw], gold[draw]).statistic for row in rows] for draw in chosen]
        loop_cpu += (time.process_time() - cpu) * arguments.draws / len(peer)
        columns = np.vstack([rows, gold]).T
        cpu = time.process_time()
        matrix = [np.asarray(stats.spearmanr(columns[draw]).statistic)[-1, :-1] for draw in chosen]
        matrix_cpu += (time.process_time() - cpu) * arguments.draws / len(peer)
        largest = max(largest, np.abs(peer - loop).max(), np.abs(peer - matrix).max())
    assert largest < 1e-12, f"values differ by {largest}"
    what = f"Spearman of {METHODS} methods, {arguments.draws:,} draws of sts7's items: scipy.stats.spearmanr"
    scaled = f", scaled from {arguments.peer_draws} draws"
    one_by_one = faster("stats", f"{what}, one by one{scaled}", ours=ours_cpu, peer=loop_cpu, goal=GOAL)
    at_once = faster("stats at once", f"{what}, all methods at once{scaled}", ours=ours_cpu, peer=matrix_cpu)
    show(arguments.json, one_by_one, at_once)
    yield {
        "benchmark": "stats speed",
        "draws": arguments.draws,
        "methods": METHODS,
        "tasks": list(PAIRS.values()),
        "peer_draws_measured": arguments.peer_draws,
        "ours_cpu_seconds": round(ours_cpu, 1),
        "ours_wall_seconds": round(ours_wall, 1),
        "loop_cpu_seconds_scaled": round(loop_cpu, 1),
        "ratio_cpu": round(loop_cpu / ours_cpu, 1),
        "ratio_cpu_matrix": round(matrix_cpu / ours_cpu, 1),
        "largest_difference": float(largest),
    }


def three(rng: np.random.Generator, pairs: int, r: float, shared: float) -> tuple[Array, Array, Array]:
    """Gold and two systems: normal, each correlated r with gold, noise correlated ``shared``."""
    latent, common, own_a, own_b = rng.normal(size=(4, pairs))
    spread = np.sqrt(1 - r**2)
    noise = [np.sqrt(shared) * common + np.sqrt(1 - shared) * own for own in (own_a, own_b)]
    return latent, r * latent + spread * noise[0], r * latent + spread * noise[1]


def pearson_p(rng: np.random.Generator, test: Callable[..., Any], pairs: int) -> float:
    """Return p of a test of dependent correlations on Pearson's r, its own model."""
    r = np.asarray(np.corrcoef(three(rng, pairs, 0.75, 0.6)))
    return float(test(r[0, 1], r[0, 2], r[1, 2], pairs).p)


def spearman_p(rng: np.random.Generator, test: Callable[..., Any], pairs: int) -> float:
    """Return its p on Spearman's rho with graded gold scores, as it is used."""
    latent, a, b = three(rng, pairs, 0.75, 0.6)
    r12, r13 = spearman_rows(np.stack([a, b]), graded(latent))
    return float(test(r12, r13, spearman_rows(a, b)[0], pairs).p)


def bootstrap_p(rng: np.random.Generator, pairs: int) -> float:
    """Return p of the paired bootstrap of one task, 1,000 draws."""
    latent, a, b = three(rng, pairs, 0.75, 0.6)
    sample = suite_draws({"a": {"t": a}, "b": {"t": b}}, {"t": graded(latent)}, rng, 1000)
    return paired_bootstrap(sample, "a", "b")["t"].p


def levels(arguments: argparse.Namespace) -> Iterator[Line]:
    """False positives of every test under its own null."""

    def normal(rng: np.random.Generator, n_a: int, n_b: int, sd_b: float = 1.0) -> tuple[Array, Array]:
        return rng.normal(size=n_a), sd_b * rng.normal(size=n_b)

    many, few = 10 * arguments.simulations, arguments.simulations
    cases: list[tuple[str, int, float, Callable[[np.random.Generator], float]]] = [
        ("welch 3, 3", many, ALPHA, lambda rng: welch(*normal(rng, 3, 3)).p),
        ("welch 5, 5", many, ALPHA, lambda rng: welch(*normal(rng, 5, 5)).p),
        ("welch 5, 5, sd 1, 3", many, ALPHA, lambda rng: welch(*normal(rng, 5, 5, 3.0)).p),
        ("welch 10, 5, sd 1, 3", many, ALPHA, lambda rng: welch(*normal(rng, 10, 5, 3.0)).p),
        ("permutation 5, 5", many, 12 / 252, lambda rng: exact_permutation(*normal(rng, 5, 5)).p),
        ("permutation 8, 5", many, 64 / 1287, lambda rng: exact_permutation(*normal(rng, 8, 5)).p),
        ("sign flip 6", many, 2 / 64, lambda rng: sign_flip(*normal(rng, 6, 6), same_order=True).p),
        ("sign flip 8", many, 12 / 256, lambda rng: sign_flip(*normal(rng, 8, 8), same_order=True).p),
    ]
    for pairs in (100, 1379):
        for name, test in (("williams", williams), ("steiger", steiger)):
            for kind, p in (("Pearson", pearson_p), ("Spearman", spearman_p)):
                cases.append((f"{name}, {kind}, {pairs}", many, ALPHA, partial(p, test=test, pairs=pairs)))
    for pairs in (100, 300, 1379):
        cases.append((f"paired bootstrap, {pairs}", few, ALPHA, partial(bootstrap_p, pairs=pairs)))
    for name, simulations, attainable, draw in cases:
        rng = generator(0, f"levels/{name}")
        false = sum(draw(rng) <= ALPHA for _ in range(simulations))
        yield {"benchmark": f"stats level: {name}", "attainable": round(attainable, 4)} | share(
            false, simulations
        )


def share(count: int, simulations: int) -> Line:
    """A share with its 99% Clopper-Pearson interval."""
    interval = stats.binomtest(count, simulations).proportion_ci(0.99)
    return {
        "share": round(count / simulations, 4),
        "interval": [round(float(interval.low), 4), round(float(interval.high), 4)],
        "simulations": simulations,
    }


def simulated_suite(
    rng: np.random.Generator, seeds: int, scale: float
) -> tuple[dict[str, dict[str, Array]], dict[str, Array]]:
    """Predictions (seeds, pairs) of two methods of equal expectation, and gold scores.

    A seed's correlation with the latent gold is 0.75 + N(0, 0.8 points), a part of it common to its tasks.
    """
    gold: dict[str, Array] = {}
    predictions: dict[str, dict[str, Array]] = {"a": {}, "b": {}}
    common = {method: rng.normal(size=seeds) for method in predictions}
    for task, size in PAIRS.items():
        pairs = int(size * scale)
        latent, both = rng.normal(size=(2, pairs))
        gold[task] = graded(latent)
        for method, of_tasks in predictions.items():
            own = np.sqrt(0.8) * common[method] + np.sqrt(0.2) * rng.normal(size=seeds)
            r = (0.75 + 0.008 * own)[:, None]
            of_method, of_seeds = rng.normal(size=pairs), rng.normal(size=(seeds, pairs))
            noise = np.sqrt(0.6) * both + np.sqrt(0.2) * of_method + np.sqrt(0.2) * of_seeds
            of_tasks[task] = r * latent + np.sqrt(1 - r**2) * noise
    return predictions, gold


def coverage(arguments: argparse.Namespace) -> Iterator[Line]:
    """How often 95% intervals hold the true difference, 0."""
    yield seeds_alone(5, 10 * arguments.simulations)
    for seeds, scale in ((5, 1.0), (10, 1.0), (5, 0.1)):
        simulations = arguments.simulations if scale < 1 else arguments.simulations // 2
        held = {"hierarchical": 0, "components": 0, "welch": 0, "items alone": 0}
        rng = generator(0, f"coverage/{seeds}/{scale}")
        for _ in range(simulations):
            sample = suite_draws(*simulated_suite(rng, seeds, scale), rng, 500)
            intervals: dict[str, Any] = {
                "hierarchical": hierarchical_bootstrap(sample, "a", "b", rng),
                "components": variance_components(sample, "a", "b"),
                "welch": welch(*(sample.of(method)[0].mean(1) for method in "ab")),
                "items alone": paired_bootstrap(sample, "a", "b")["avg"],
            }
            for name, interval in intervals.items():
                held[name] += interval.low <= 0 <= interval.high
        for name, count in held.items():
            case = f"stats coverage: {name}, {seeds} seeds, {scale:g} of the pairs, 500 draws"
            yield {"benchmark": case, "nominal": 0.95} | share(count, simulations)


def seeds_alone(seeds: int, simulations: int) -> Line:
    """Coverage of the hierarchical bootstrap where items add nothing."""
    rng, held = generator(0, f"coverage/{seeds}/seeds"), 0
    rows = {"a": slice(0, seeds), "b": slice(seeds, 2 * seeds)}
    for _ in range(simulations):
        table = rng.normal(size=(2 * seeds, 1))
        draws = np.broadcast_to(table, (500, *table.shape))
        interval = hierarchical_bootstrap(SuiteDraws(rows, ("t",), (1,), table, draws), "a", "b", rng)
        held += interval.low <= 0 <= interval.high
    case = f"stats coverage: hierarchical, {seeds} seeds, nothing from items, 500 draws"
    return {"benchmark": case, "nominal": 0.95} | share(held, simulations)


def power(arguments: argparse.Namespace) -> Iterator[Line]:
    """Welch's power by simulation and by formula."""
    simulations = 10 * arguments.simulations
    for seeds, gap in ((2, 2.0), (3, 1.0), (3, 2.0), (5, 1.0), (5, 2.0), (8, 1.0)):
        rng = generator(0, f"power/{seeds}/{gap}")
        a = 0.8 * rng.normal(size=(simulations, seeds)) + gap
        b = 0.8 * rng.normal(size=(simulations, seeds))
        shown = sum(welch(x, y).p <= ALPHA for x, y in zip(a, b, strict=True))
        formula = welch_power(gap, 0.8, 0.8, seeds, seeds)
        case = f"stats power: {seeds} seeds, {gap:g} points"
        yield {"benchmark": case, "formula": round(formula, 4)} | share(shown, simulations)


def almost_stochastic_order(arguments: argparse.Namespace) -> Iterator[Line]:
    """How often ASO finds an order where there is none."""
    for seeds in (5, 10, 20):
        rng = generator(0, f"aso/{seeds}")
        below = sum(
            aso(rng.normal(size=seeds), rng.normal(size=seeds), rng) < 0.5
            for _ in range(arguments.simulations)
        )
        yield {"benchmark": f"stats aso: eps < 0.5 of equals, {seeds} seeds"} | share(
            below, arguments.simulations
        )


PARTS = {
    "speed": speed,
    "levels": levels,
    "coverage": coverage,
    "power": power,
    "aso": almost_stochastic_order,
}


def main() -> None:
    """Run the parts and print one JSON line a case."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", choices=PARTS)
    parser.add_argument("--peer-draws", type=int, default=20)
    parser.add_argument("--draws", type=int, default=DRAWS, help="of the part speed")
    parser.add_argument(
        "--simulations", type=int, default=2000, help="of slow cases; ten times as many of fast"
    )
    add_json(parser)
    arguments = parser.parse_args()
    with threadpool_limits(1):
        for name, part in PARTS.items():
            if arguments.only in (None, name):
                for line in part(arguments):
                    print(json.dumps(line | {"threads": 1}), flush=True)


if __name__ == "__main__":
    main()
