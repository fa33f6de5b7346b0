"""The clock goes back by an hour whenever it is read."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from pathlib import Path

from tests.faults import runs
from tests.faults.checks import check_whole, expect, records
from tests.faults.runs import PLAIN, SIMCSE, TRAINED, Work, run, undisturbed
from tests.faults.scripts import Parts, script


def backwards(folder: Path, work: Work, workers: int = 1) -> Counter[str]:
    expected, scratch = undisturbed(work, folder / "undisturbed"), folder / "backwards"
    scratch.mkdir()
    command = work.command(scratch, "--workers", str(workers))
    for added in ((), ("--force",), ("--seeds", "1-7", "--estimate")):
        done = run(scratch, [*command, *added], fault="clock")
        expect(done.code == 0, f"{' '.join(added)}: {done.error[-800:]}")
        expect("-" not in done.error.replace("avg -", "avg "), f"a negative duration? {done.error}")
    check_whole(scratch, expected)
    starts = []
    for record in records(scratch):
        seconds = _numbers(record.timing)
        expect(seconds and min(seconds) >= 0, f"a negative duration: {record.timing}")
        starts.append(datetime.fromisoformat(record.timing["started"]).timestamp())
    if workers == 1:
        expect(starts[0] > starts[-1], "the clock didn't go back, so nothing was shown")
    for report in (["report"], ["report", "--format", "html"], ["stats", "--draws", "100"]):
        done = run(scratch, report, fault="clock")
        expect(done.code == 0, f"{' '.join(report)}: {done.error[-500:]}")
    return Counter({"commands": 6})


def backwards_elsewhere(folder: Path, work: Work) -> Counter[str]:
    expected, scratch = undisturbed(work, folder / "undisturbed"), folder / "backwards"
    scratch.mkdir()
    done = run(scratch, work.command(scratch), fault="clock")
    expect(done.code == 0, done.error[-800:])
    check_whole(scratch, expected)
    return Counter({"commands": 1})


def _numbers(value: object) -> list[float]:
    if isinstance(value, dict):
        return [number for item in value.values() for number in _numbers(item)]
    return [float(value)] if isinstance(value, int | float) else []


def everything(folder: Path, options: dict[str, int]) -> Parts:
    for work in (PLAIN, TRAINED, SIMCSE):
        for workers in (1, 2):
            part = f"{work.name}-{workers}"
            yield part, backwards(folder / part, work, workers)
    for work in (runs.SWEEP, runs.PRETRAIN, runs.FETCH, runs.TEXT, runs.REPORT):
        yield work.name, backwards_elsewhere(folder / work.name, work)


if __name__ == "__main__":
    script(__doc__, everything)
