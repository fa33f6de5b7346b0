"""Run cases by hand: ``python -m tests.fuzz --cases 20000 --seed 1 [--surface records] [--case N]``."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from tests.conftest import PLUGIN
from tests.fuzz.core import ANSWER, REFUSED, Failure, run_case
from tests.fuzz.surfaces import SURFACES, cases_of


def main() -> int:
    """Run them; exit with 1 if one broke a rule."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--cases", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--surface", choices=sorted(SURFACES))
    parser.add_argument("--case", type=int, help="Only this one of --surface.")
    parser.add_argument("--stop", type=int, default=10, help="After so many failures of a surface.")
    given = parser.parse_args()
    if given.case is not None and given.surface is None:
        parser.error("--case needs --surface")
    os.environ |= {"HF_HUB_OFFLINE": "1", "BENCH_WORKERS": "1", "COLUMNS": "120"}
    os.environ.pop("BENCH_DATA", None)
    failed = 0
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        (Path(folder) / "bench_test_methods.py").write_text(PLUGIN)
        sys.path.insert(0, folder)
        __import__("bench_test_methods")
        for name, count in cases_of(given.cases, given.surface).items():
            place = Path(folder) / name
            place.mkdir()
            numbers = range(count) if given.case is None else [given.case]
            failed += _run(name, place, given.seed, numbers, given.stop)
        os.chdir("/")
    return 1 if failed else 0


def _run(name: str, folder: Path, seed: int, numbers: Iterable[int], stop: int) -> int:
    counts, wall, cpu = Counter[str](), time.perf_counter(), time.process_time()
    surface = SURFACES[name](folder)
    for number in numbers:
        outcome = run_case(surface, seed, number)
        counts["failed" if isinstance(outcome, Failure) else outcome] += 1
        if isinstance(outcome, Failure):
            print(outcome, end="\n\n", flush=True)
            if counts["failed"] >= stop:
                break
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    print(
        f"{name:10} {counts.total():6,} cases: {counts[ANSWER]:6,} answers, {counts[REFUSED]:6,} refused, "
        f"{counts['failed']} failures; {cpu:.0f} CPU s, {wall:.0f} s",
        flush=True,
    )
    return counts["failed"]


if __name__ == "__main__":
    sys.exit(main())
