"""How often the intervals of bench.stats hold, and its tests are wrong: the table that every output quotes.

Each row is one procedure in one setting. Scores are normal with SD 1 unless the design says otherwise:
"spread 3:1" (a has three times b's SD), "collapse" (each run of a falls by 8 SD with a chance of 10%; b's
don't), pairs correlated by r. Where items vary too, a task has 950 graded items ("seven tasks": a tenth of
those of STS), two methods of equal expectation share 60% of their noise on items, and seeds move the
correlation 0.75 with the latent gold by SD 0.03 ("seeds dominate"), otherwise by 0.008.

What scipy has is computed by scipy on all simulations at once, the rest as a transcription of its formula;
the functions of bench.stats must agree with that to 1e-9 on the first of every setting. The IQM is
scipy.stats.trim_mean and its percentile interval that of rliable. Exact tests and the hierarchical bootstrap
run as they are, bootstraps with 200 to 1,000 draws.

    nice python benchmarks/coverage.py            # a quarter of an hour; writes bench/stats/coverage.csv
    python benchmarks/coverage.py --quick         # tiny sizes: does it work? writes nothing
    python benchmarks/coverage.py --only iqms     # one part, to the screen; writes nothing

The rows so far are in coverage.csv.part while it runs.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Iterable
from pathlib import Path

import coverage_clusters
import coverage_family
import coverage_gate
import coverage_items
import coverage_methods
import coverage_seeds
from claim import add_json, show, within
from coverage_rows import BOTH, LEVEL, SEEDS, Sizes
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from bench.stats import coverage
from bench.stats.coverage import CoverageRow

PARTS = (
    *coverage_seeds.PARTS,
    *coverage_items.PARTS,
    *coverage_methods.PARTS,
    *coverage_family.PARTS,
    *coverage_gate.PARTS,
    *coverage_clusters.PARTS,
)
QUICK, FULL = Sizes(many=40, few=4), Sizes(many=20_000, few=2_000)
DEFAULTS = ("welch", "student", "paired t", "components", "components, paired")
"""Intervals that a verdict rests on."""


def shortest(rows: Iterable[CoverageRow]) -> float:
    """By how many points a default interval falls short of its level at most, equal numbers of seeds."""
    own = [
        found
        for found in rows
        if found.method in DEFAULTS
        and found.n_b in (1, found.n_a)
        and found.target == (BOTH if found.method.startswith("components") else SEEDS)
        and (found.design == "normal" or found.target == BOTH)
    ]
    return max(100 * (LEVEL - found.measured) for found in own)


def said(found: CoverageRow) -> str:
    """A row for the screen."""
    pairs = "" if found.correlation is None else f", r = {found.correlation:g}"
    sides = f"{found.n_a} v {found.n_b}"
    missed = {True: "", False: "  misses", None: "  (no promise)"}[found.keeps]
    return (
        f"{found.method:24} {found.design + pairs:32} {sides:8} {found.target:28} "
        f"{100 * found.measured:5.1f}{missed}"
    )


def measure(sizes: Sizes, only: str | None, part: Path | None) -> list[CoverageRow]:
    """Run the parts; each part's rows go to a file and to the screen as it ends."""
    rows: list[CoverageRow] = []
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Precision loss occurred")
        for simulate in PARTS:
            if only not in (None, simulate.__name__):
                continue
            cpu = time.process_time()
            for found in simulate(sizes):
                rows.append(found)
                print(said(found), flush=True)
            print(f"{simulate.__name__}: {time.process_time() - cpu:.0f} CPU s", file=sys.stderr, flush=True)
            if part is not None:
                coverage.write_coverage(rows, part)
    return rows


def main() -> None:
    """Simulate every setting and write the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="tiny sizes; writes nothing")
    parser.add_argument("--only", choices=[part.__name__ for part in PARTS], help="one part; writes nothing")
    add_json(parser)
    given = parser.parse_args()
    part = None if given.quick or given.only else coverage.TABLE.with_suffix(".csv.part")
    rows = measure(QUICK if given.quick else FULL, given.only, part)
    if part is not None:
        part.replace(coverage.TABLE)
    if not given.only:
        what = "default intervals in their own settings, short of 95% by at most"
        show(given.json, within("coverage", what, ours=shortest(rows), unit="points", goal=2))


if __name__ == "__main__":
    main()
