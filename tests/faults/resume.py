"""SIGKILL, SIGTERM and Ctrl-C at random moments of a training with checkpoints, then the same command."""

from __future__ import annotations

import signal
import time
from collections import Counter
from pathlib import Path

import numpy as np

from tests.faults.checks import Done, expect
from tests.faults.runs import LONG, LONG_PRETRAIN, STARTED, Work
from tests.faults.scripts import Parts, Target, rounds, script

_CODES = {signal.SIGKILL: -signal.SIGKILL, signal.SIGTERM: 143, signal.SIGINT: 130}
_SHARE = 0.6  # of an undisturbed command's time: what goes on has less to do
_KINDS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT)


def resume(folder: Path, work: Work, kills: int, *, seed: int = 1, workers: int = 1) -> Counter[str]:
    """Kill a command and repeat it until it ends; counts the signals and the runs that went on."""
    rng = np.random.default_rng([seed, workers])
    resumed = Counter[str]()

    def disturb(target: Target) -> tuple[Done, str]:
        started = target.start()
        started.wait_for(target.folder / STARTED)
        number = _KINDS[rng.integers(len(_KINDS))]
        time.sleep(rng.uniform(0, _SHARE * target.seconds))
        started.signal(number)
        done = started.wait()
        resumed["resumed from a checkpoint"] += done.error.count("resumed after step")
        expect("is not used" not in done.error, f"a checkpoint was lost: {done.error[-500:]}")
        if done.code == 0:
            return done, ""
        expect(done.code == _CODES[number], f"exit code {done.code} after {number.name}: {done.error[-800:]}")
        expect("Traceback" not in done.error, f"a traceback: {done.error[-800:]}")
        return done, f"{number.name} ({work.verb[0]})"

    return rounds(folder, work, kills, disturb, workers=workers) + resumed


def everything(folder: Path, options: dict[str, int]) -> Parts:
    kills, seed = options["kills"], options["seed"]
    for work, workers, share in ((LONG, 1, 35), (LONG, 2, 15), (LONG_PRETRAIN, 1, 50)):
        part = f"{work.name}, {workers} workers" if work is LONG else work.name
        count = -(-kills * share // 100)
        yield part, resume(folder / part.replace(" ", "-"), work, count, seed=seed, workers=workers)


if __name__ == "__main__":
    script(__doc__, everything, kills=10, seed=1)
