"""What more seeds and more methods cost: CPU seconds of 1, 2, 4 and 8 seeds, and of 1, 2 and 4 methods.

Every point goes on from the one before it in the same folder, as finished cells are never computed again; its
figure is the sum so far, so it holds one start of the program more. Methods share training stages: what they
would cost apart is what is left of the run without its stages, and every stage as often as it is used.

    python benchmarks/cost_curves.py [--method tncse] [--methods tncse,jtcse,tncse_d,jtcse_d] [--json]
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

from claim import add_json, bounded, faster, show
from end_to_end import bench, stage_seconds

SEEDS = (1, 2, 4, 8)
METHODS = "tncse,jtcse,tncse_d,jtcse_d"


def curve(points: list[tuple[int, list[str]]], results: Path, more: list[str]) -> dict[int, float]:
    """CPU seconds so far at each point (number, options of ``bench run``)."""
    total, found = 0.0, {}
    for number, options in points:
        total += bench("run", *options, *more, "--workers", "1", "--results", str(results))[1]
        found[number] = round(total, 1)
    return found


def used_seconds(results: Path) -> float:
    """CPU seconds of the stages, each as often as a method uses it."""
    records = [json.loads(p.read_text(encoding="utf-8")) for p in results.glob("*/*/*/seed-*/*.json")]
    return sum(sum(record["timing"].get("training_cpu_seconds", {}).values()) for record in records)


def main() -> None:
    """Measure and print one JSON line a curve."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--method", default="tncse")
    parser.add_argument("--methods", default=METHODS, help="as many as the longest point has")
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    parser.add_argument("--suite", default="mini")
    add_json(parser)
    given = parser.parse_args()
    more = ["--suite", given.suite]
    with tempfile.TemporaryDirectory() as temporary:
        points = [(n, ["--methods", given.method, "--seeds", f"1-{n}"]) for n in given.seeds]
        seeds = curve(points, Path(temporary) / "seeds", more)
        names = given.methods.split(",")
        counts = sorted({1, min(2, len(names)), len(names)})
        points = [(n, ["--methods", ",".join(names[:n]), "--seeds", "1"]) for n in counts]
        results = Path(temporary) / "methods"
        methods = curve(points, results, more)
        shared, used = sum(stage_seconds(results).values()), used_seconds(results)
    apart = methods[counts[-1]] - shared + used
    print(json.dumps({"benchmark": f"cost_curves, seeds of {given.method}", "cpu_seconds": seeds}))
    facts = {"benchmark": f"cost_curves, {given.methods}", "cpu_seconds": methods}
    print(json.dumps(facts | {"apart_cpu_seconds": round(apart, 1)}))
    first, last = given.seeds[0], given.seeds[-1]
    what = f"{given.method}, {last} seeds: {last // first} x {first} of them"
    show(
        given.json,
        bounded("cost_curves seeds", what, ours=seeds[last], peer=seeds[first] * last / first),
        faster(
            "cost_curves methods",
            f"{given.methods}, a seed: the same with no stage shared",
            ours=methods[counts[-1]],
            peer=apart,
        ),
    )


if __name__ == "__main__":
    main()
