"""Faults as scripts: their options, their scratch folder, what they print, file systems of their own."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from tests.faults.checks import Done, NotSurvivedError, check_kept, check_whole, expect, finished, stable
from tests.faults.runs import STARTED, Run, Work, run, start

Parts = Iterator[tuple[str, Counter[str]]]
"""Names of a script's parts, and what was counted in each."""


def own_mounts(module: str) -> bool:
    """Go on in a namespace where this script may mount file systems; returns False if none is permitted."""
    if "BENCH_FAULT_MOUNTS" not in os.environ:
        inside = ["unshare", "-Urm"]
        try:
            tried = subprocess.run([*inside, "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True)
        except FileNotFoundError:
            return False
        if tried.returncode:
            return False
        os.environ["BENCH_FAULT_MOUNTS"] = "1"
        os.execvp(inside[0], [*inside, sys.executable, "-m", module, *sys.argv[1:]])  # noqa: S606
    return True


def script(about: str | None, survive: Callable[[Path, dict[str, int]], Parts], **options: int) -> NoReturn:
    parser = argparse.ArgumentParser(description=about)
    for name, default in options.items():
        parser.add_argument(f"--{name}", type=int, default=default, help=f"default {default}")
    parser.add_argument("--keep", type=Path, help="folder to work in, kept; default a temporary one")
    given = vars(parser.parse_args())
    keep, counts = given.pop("keep"), Counter[str]()
    with tempfile.TemporaryDirectory(prefix="bench-faults-") as temporary:
        folder = keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        try:
            for part, survived in survive(folder, given):
                print(f"{part}: {dict(survived)}", flush=True)
                counts += survived
        except NotSurvivedError as failure:
            print(f"FAILED: {failure}")
            sys.exit(1)
    print("survived: " + ", ".join(f"{count} {what}" for what, count in counts.items()))
    sys.exit()


_COLD = 1.5
"""Seconds that imports take about; a cold run that ends before says how long it takes."""


@dataclass
class Target:
    folder: Path
    command: list[str]
    warm: bool
    seconds: float

    def start(self) -> Run:
        return start(self.folder, self.command, warm=self.warm)


Disturb = Callable[[Target], tuple[Done, str]]
"""Starts a run and disturbs it; returns what it left and, unless it came to its end, what was hit."""


def rounds(
    folder: Path, work: Work, hits: int, disturb: Disturb, *, workers: int = 1, warm: bool = True
) -> Counter[str]:
    extra = ("--workers", str(workers)) if work.verb[0] == "run" else ()
    whole = folder / "undisturbed"
    whole.mkdir(parents=True)
    first = start(whole, work.command(whole, *extra))
    first.wait_for(whole / STARTED)
    began, done = time.monotonic(), first.wait()
    expect(done.code == 0, f"the undisturbed run failed: {done.error[-500:]}")
    seconds = time.monotonic() - began + (0 if warm else _COLD)
    expected, counts, completed = stable(whole), Counter[str](), 0
    while counts.total() < hits:
        expect(completed < 10 * (hits + 5), "hardly a run is hit")
        scratch = folder / f"round-{completed}"
        scratch.mkdir()
        target = Target(scratch, work.command(scratch, *extra), warm, seconds)
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
