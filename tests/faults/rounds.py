"""A run that is disturbed and started again until it ends; then the same anew, until it is enough."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.faults.checks import Done, check_kept, check_whole, expect, finished, stable
from tests.faults.runs import STARTED, Run, Work, run, start
from tests.faults.scripts import Parts

_COLD = 1.5
"""Seconds that imports take about; a cold run that ends before says how long it takes."""


@dataclass
class Target:
    """A run that is to be disturbed."""

    folder: Path
    command: list[str]
    warm: bool
    seconds: float

    def start(self) -> Run:
        """Start it."""
        return start(self.folder, self.command, warm=self.warm)


Disturb = Callable[[Target], tuple[Done, str]]
"""Starts a run and disturbs it; returns what it left and, unless it came to its end, what was hit."""


def rounds(
    folder: Path, work: Work, hits: int, disturb: Disturb, *, workers: int = 1, warm: bool = True
) -> Counter[str]:
    """Disturb runs of one work and resume them until so many were hit."""
    more, whole = ("--workers", str(workers)), folder / "undisturbed"
    whole.mkdir(parents=True)
    first = start(whole, work.command(whole, *more))
    first.wait_for(whole / STARTED)
    began, done = time.monotonic(), first.wait()
    expect(done.code == 0, f"the undisturbed run failed: {done.error[-500:]}")
    seconds = time.monotonic() - began + (0 if warm else _COLD)
    expected, counts, completed = stable(whole), Counter[str](), 0
    while counts.total() < hits:
        expect(completed < 10 * (hits + 5), "hardly a run is hit")
        scratch = folder / f"round-{completed}"
        scratch.mkdir()
        target = Target(scratch, work.command(scratch, *more), warm, seconds)
        before: dict[Path, int] = {}
        while True:
            enough, began = counts.total() >= hits, time.monotonic()
            done, hit = (run(scratch, target.command), "") if enough else disturb(target)
            after = finished(scratch)
            check_kept(before, after)
            if done.code == 0:
                break
            expect(hit, f"exit code {done.code}: {done.error[-800:]}")
            counts[hit] += 1
            before = after
        if not before:  # nothing was hit: the machine is quicker than it was
            seconds = min(seconds, time.monotonic() - began)
        check_whole(scratch, expected)
        completed += 1
    return counts + Counter({"completed": completed})


def shared_out(
    disturbed: Callable[..., Counter[str]],
    folder: Path,
    count: int,
    seed: int,
    *shares: tuple[Work, int, bool, int],
) -> Parts:
    """Disturb works so often each: a work, its workers, whether it is warm, and its share of a hundred."""
    for work, workers, warm, share in shares:
        part = f"{work.name}-{workers}-{'warm' if warm else 'cold'}"
        number = -(-count * share // 100)
        yield part, disturbed(folder / part, work, number, seed=seed, workers=workers, warm=warm)
