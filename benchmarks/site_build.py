"""How long a site of many campaigns takes, how much memory, and how large its first page is.

Campaigns are made up in a folder of their own: five methods with five seeds each, whose predictions are gold
scores of mini with noise, so that verification computes every score again. A build is a fresh process, as a
user starts it: the first one, one after nothing changed, one after a record was removed.

    python benchmarks/site_build.py [--campaigns 200] [--methods 5] [--seeds 5] [--keep DIR]
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from claim import add_json, run_timed, show, within

from bench.data.suites import load_suite
from bench.data.tasks import PairTask
from bench.eval.sts import score_task
from bench.records.record import RecordPlace, RunRecord, Score
from bench.records.store import ResultStore

GOALS = {"first": 60.0, "nothing changed": 10.0, "one record fewer": 10.0}
MEGABYTES, KILOBYTES = 300.0, 200.0
_METHODS = ("simcse", "esimcse", "diffcse", "tncse", "jtcse")
_CODE = "from bench.cli.main import main\nmain()"


def make_campaign(root: Path, number: int, methods: int, seeds: int, task: PairTask) -> None:
    """Write the records of a campaign, each with predictions that give its scores."""
    store, rng = ResultStore(root, f"campaign-{number:03d}"), np.random.default_rng(number)
    gold = np.concatenate([subset.gold for subset in task.subsets])
    names = [*_METHODS, *(f"simcse[lr={i}e-05]" for i in range(1, methods))][:methods]
    for place, method in enumerate(names):
        for seed in range(1, seeds + 1):
            noise = rng.normal(scale=3 - 0.2 * place, size=len(gold))
            predictions = ((gold + noise) / 10).astype(np.float32)
            scores = score_task(task, predictions)
            record = make_record(method, seed, task, scores)
            store.write(RecordPlace("mini", method, seed, "mini"), record, {task.id: predictions})


def make_record(method: str, seed: int, task: PairTask, scores: list[Score]) -> RunRecord:
    """A finished record with curves."""
    average = Score("avg", "all", "spearman", scores[0].value, 1)
    curve = [[40 * step, 0.5 + 0.01 * step] for step in range(1, 11)]
    stage = {
        "sentences_seen": 7680,
        "dev_curve": curve,
        "collapse_curve": [[s, 30.0, 0.4, 0.5] for s, _ in curve],
    }
    return RunRecord(
        "mini",
        method,
        method.split("[")[0],
        1,
        {"lr": 1e-5},
        {"name": "mini-bert", "sha256": "b" * 64},
        seed,
        "mini",
        {task.id: {"pairs": task.pairs, "reference": True, "sha256": task.sha256}},
        "",
        "ok",
        (*scores, average),
        evaluation={"version": 1, "precision": "fp32"},
        training={"corpus": {"name": "text.txt", "sentences": 1, "sha256": "c"}, "stages": {"joint": stage}},
        timing={"training_cpu_seconds": {"joint": 10.0 + seed}, "started": "2026-11-01T00:00:00+00:00"},
        provenance={"encoder": {"parts": 1}, "device": "cpu"},
        world={"generator": 1, "split": 1, "seed": 1},
    )


def main() -> None:
    """Measure and print one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--campaigns", type=int, default=200)
    parser.add_argument("--methods", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=5)
    add_json(parser)
    parser.add_argument("--keep", type=Path, help="Keep campaigns and site here.")
    given = parser.parse_args()
    _, (task,) = load_suite("mini")
    with tempfile.TemporaryDirectory() as temporary:
        root = given.keep or Path(temporary)
        results, out = root / "results", root / "site"
        for number in range(given.campaigns):
            make_campaign(results, number, given.methods, given.seeds, task)
        facts: dict[str, Any] = {
            "campaigns": given.campaigns,
            "records": len(list(results.glob("*/*/*/*/*.json"))),
        }
        for what, goal in GOALS.items():
            if what == "one record fewer":
                shutil.rmtree(results / "campaign-000" / "mini" / _METHODS[0] / f"seed-{given.seeds}")
            command = [sys.executable, "-c", _CODE, "site", "--results", str(results), "--out", str(out)]
            seconds = run_timed(command, subprocess.DEVNULL)[1]
            facts[what] = round(seconds, 1)
            name = f"site of {given.campaigns} campaigns, {facts['records']} records, {what}"
            show(given.json, within(f"site_build {what}", name, ours=seconds, unit="CPU s", goal=goal))
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        page = sum((out / path).stat().st_size for path in ("index.html", "site.css", "site.js")) / 1e3
        facts |= {"megabytes": round(peak), "first_page_kilobytes": round(page)}
        show(
            given.json,
            within("site_build memory", "its peak of memory", ours=peak, unit="MB", goal=MEGABYTES),
        )
        what = "its first page, with style sheet and script"
        show(given.json, within("site_build page", what, ours=page, unit="kB", goal=KILOBYTES))
        print(json.dumps(facts))


if __name__ == "__main__":
    main()
