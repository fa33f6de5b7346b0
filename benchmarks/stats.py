"""Statistics: speed of the item bootstrap against a loop over scipy, and power.

Every part prints one JSON line a case. All parts run on one thread.

- speed: Spearman of 10 methods in 10,000 draws of the seven STS tasks' sizes. The peer calls
  scipy.stats.spearmanr for each method and draw (``loop``), or once a draw on all columns (``matrix``), on
  the first ``--peer-draws`` draws of the same generator; its CPU time is scaled to 10,000 draws, and its
  values must agree to 1e-12. Gold scores are steps of 0.2; nine methods are float32 cosines, one has its
  cosines rounded to two decimals.
- clusters: the same draws of clusters of pairs that share sentences against draws of single pairs. The sizes
  are like sts7's: 7,000 pairs alone, clusters of 1,003 and 406, and 2,400 of four or five, over all tasks.
- power: Welch's, simulated and by formula, for normal seeds of SD 0.8.

How often intervals hold and tests are wrong is measured by coverage.py.

    python benchmarks/stats.py [--only speed] [--peer-draws 20] [--simulations 20000]
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from claim import PAIRS, add_json, bounded, faster, show, timed
from coverage_rows import graded
from scipy import stats
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from bench.stats.argument_checks import make_generator
from bench.stats.item_units import SuiteUnits, draw_scores
from bench.stats.resampling import spearman_draws, spearman_statistic
from bench.stats.seed_planning import welch_power
from bench.stats.seeds import welch

METHODS, DRAWS = 10, 10_000
GOAL = 20
ALPHA = 0.05

Line = dict[str, Any]


def speed(arguments: argparse.Namespace) -> Iterator[Line]:
    """Time both sides task by task; the draws that both computed must agree."""
    ours_cpu = ours_wall = loop_cpu = matrix_cpu = largest = 0.0
    for task, pairs in PAIRS.items():
        rng = make_generator(0, f"speed/{task}")
        latent = rng.normal(size=pairs)
        gold = graded(latent)
        noise = rng.normal(size=(METHODS, pairs))
        rows = np.clip(0.6 + 0.1 * latent + 0.08 * noise, -1, 1).astype(np.float32)
        rows[-1] = np.round(rows[-1], 2)
        draw = partial(spearman_draws, rows, gold, make_generator(1, task), arguments.draws)
        values, wall, cpu = timed(draw)
        ours_wall, ours_cpu = ours_wall + wall, ours_cpu + cpu
        peer = values[: arguments.peer_draws]
        chosen = make_generator(1, task).integers(0, pairs, (len(peer), pairs))
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


def clusters(arguments: argparse.Namespace) -> Iterator[Line]:
    """Time draws of clusters and of single pairs."""
    rng = make_generator(0, "speed/clusters")
    sizes = [1003, 406, *[1] * 7000]
    rest = sum(PAIRS.values()) - sum(sizes)
    sizes += [rest // 2400 + (number < rest % 2400) for number in range(2400)]
    labels = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    ends = np.cumsum([*PAIRS.values()])[:-1]
    by_task = dict(zip(PAIRS, np.split(labels, ends), strict=True))
    statistics = {}
    for task, pairs in PAIRS.items():
        latent = rng.normal(size=pairs)
        rows = (latent + rng.normal(size=(METHODS, pairs))).astype(np.float32)
        statistics[task] = [spearman_statistic(rows, graded(latent))]
    seconds = []
    for units in (
        SuiteUnits.independent({task: [pairs] for task, pairs in PAIRS.items()}),
        SuiteUnits({task: [part] for task, part in by_task.items()}),
    ):
        draw = partial(draw_scores, statistics, units, arguments.draws, partial(make_generator, 1))
        _, _, cpu = timed(draw)
        seconds.append(cpu)
    what = f"{arguments.draws:,} draws of {METHODS} methods over sts7: clusters of pairs against single pairs"
    show(arguments.json, bounded("stats clusters", what, ours=seconds[1], peer=seconds[0], goal=1.5))
    yield {"benchmark": "stats clusters", "cpu_seconds": seconds, "ratio": round(seconds[1] / seconds[0], 2)}


def share(count: int, simulations: int) -> Line:
    """A share with its 99% Clopper-Pearson interval."""
    interval = stats.binomtest(count, simulations).proportion_ci(0.99)
    return {
        "share": round(count / simulations, 4),
        "interval": [round(float(interval.low), 4), round(float(interval.high), 4)],
        "simulations": simulations,
    }


def power(arguments: argparse.Namespace) -> Iterator[Line]:
    """Welch's power by simulation and by formula."""
    simulations = arguments.simulations
    for seeds, gap in ((2, 2.0), (3, 1.0), (3, 2.0), (5, 1.0), (5, 2.0), (8, 1.0)):
        rng = make_generator(0, f"power/{seeds}/{gap}")
        a = 0.8 * rng.normal(size=(simulations, seeds)) + gap
        b = 0.8 * rng.normal(size=(simulations, seeds))
        shown = sum(welch(x, y).p <= ALPHA for x, y in zip(a, b, strict=True))
        formula = welch_power(gap, 0.8, 0.8, seeds, seeds)
        case = f"stats power: {seeds} seeds, {gap:g} points"
        yield {"benchmark": case, "formula": round(formula, 4)} | share(shown, simulations)


PARTS = {"speed": speed, "clusters": clusters, "power": power}


def main() -> None:
    """Run the parts and print one JSON line a case."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", choices=PARTS)
    parser.add_argument("--peer-draws", type=int, default=20)
    parser.add_argument("--draws", type=int, default=DRAWS, help="of the part speed")
    parser.add_argument("--simulations", type=int, default=20_000, help="of the part power")
    add_json(parser)
    arguments = parser.parse_args()
    with threadpool_limits(1):
        for name, part in PARTS.items():
            if arguments.only in (None, name):
                for line in part(arguments):
                    print(json.dumps(line | {"threads": 1}), flush=True)


if __name__ == "__main__":
    main()
