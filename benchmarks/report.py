"""How long a report takes, and how large the page is, for a campaign of 25 methods and 5 seeds.

Records, predictions and kept draws of the items are made up in a folder of their own. Each format is a fresh
process, as a user starts it; the least CPU time of ``--rounds`` counts. None may load torch.

Tables of ``--rows`` plain rows, all of them paired and tested with one another, show how the text grows with
their number.

With ``--data``, scores of 400 more records are recomputed from their predictions, the first time and once
they are remembered.

    python benchmarks/report.py [--methods 25] [--seeds 5] [--rounds 3] [--rows 125 250 500]
        [--keep DIR] [--data DIR]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from claim import PAIRS, add_json, run_timed, show, within

from bench.comparison import item_bootstrap as item_draws
from bench.comparison.item_bootstrap import DRAWS, SEED, CampaignRun, RunDraws
from bench.records.record import RecordPlace, RunRecord, Score
from bench.records.store import ResultStore
from bench.stats.item_units import SuiteUnits

LIMITS = {"text": 3.0, "csv": 3.0, "latex": 3.0, "html": 6.0}
MEGABYTES = 3.0
ROWS = {500: 10.0}
"""CPU seconds of the text of so many rows."""
REMEMBERED = 3.0
"""CPU seconds of the second report of 400 records, as csv."""
_CODE = (
    "import sys\nfrom bench.cli.main import main\ntry:\n main()\nfinally:\n assert 'torch' not in sys.modules"
)


def make_campaign(root: Path, methods: int, seeds: int) -> None:
    """Write records with predictions, probes, curves and draws."""
    store, rng = ResultStore(root, "speed"), np.random.default_rng(1)
    store.prepare()
    names = [
        "simcse",
        "tncse",
        "jtcse",
        *(f"method{i}[option=value{i},other=true]" for i in range(methods - 3)),
    ]
    for number, method in enumerate(names):
        for seed in range(1, seeds + 1):
            values = {task: float(0.6 + 0.005 * number + rng.normal() / 200) for task in PAIRS}
            predictions = {task: rng.uniform(0, 1, n).astype(np.float32) for task, n in PAIRS.items()}
            record = make_record(method, seed, values, number)
            record = store.write(RecordPlace("speed", method, seed, "sts7"), record, predictions)
            write_draws(CampaignRun(store, record), values, rng)


def make_rows_campaign(root: Path, rows: int, seeds: int) -> None:
    """Write records without predictions, of plain rows whose runs of a seed are pairs."""
    store, rng = ResultStore(root, f"rows-{rows}"), np.random.default_rng(1)
    store.prepare()
    for number in range(rows):
        method = "simcse" if number == 0 else f"method{number}"
        for seed in range(1, seeds + 1):
            values = {task: float(0.6 + 0.0005 * number + rng.normal() / 200) for task in PAIRS}
            record = replace(make_record(method, seed, values, number), options={"batch_size": 64})
            store.write(RecordPlace("speed", method, seed, "sts7"), record, None)


def measure_rows(root: Path, rows: int, seeds: int) -> float:
    """Return the CPU seconds of the text of so many rows."""
    make_rows_campaign(root, rows, seeds)
    arguments = ["report", "--results", str(root), "--campaign", f"rows-{rows}"]
    with (root / "rows.txt").open("wb") as stream:
        return round(run_timed([sys.executable, "-c", _CODE, *arguments], stream)[1], 1)


def make_scored_campaign(root: Path, data: Path, methods: int = 20, seeds: int = 20) -> None:
    """Write records of sts7 whose scores are those of made-up predictions."""
    from bench.data.data_source import DataSource
    from bench.data.suites import load_suite
    from bench.eval.sts import score_suite

    store, rng = ResultStore(root, "scored"), np.random.default_rng(2)
    store.prepare()
    tasks = load_suite("sts7", DataSource(data))[1]
    facts = {task.id: {"sha256": task.sha256, "reference": True, "pairs": task.pairs} for task in tasks}
    for number in range(methods):
        for seed in range(1, seeds + 1):
            predictions = {task.id: rng.uniform(0, 1, task.pairs).astype(np.float32) for task in tasks}
            record = make_record(f"method{number}", seed, dict.fromkeys(PAIRS, 0.5), number)
            record = replace(record, tasks=facts, scores=score_suite(tasks, predictions))
            store.write(record.place, record, predictions)


def measure_recomputation(root: Path, data: Path, rounds: int) -> tuple[float, float]:
    """Return the CPU seconds of a csv report that recomputes all scores, and of one that remembers them."""
    make_scored_campaign(root, data)
    arguments = ["report", "--results", str(root), "--campaign", "scored", "--data", str(data)]
    command = [sys.executable, "-c", _CODE, *arguments, "--format", "csv"]
    times = []
    with tempfile.TemporaryDirectory() as cache, patch.dict(os.environ, {"BENCH_CACHE": cache}):
        for _ in range(1 + rounds):
            with (root / "scored.csv").open("wb") as stream:
                times.append(round(run_timed(command, stream)[1], 2))
    return times[0], min(times[1:])


def write_draws(run: CampaignRun, values: dict[str, float], rng: np.random.Generator) -> None:
    """Keep draws as ``bench stats`` does."""
    centre = np.array(list(values.values()))
    drawn = (centre + rng.normal(size=(DRAWS, len(values))) / 100).astype(np.float32)
    units = SuiteUnits.independent({task: [size] for task, size in PAIRS.items()}, known=True)
    item_draws._write_draws(run, RunDraws(drawn, units.summary), SEED, print)


def make_record(method: str, seed: int, values: dict[str, float], number: int) -> RunRecord:
    """A finished record with everything that a report shows."""
    scores = [Score(task, "all", "spearman", value, PAIRS[task]) for task, value in values.items()]
    average = sum(values.values()) / len(values)
    curve = [[40 * step, 0.7 + 0.01 * step] for step in range(1, 26)]
    stage = {"sentences_seen": 7680, "dev_curve": curve, "collapse_curve": [[s, 30.0] for s, _ in curve]}
    probes: dict[str, Any] = {
        "version": 1,
        "data": {"tasks": {"STSB-dev": {"sha256": "d"}}, "sentences": 100},
        "alignment": {"value": 0.2 + 0.01 * number},
        "uniformity": {"value": -2.0 - 0.1 * number},
        "cls_energy": {"value": 0.3 + 0.02 * number, "pooling": "cls"},
        "attention_sink": {"value": 0.4, "layers": [[0.1, 0.2, 0.1, 0.6]] * 12},
        "cost": {"gmac": 5.4 + number, "parameters": 110_000_000},
    }
    return RunRecord(
        "speed",
        method,
        method.split("[")[0],
        1,
        {},
        {"name": "bert-base-uncased", "sha256": "b" * 64},
        seed,
        "sts7",
        {task: {"sha256": task, "reference": True, "pairs": n} for task, n in PAIRS.items()},
        f"{method} {seed}",
        "ok",
        (*scores, Score("avg", "all", "spearman", average, len(values))),
        training={"corpus": {"name": "wiki.txt", "sentences": 1, "sha256": "c"}, "stages": {"joint": stage}},
        timing={"training_cpu_seconds": {"joint": 100.0 + number}},
        probes=probes,
        provenance={"encoder": {"parts": 1}, "device": "cpu"},
    )


def main() -> None:
    """Measure and print one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--methods", type=int, default=25)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", type=int, nargs="*", default=[125, 250, 500])
    add_json(parser)
    parser.add_argument("--keep", type=Path, help="Keep campaign and outputs here.")
    parser.add_argument("--data", type=Path, help="Evaluation data, to recompute scores of sts7.")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        root = given.keep or Path(temporary)
        make_campaign(root, given.methods, given.seeds)
        facts: dict[str, Any] = {"methods": given.methods, "seeds": given.seeds}
        for form, limit in LIMITS.items():
            out = root / f"report.{form}"
            command = [sys.executable, "-c", _CODE, "report", "--results", str(root), "--campaign", "speed"]
            times = []
            for _ in range(given.rounds):
                with out.open("wb") as stream:
                    times.append(round(run_timed([*command, "--format", form], stream)[1], 2))
            facts[form] = min(times)
            what = f"{form} of {given.methods} methods x {given.seeds} seeds"
            show(given.json, within(f"report {form}", what, ours=min(times), unit="CPU s", goal=limit))
            assert given.json or min(times) < limit, f"{form} took {min(times)} CPU seconds, {limit} allowed"
        for rows in given.rows:
            seconds = facts[f"rows_{rows}"] = measure_rows(root, rows, given.seeds)
            goal = ROWS.get(rows, max(ROWS.values()))
            what = f"text of {rows} rows x {given.seeds} seeds, all tested with one another"
            show(given.json, within(f"report {rows} rows", what, ours=seconds, unit="CPU s", goal=goal))
        if given.data is not None:
            first, second = measure_recomputation(root, given.data.resolve(), given.rounds)
            facts |= {"recomputed": first, "remembered": second}
            what = f"csv of 400 records, scores remembered ({first} CPU s the first time)"
            show(given.json, within("report scores", what, ours=second, unit="CPU s", goal=REMEMBERED))
            assert given.json or second < REMEMBERED, f"{second} CPU seconds, {REMEMBERED} allowed"
        size = (root / "report.html").stat().st_size / 1e6
        facts["html_megabytes"] = round(size, 2)
        assert size < MEGABYTES
        print(json.dumps(facts))


if __name__ == "__main__":
    main()
