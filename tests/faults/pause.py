"""A process that is stopped at a change, such as half a file, while another has the same folder."""

from __future__ import annotations

import shutil
import signal
from collections import Counter
from pathlib import Path

import numpy as np

from tests.faults.checks import check_whole, expect, finished
from tests.faults.kill import in_turn
from tests.faults.runs import FETCH, PLAIN, REPORT, SWEEP, TEXT, TRAINED, Work, changes, finish, start
from tests.faults.scripts import Parts, script


def pause(folder: Path, work: Work, stops: int, *, seed: int = 1) -> Counter[str]:
    """Stop a command at changes of its folder, start it a second time, and let the first go on, or kill it.

    The second one ends, or does all but what the first has locked, and waits.
    """
    rng, counts = np.random.default_rng(seed), Counter[str]()
    extra = ("--workers", "1") if work.verb[0] == "run" else ()
    expected, made = changes(work, folder / "undisturbed", *extra)
    once = Counter(_log(folder / "undisturbed"))
    drawn = in_turn(made, range(len(made)), rng)
    for number in range(stops):
        scratch, at = folder / f"stop-{number}", next(drawn)
        scratch.mkdir()
        command, waits = work.command(scratch, *extra), scratch / "waits"
        first = start(scratch, command, fault=f"stop:{at + 1}")
        first.wait_until_stopped()
        finished(scratch)  # or it raises
        second = start(scratch, command, fault=f"waits:{waits}")
        waited = second.wait_for_end_or(waits)
        ending = signal.SIGKILL if rng.random() < 0.25 else signal.SIGCONT
        first.signal(ending)
        codes = (0, -signal.SIGKILL) if ending == signal.SIGKILL else (0,)
        for done in (first.wait(), second.wait()):
            expect(done.code in codes, f"exit code {done.code}, stopped at {made[at]}: {done.error[-800:]}")
        if ending == signal.SIGCONT:
            check_whole(scratch, expected)
            again = Counter(_log(scratch)) - once
            expect(not again, f"made twice, stopped at {made[at]}: {again}")
        finish(scratch, command, expected)
        what = "went on" if ending == signal.SIGCONT else "was killed"
        counts[f"waited until it {what}" if waited else f"ended before it {what}"] += 1
        shutil.rmtree(scratch)
    return counts


def _log(folder: Path) -> list[str]:
    log = folder / "log"
    return log.read_text().splitlines() if log.exists() else []


def everything(folder: Path, options: dict[str, int]) -> Parts:
    for work, share in ((PLAIN, 30), (TRAINED, 30), (SWEEP, 10), (FETCH, 10), (TEXT, 10), (REPORT, 10)):
        stops = -(-options["stops"] * share // 100)
        yield work.name, pause(folder / work.name, work, stops, seed=options["seed"])


if __name__ == "__main__":
    script(__doc__, everything, stops=40, seed=1)
