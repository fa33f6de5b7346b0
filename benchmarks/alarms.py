"""How often the gate fails unchanged code: real scores of many seeds, drawn as reference and as new runs.

Each trained row of the reference is trained at further seeds, once; a file keeps their scores. A gate then
has ten cells, the rows in turn. Of each row's pool a cell draws as many seeds as the reference has, and as
many new ones, without replacement: both sides are no more than draws of the same method.

- "same numbers": the new runs carry the reference's seed numbers, so that the gate takes unrelated draws for
  pairs, which another machine could make of them at worst;
- "other seeds": they carry other numbers.

Part of benchmarks/mutants.py.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from statistics import fmean, stdev

import numpy as np
from scipy.stats import binomtest

from bench.execution.repetition import build_rerun_spec
from bench.execution.runner import run_plan
from bench.gate.judge import judge
from bench.plan.plan import make_plan
from bench.records.filesystem import write_atomically
from bench.records.record import RunRecord
from bench.records.store import ResultStore

CELLS, FIRST_SEED = 10, 1001
TOLERANCES = (0.005, 0.0)
"""The gate's default, and none: the statistics alone, whatever the rows' spread."""
ALLOWED = 0.05
"""Largest share of gates over unchanged code that may fail."""
Pool = dict[str, dict[str, float]]
"""Average of each seed of each row, 0 to 1."""


def trained_rows(reference: Path) -> dict[str, list[RunRecord]]:
    """Return the reference's records of rows that have seeds, by row."""
    rows: dict[str, list[RunRecord]] = {}
    for record in ResultStore(reference.parent, reference.name).records():
        if record.seed is not None:
            rows.setdefault(record.method, []).append(record)
    return rows


def fill(file: Path, rows: Mapping[str, Sequence[RunRecord]], seeds: int) -> Pool:
    """Train every row at the seeds that the file lacks, writing it after each; return the scores."""
    pool: Pool = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    for method, records in rows.items():
        known = pool.setdefault(f"{method} {records[0].options}", {})
        for seed in range(FIRST_SEED, FIRST_SEED + seeds):
            if str(seed) not in known:
                known[str(seed)] = score(records[0], seed)
                write_atomically(file, (json.dumps(pool, indent=1, sort_keys=True) + "\n").encode())
                print(f"{method} seed {seed}: {100 * known[str(seed)]:.2f}", file=sys.stderr, flush=True)
    return {method: pool[f"{method} {records[0].options}"] for method, records in rows.items()}


def score(record: RunRecord, seed: int) -> float:
    """Train a record's row at a seed, and return its average."""
    with tempfile.TemporaryDirectory(prefix="bench-alarms-") as folder:
        spec = build_rerun_spec(record, None, None, None, (), Path(folder))
        (request,) = spec.methods
        spec = replace(spec, seeds=(seed,), methods=(replace(request, alias=record.method),))
        (outcome,) = run_plan(make_plan(spec), on_outcome=lambda _: None)
    value = outcome.record.score("avg") if outcome.record and outcome.record.status == "ok" else None
    if value is None:
        raise SystemExit(f"{record.method} seed {seed} failed: {outcome.record and outcome.record.reason}")
    return value


def drawn(template: RunRecord, cell: int, seed: int, value: float, processor: str) -> RunRecord:
    """A record of a cell whose tasks and average have this value."""
    scores = tuple(replace(each, value=value) for each in template.scores)
    return replace(
        template,
        method=f"{template.method}-{cell}",
        seed=seed,
        scores=scores,
        timing={**template.timing, "processor": processor},
    )


def alarms(
    rows: Mapping[str, Sequence[RunRecord]],
    pool: Pool,
    *,
    same_numbers: bool,
    tolerance: float,
    gates: int,
    seed: int = 0,
) -> int:
    """Count the gates over unchanged code that fail.

    Args:
        rows: Records of each row of the reference: how many seeds a side has, and the first as template.
        pool: Scores of each row's seeds.
        same_numbers: The new runs carry the reference's seed numbers.
        tolerance: The gate's, in the metric's unit.
        gates: How many gates.
        seed: Of the draws.

    Raises:
        SystemExit: a pool that is too small for both sides.
    """
    rng = np.random.default_rng(seed)
    methods, failed = list(rows), 0
    for method in methods:
        if len(pool[method]) < (needed := 2 * len(rows[method])):
            raise SystemExit(f"{method} has {len(pool[method])} seeds in the pool, a gate needs {needed}")
    for _ in range(gates):
        then: list[RunRecord] = []
        now: list[RunRecord] = []
        for cell in range(CELLS):
            method = methods[cell % len(methods)]
            n, template = len(rows[method]), rows[method][0]
            values = rng.choice(sorted(pool[method].values()), 2 * n, replace=False).tolist()
            for number, value in enumerate(values):
                new = number >= n
                number_of = number - n + 1 if new and same_numbers else number + 1
                processor = "another" if new else "the reference's"
                record = drawn(template, cell, number_of, value, processor)
                (now if new else then).append(record)
        failed += judge(then, now, tolerance=tolerance).exit_code == 1
    return failed


def count_alarms(reference: Path, file: Path, *, seeds: int, gates: int) -> int:
    """Fill the pool, print the share of failing gates each way; return 1 where it is above ALLOWED."""
    rows = trained_rows(reference)
    pool = fill(file, rows, seeds)
    for method, scores in pool.items():
        points = [100 * value for value in scores.values()]
        print(f"{method}: {len(points)} seeds, mean {fmean(points):.2f}, sd {stdev(points):.2f} points")
    worst = 0.0
    for tolerance, (name, same) in product(TOLERANCES, (("same numbers", True), ("other seeds", False))):
        failed = alarms(rows, pool, same_numbers=same, tolerance=tolerance, gates=gates)
        low, high = binomtest(failed, gates).proportion_ci()
        worst = max(worst, failed / gates)
        print(
            f"unchanged code, {CELLS} cells, {name}, tolerance {100 * tolerance:g}: {failed:,} of {gates:,} "
            f"gates fail, {100 * failed / gates:.1f}% [{100 * low:.1f}, {100 * high:.1f}]"
        )
    return int(worst > ALLOWED)
