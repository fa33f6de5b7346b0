"""SIGKILL at a change of what a command writes, also in the middle of a file, then the same command."""

from __future__ import annotations

import re
import shutil
import signal
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from pathlib import Path, PurePosixPath

import numpy as np

from tests.faults import runs
from tests.faults.checks import Done, NotSurvivedError, check_kept, expect, finished
from tests.faults.runs import PLAIN, SIMCSE, TRAINED, Change, Work, changes, finish, run, undisturbed, where
from tests.faults.scripts import Parts, Target, rounds, script, shared_out


def kill(
    folder: Path,
    work: Work,
    kills: int,
    *,
    seed: int = 1,
    workers: int = 1,
    warm: bool = True,
    moment: tuple[str, str] | None = None,
) -> Counter[str]:
    rng = np.random.default_rng([seed, workers, warm])
    extra = ("--workers", str(workers)) if work.verb[0] == "run" else ()
    expected, made = changes(work, folder / "undisturbed", *extra, warm=warm)
    numbers = range(len(made)) if moment is None else where(made, *moment)
    counts, drawn = Counter[str](), in_turn(made, numbers, rng)
    for number in range(10 * (kills + 5)):
        if counts.total() >= kills:
            return counts
        scratch = folder / f"kill-{number}"
        scratch.mkdir()
        command, at = work.command(scratch, *extra), next(drawn)
        group = workers > 1 and bool(rng.random() < 0.5)
        done = run(scratch, command, fault=f"{'kill_all' if group else 'kill'}:{at + 1}", warm=warm)
        if workers == 1:
            expect(done.code == -signal.SIGKILL, f"not killed at {made[at]}: {done}")
            counts[f"at {made[at].kind}"] += 1
        else:
            counts += _hit(done, group=group)
        if rng.random() < 0.2 and counts.total() < kills:  # what goes on from there is killed as well
            before = finished(scratch)
            done = run(scratch, command, fault=f"kill:{rng.integers(1, len(made) + 1)}", warm=warm)
            check_kept(before, finished(scratch))
            counts += Counter({"as it went on": _hit(done).total()})
        finish(scratch, command, expected)
        shutil.rmtree(scratch)
    raise NotSurvivedError(f"hardly a run is hit: {dict(counts)}")


def in_turn(made: Sequence[Change], numbers: Iterable[int], rng: np.random.Generator) -> Iterator[int]:
    """Yield numbers of changes without end: one of each kind, file type and folder, then the next of each."""
    kinds: dict[tuple[object, ...], list[int]] = {}
    for number in numbers:
        path = PurePosixPath(made[number].path)
        folders = tuple(part for part in path.parts[:3] if not part.startswith("."))
        endings = tuple(re.findall(r"\.[a-z]{3,4}(?=\.|$)", path.name))
        kinds.setdefault((made[number].kind, folders, endings), []).append(number)
    expect(bool(kinds), "no change is of that kind and path")
    groups = [rng.permutation(places) for places in kinds.values()]
    for turn in count():
        for group in rng.permutation(len(groups)):
            yield int(groups[group][turn % len(groups[group])])


def _hit(done: Done, *, group: bool = False) -> Counter[str]:
    """What of a run with workers was killed; raises NotSurvivedError for a run that ended in another way."""
    if done.code == -signal.SIGKILL:
        return Counter({"a run with its workers" if group else "a run, not its workers": 1})
    died = "error: a worker process died" in done.error and "Traceback" not in done.error
    expect(done.code == 0 or (done.code == 1 and died), f"exit code {done.code}: {done.error[-800:]}")
    return Counter({"a worker": int(died)})


def kill_forced(folder: Path, work: Work, kills: int, *, seed: int = 1) -> Counter[str]:
    rng = np.random.default_rng(seed)
    alone = "--workers", "1"
    expected, command = undisturbed(work, folder), work.command(folder, *alone)
    _, made = changes(work, folder, *alone, "--force")
    for number in rng.choice(len(made), kills, replace=kills > len(made)):
        done = run(folder, [*command, "--force"], fault=f"kill:{number + 1}")
        expect(done.code == -signal.SIGKILL, f"not killed at {made[number]}: {done}")
        finish(folder, command, expected)
    return Counter({"a forced run": kills})


def kill_at_random_moments(folder: Path, work: Work, kills: int, *, seed: int = 1) -> Counter[str]:
    """Kill runs at moments that no change tells of, as while a library writes weights, and resume them."""
    rng = np.random.default_rng(seed)

    def disturb(target: Target) -> tuple[Done, str]:
        started = target.start()
        time.sleep(rng.uniform(0, target.seconds))
        started.signal(signal.SIGKILL)
        done = started.wait()
        return done, "at a random moment" if done.code == -signal.SIGKILL else ""

    return rounds(folder, work, kills, disturb)


def everything(folder: Path, options: dict[str, int]) -> Parts:
    kills, seed = options["kills"], options["seed"]
    plain = ((PLAIN, 1, True, 10), (PLAIN, 2, True, 8), (PLAIN, 1, False, 2), (PLAIN, 2, False, 2))
    trained = ((TRAINED, 1, True, 10), (TRAINED, 2, True, 8), (SIMCSE, 1, True, 4), (SIMCSE, 2, True, 3))
    shares = {runs.FETCH: 8, runs.TEXT: 6, runs.PRETRAIN: 7, runs.SWEEP: 12, runs.REPORT: 6}
    others = [(work, 1, True, share) for work, share in (shares | {runs.BUNDLE: 4, runs.MERGE: 10}).items()]
    yield from shared_out(kill, folder, kills, seed, *plain, *trained, *others)
    yield "forced", kill_forced(folder / "forced", PLAIN, -(-kills // 33), seed=seed)
    yield "moments", kill_at_random_moments(folder / "moments", SIMCSE, -(-kills // 33), seed=seed)


if __name__ == "__main__":
    script(__doc__, everything, kills=200, seed=1)
