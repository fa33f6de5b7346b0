"""SIGINT, once and twice, while a command starts, trains, writes and ends; then the same command."""

from __future__ import annotations

import signal
import time
from collections import Counter
from pathlib import Path

import numpy as np

from tests.faults.checks import Done, NotSurvivedError, expect
from tests.faults.runs import INTERRUPTED, PLAIN, SIMCSE, STARTED, TRAINED, Work
from tests.faults.scripts import Parts, Target, rounds, script, shared_out

_NEVER = ("Traceback", "Exception ignored", "KeyboardInterrupt", "leaked", "FAILED")


def interrupt(
    folder: Path, work: Work, interrupts: int, *, seed: int = 1, workers: int = 1, warm: bool = True
) -> Counter[str]:
    rng = np.random.default_rng([seed, workers, warm])

    def disturb(target: Target) -> tuple[Done, str]:
        started = target.start()
        started.wait_for(target.folder / STARTED)
        # to the whole group, as from a terminal, or to the parent
        group, twice = bool(rng.random() < 0.5), bool(rng.random() < 0.5)
        time.sleep(0.002 + rng.uniform(0, target.seconds))
        started.signal(signal.SIGINT, group=group)
        if twice:
            time.sleep(rng.uniform(0, 0.2))
            started.signal(signal.SIGINT, group=group)
        done = started.wait()
        if done.code == 0:
            return done, ""
        check_interrupted(done)
        return done, "interrupted twice" if twice else "interrupted"

    return rounds(folder, work, interrupts, disturb, workers=workers, warm=warm)


def check_interrupted(done: Done) -> None:
    if done.code != 130 or done.error.count(INTERRUPTED) != 1:
        raise NotSurvivedError(f"exit code {done.code} of an interrupted run: {done.error[-1500:]}")
    for word in _NEVER:
        expect(word not in done.error + done.out, f"'{word}' of an interrupted run: {done.error[-1500:]}")


def everything(folder: Path, options: dict[str, int]) -> Parts:
    plain = ((PLAIN, 1, False, 25), (PLAIN, 2, False, 20), (PLAIN, 2, True, 10))
    trained = ((TRAINED, 1, True, 10), (TRAINED, 2, True, 15), (SIMCSE, 1, False, 5), (SIMCSE, 2, True, 15))
    yield from shared_out(interrupt, folder, options["interrupts"], options["seed"], *plain, *trained)


if __name__ == "__main__":
    script(__doc__, everything, interrupts=100, seed=1)
