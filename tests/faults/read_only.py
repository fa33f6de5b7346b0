"""A results folder, or a part of it, that can only be read."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from tests.faults.checks import Done, check_one_line, expect, finished, stable
from tests.faults.runs import PLAIN, TRAINED, run
from tests.faults.scripts import Parts, own_mounts, script

READ_ONLY = "Read-only file system"
READING: tuple[tuple[str, ...], ...] = (
    *(("report", "--format", form) for form in ("text", "markdown", "csv", "json", "latex", "html")),
    ("report", "--table", "significance"),
    ("compare", "fault_trained", "fault_trained[scale=2]", "--draws", "100"),
    ("compare", "--show-items", "fault_trained", "fault_trained[scale=2]"),
    ("stats", "--draws", "100"),
)


def read_only(folder: Path, *, mounted: bool = False) -> Counter[str]:
    folder.mkdir()
    results, counts = folder / "results", Counter[str]()
    command = TRAINED.command(folder)
    for campaign in ("local", "other"):
        done = run(folder, [*command, "--campaign", campaign])
        expect(done.code == 0, done.error)
    before, expected = finished(folder), stable(folder)
    writable = {arguments: run(folder, arguments) for arguments in READING}
    for draws in results.glob("*/stats/*"):
        draws.unlink()

    with _refused(folder, results, mounted) as run_there:
        additions = (["--seeds", "3"], ["--force"], ["--campaign", "new"])
        for refused in (PLAIN.command(folder), *([*command, *options] for options in additions)):
            check_one_line(run_there(refused), f"can't be written: {READ_ONLY}", "results")
            counts["one line"] += 1
        for arguments, allowed in writable.items():
            result = run_there(arguments)
            same = (result.code, result.out) == (0, allowed.out)
            expect(same, f"bench {' '.join(arguments)}: {result.code}, {result.error[-500:]}")
            counts["read"] += 1
        for idle in (command, [*command, "--dry-run"]):
            done = run_there(idle)
            expect(done.code == 0, f"nothing to do, and yet: {done.error[-500:]}")
            counts["read"] += 1
    expect((finished(folder), stable(folder)) == (before, expected), "something was changed")

    with _refused(folder, results / ".stages", mounted) as run_there:  # others' stages can be shared
        done = run_there([*command, "--campaign", "shared"])
        expect(done.code == 0 and stable(folder, "shared") == expected, done.error)
        counts["read"] += 1
        done = run_there([*command, "--campaign", "shared", "--seeds", "1-3"])
        check_one_line(done, "results/.stages: stage 'base' can't be kept", READ_ONLY)
        counts["one line"] += 1
    cell = next((results / "local").glob("mini*/fault_trained/seed-1"))
    with _refused(folder, cell, mounted) as run_there:
        check_one_line(run_there([*command, "--force"]), f"{cell.name}/toy.json", READ_ONLY)
        counts["one line"] += 1
    done = run(folder, command)
    expect(done.code == 0 and stable(folder) == expected, done.error)
    return counts


@contextmanager
def _refused(scratch: Path, folder: Path, mounted: bool) -> Iterator[Callable[[Sequence[str]], Done]]:
    if not mounted:  # an injected error binds root as well, which file modes don't
        yield partial(run, scratch, fault="read_only", BENCH_FAULT_BELOW=str(folder))
        return
    for options in (["--bind", str(folder)], ["-o", "remount,bind,ro"]):
        subprocess.run(["mount", *options, str(folder)], check=True)  # noqa: S607
    try:
        yield partial(run, scratch)
    finally:
        subprocess.run(["umount", str(folder)], check=True)  # noqa: S607


def everything(folder: Path, options: dict[str, int]) -> Parts:
    mounted = own_mounts("tests.faults.read_only")
    print("mounted read-only" if mounted else "no file system may be mounted: the error is injected")
    yield "read-only", read_only(folder / "one", mounted=mounted)


if __name__ == "__main__":
    script(__doc__, everything)
