"""The README's demo from an empty folder: five seeds of both twins in the embedded world, and the report.

Each command is a process of its own, as a user starts it. The goal is 180 seconds by the clock on two free
cores, start-up included. Where the CPU seconds went stands in the records: stages by what they train, each
counted once where methods share it, and what is left, which is evaluation, reading and start-up.

    python benchmarks/end_to_end.py [--methods jtcse,tncse] [--seeds 1-5] [--workers 2] [--json]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from claim import add_json, run_timed, show, within

GOAL = 180


def bench(*arguments: str) -> tuple[float, float]:
    """Run the command; wall and CPU seconds, its workers' included."""
    return run_timed([sys.executable, "-m", "bench", *arguments], subprocess.DEVNULL)


def stage_seconds(results: Path) -> dict[str, float]:
    """CPU seconds of the stages by their role, each stage once."""
    stages: dict[str, tuple[str, float]] = {}
    for path in sorted(results.glob("*/*/*/seed-*/*.json")):
        record = json.loads(path.read_text(encoding="utf-8"))
        seconds = record["timing"].get("training_cpu_seconds", {})
        for role, facts in record["training"].get("stages", {}).items():
            stages[facts["key"]] = role, seconds[role]
    by_role: defaultdict[str, float] = defaultdict(float)
    for role, value in stages.values():
        by_role[role.rpartition("/")[2]] += value
    return {role: round(value, 1) for role, value in by_role.items()}


def main() -> None:
    """Measure and print one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--methods", default="jtcse,tncse")
    parser.add_argument("--seeds", default="1-5")
    parser.add_argument("--workers", default="2")
    parser.add_argument("--suite", default="mini")
    add_json(parser)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        results = Path(temporary) / "results"
        what = ["--methods", given.methods, "--seeds", given.seeds, "--suite", given.suite]
        run_wall, run_cpu = bench("run", *what, "--workers", given.workers, "--results", str(results))
        report_wall, report_cpu = bench("report", "--results", str(results))
        stages = stage_seconds(results)
    facts = {
        "benchmark": "end_to_end",
        "run_seconds": round(run_wall, 1),
        "report_seconds": round(report_wall, 1),
        "cpu_seconds": round(run_cpu + report_cpu, 1),
        "stages_cpu_seconds": stages,
        "rest_cpu_seconds": round(run_cpu + report_cpu - sum(stages.values()), 1),
    }
    print(json.dumps(facts))
    said = f"{given.methods}, seeds {given.seeds}, {given.workers} workers, and the report, by the clock"
    claim = within("end_to_end", said, ours=run_wall + report_wall, unit="s", goal=GOAL)
    show(given.json, claim)


if __name__ == "__main__":
    main()
