"""Figures 2 and 10 of the gradient paradigm: 10,000 cells x 1,000 batches x 128 angles, all four losses.

The peer draws every cell's batches anew and takes each loss batch by batch, as the released simulation does;
it runs on ``--peer-cells`` cells drawn from the grid, and its time is scaled to all. Its means must agree
with ours to what 1,000 batches on each side allow. One JSON line: our wall and CPU seconds, the peer's CPU
seconds, their ratio, and the largest difference in standard errors.

    python benchmarks/gradient_probe.py [--peer-cells 8]
"""

from __future__ import annotations

import argparse
import json
import math
import time

import numpy as np
from claim import add_json, faster, show
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from bench.gradient.sampled_angles import (
    ANGLE,
    BATCHES,
    LOSSES,
    MARGINS,
    NEGATIVES,
    TAU,
    FloatArray,
    dissipation_grid,
    negative_means,
    positive_means,
)
from bench.stats.argument_checks import make_generator

LIMIT = 5.0  # standard errors between two means of 1,000 batches


def peer_cell(positive: float, negative: float, rng: np.random.Generator) -> dict[str, FloatArray]:
    """Dissipation of every batch of one cell, by loss, batch by batch."""
    found: dict[str, list[float]] = {loss: [] for loss in LOSSES}
    for _ in range(BATCHES):
        own = float(rng.normal(positive, 0.05))
        cosines = np.cos(rng.normal(negative, 0.10, NEGATIVES))
        total = float(np.exp(cosines / TAU).sum())
        hardest = float(cosines.max())
        found["infonce"].append(1 / (1 + math.exp(math.cos(own) / TAU) / total))
        found["arccon"].append(1 / (1 + math.exp(math.cos(own + ANGLE) / TAU) / total))
        found["mpt"].append(float(math.cos(own) - hardest < MARGINS["mpt"]))
        gap = math.sqrt(2 - 2 * hardest) - math.sqrt(2 - 2 * math.cos(own))
        found["met"].append(float(gap < MARGINS["met"]))
    return {loss: np.array(values) for loss, values in found.items()}


def main() -> None:
    """Measure and print one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--peer-cells", type=int, default=8)
    add_json(parser)
    arguments = parser.parse_args()
    rows, columns = positive_means(), negative_means()
    with threadpool_limits(1):
        wall, cpu = time.perf_counter(), time.process_time()
        grid = dissipation_grid()
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        rng, largest = make_generator(1, "peer"), 0.0
        start = time.process_time()
        for number in range(arguments.peer_cells):
            p, n = rng.integers(len(rows)), rng.integers(len(columns))
            for loss, values in peer_cell(rows[p], columns[n], rng).items():
                # an indicator that never varied may still differ by a few batches
                error = math.sqrt((values.var() + 3 / BATCHES) * 2 / BATCHES)
                distance = abs(float(grid[loss][p, n]) - float(values.mean())) / error
                assert distance < LIMIT, f"{loss}, cell {number}: {distance:.1f} standard errors"
                largest = max(largest, distance)
        peer = (time.process_time() - start) * len(rows) * len(columns) / arguments.peer_cells
    print(
        json.dumps(
            {
                "benchmark": "gradient_probe",
                "cells": len(rows) * len(columns),
                "ours_seconds": round(wall, 2),
                "ours_cpu_seconds": round(cpu, 2),
                "peer_cpu_seconds_scaled": round(peer, 1),
                "ratio_cpu": round(peer / cpu, 1),
                "largest_difference_in_standard_errors": round(largest, 2),
            }
        )
    )
    what = f"10,000 cells, four losses: batch by batch, scaled from {arguments.peer_cells} cells"
    show(arguments.json, faster("gradient_probe", what, ours=cpu, peer=peer))


if __name__ == "__main__":
    main()
