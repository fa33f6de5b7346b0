"""Several processes on one results folder, also with some killed while they hold a lock."""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path

import numpy as np

from tests.faults.checks import check_whole, expect
from tests.faults.runs import PLAIN, TRAINED, Work, changes, start
from tests.faults.scripts import Parts, script


def share(
    folder: Path,
    work: Work,
    processes: int,
    *,
    workers: int = 1,
    kills: int = 0,
    seed: int = 1,
    warm: bool = True,
) -> Counter[str]:
    rng = np.random.default_rng([seed, processes, workers, kills])
    expected, made = changes(work, folder / "undisturbed", "--workers", str(workers))
    scratch = folder / "shared"
    scratch.mkdir()
    command = work.command(scratch, "--workers", str(workers))
    killed_at = rng.integers(1, len(made) // 2, kills)  # each makes a part of the changes
    faults = [f"kill_all:{at}" for at in killed_at] + [""] * (processes - kills)
    runs = [start(scratch, command, warm=warm, fault=fault, FAULT_WAIT="0.05") for fault in faults]
    codes = [run.wait() for run in runs]
    killed = sum(done.code == -signal.SIGKILL for done in codes[:kills])
    for done in codes[killed:] if killed == kills else codes:
        expect(done.code in (0, -signal.SIGKILL), f"exit code {done.code}: {done.error[-800:]}")
    check_whole(scratch, expected)
    log = Counter((scratch / "log").read_text().splitlines())
    once = Counter((folder / "undisturbed" / "log").read_text().splitlines())
    expect(log.keys() == once.keys(), f"made: {sorted(log)}")
    again = sum((log - once).values())
    expect(again <= killed * workers, f"made more than once: {log - once}")
    return Counter({f"folders shared by {processes}": 1, "killed with a lock": killed, "made again": again})


def everything(folder: Path, options: dict[str, int]) -> Parts:
    for number in range(options["rounds"]):
        seed = options["seed"] + number
        for work in (PLAIN, TRAINED):
            for processes, workers, kills in ((2, 1, 0), (2, 2, 0), (3, 1, 0), (2, 1, 1), (3, 2, 2)):
                part = f"{work.name}-{processes}-{workers}-{kills}-{number}"
                yield part, share(folder / part, work, processes, workers=workers, kills=kills, seed=seed)
    yield "cold", share(folder / "cold", PLAIN, 2, warm=False)


if __name__ == "__main__":
    script(__doc__, everything, rounds=10, seed=1)
