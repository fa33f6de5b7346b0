"""SIGKILL at random moments, and just before a random change of the results folder, then the same command.

``python -m tests.faults.kill --kills 200``
"""

from __future__ import annotations

import signal
import time
from collections import Counter
from pathlib import Path

import numpy as np

from tests.faults.checks import Done, expect
from tests.faults.rounds import Target, rounds, shared_out
from tests.faults.runs import PLAIN, SIMCSE, TRAINED, Work, finish, run, undisturbed
from tests.faults.scripts import Parts, script

ALL = (PLAIN, TRAINED, SIMCSE)


def kill(
    folder: Path, work: Work, kills: int, *, seed: int = 1, workers: int = 1, warm: bool = True
) -> Counter[str]:
    """Kill runs of one work and resume them until so many were killed.

    Half of the kills come at a random moment, half just before a random change of the results folder.

    Args:
        folder: A new folder.
        work: What runs.
        kills: How many.
        seed: Of the moments.
        workers: With 2, the parent, the whole group or a single worker is hit.
        warm: See :func:`tests.faults.runs.start`.

    Returns:
        How often what was killed, and how many times the work was completed.

    Raises:
        NotSurvivedError: see :func:`tests.faults.rounds.rounds`.
    """
    rng = np.random.default_rng([seed, ALL.index(work), workers, warm])

    def disturb(target: Target) -> tuple[Done, str]:
        if rng.random() < 0.5:
            done = target.start(f"kill:{rng.integers(1, target.changes + 1)}").wait()
            return done, _what(done, "run, before a change")
        started = target.start()
        time.sleep(rng.uniform(0, target.seconds))
        group = workers > 1 and bool(rng.random() < 0.5)
        started.signal(signal.SIGKILL, group=group)
        done = started.wait()
        return done, _what(done, "run with its workers" if group else "run")

    return rounds(folder, work, kills, disturb, workers=workers, warm=warm)


def _what(done: Done, hit: str) -> str:
    """Say what was killed, "" for nothing."""
    if done.code == -signal.SIGKILL:
        return hit
    died = "error: a worker process died" in done.error and "Traceback" not in done.error
    return "worker" if done.code == 1 and died else ""


def kill_forced(folder: Path, work: Work, kills: int, *, seed: int = 1) -> Counter[str]:
    """Kill ``--force`` on a finished campaign, then run it without: old or new, every cell is whole.

    Args:
        folder: A new folder.
        work: What runs.
        kills: How many.
        seed: Of the moments.

    Returns:
        How many kills were hit.
    """
    rng, counts = np.random.default_rng(seed), Counter[str]()
    expected = undisturbed(work, folder)
    command = work.command(folder)
    expect(
        run(folder, [*command, "--force"], fault=f"count:{folder / 'changes'}").code == 0, "--force failed"
    )
    changes = int((folder / "changes").read_text())
    while counts["forced run"] < kills:
        done = run(folder, [*command, "--force"], fault=f"kill:{rng.integers(1, changes + 1)}")
        counts["forced run"] += done.code == -signal.SIGKILL
        finish(folder, command, expected)
    return counts


def everything(folder: Path, options: dict[str, int]) -> Parts:
    """Kill every work, with one worker and with two, from a warm process and, now and then, cold."""
    kills, seed = options["kills"], options["seed"]
    plain = ((PLAIN, 1, True, 15), (PLAIN, 2, True, 15), (PLAIN, 1, False, 4), (PLAIN, 2, False, 4))
    trained = ((TRAINED, 1, True, 20), (TRAINED, 2, True, 20), (SIMCSE, 1, True, 12), (SIMCSE, 2, True, 10))
    yield from shared_out(kill, folder, kills, seed, *plain, *trained)
    yield "forced", kill_forced(folder / "forced", PLAIN, -(-kills // 20), seed=seed)


if __name__ == "__main__":
    script(__doc__, everything, kills=200, seed=1)
