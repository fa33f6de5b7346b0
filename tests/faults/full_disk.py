"""No space left while records, predictions, stages, vectors or a report are written; then there is some."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.faults.checks import Done, check_nothing_left, check_one_line, expect
from tests.faults.runs import DRAWN, PLAIN, SIMCSE, TRAINED, Work, changes, finish, run, undisturbed
from tests.faults.scripts import Parts, own_mounts, script

NO_SPACE = "No space left on device"
_PAGE = 4096
_DISK = 16 << 20
REPORTS: tuple[tuple[str, ...], ...] = (
    *(("report",), ("report", "--format", "html"), ("report", "--format", "csv")),
    *(("report", "--table", "leaderboard"), ("list", "methods")),
)


def full_disk(
    folder: Path,
    work: Work,
    rooms: Iterable[int],
    *options: str,
    mounted: bool = False,
    part: str = "results",
) -> Counter[str]:
    expected, counts = undisturbed(work, folder / "undisturbed"), Counter[str]()
    for room in rooms:
        scratch = folder / f"room-{room}"
        scratch.mkdir()
        command = work.command(scratch, *options)
        done = _run_full(scratch, command, room, None if mounted else scratch / part)
        if done.code == 0:
            counts["room enough"] += 1
        else:
            check_one_line(done, NO_SPACE, "results")
            check_nothing_left(scratch)
            counts[f"full disks ({work.name})"] += 1
        finish(scratch, command, expected)
        if mounted:
            _umount(scratch / "results")
    return counts


def reports(folder: Path, *, mounted: bool = False) -> Counter[str]:
    results = folder / "results"
    if mounted:
        _mount(results)
    undisturbed(PLAIN, folder)
    undisturbed(DRAWN, folder, "--campaign", "drawn")
    filler = _fill(results, 0) if mounted else None
    target = results / "output" if mounted else Path("/dev/full")
    for arguments in REPORTS:
        check_one_line(run(folder, arguments, out=target), NO_SPACE, "the output can't be written")
    figures = ["report", "--figures", "results/figures"]
    if not mounted:  # the file opens, and then there is no room in it
        expect(run(folder, figures).code == 0, "no figures")
        for figure in (results / "figures").glob("*.pdf"):
            figure.unlink()
            figure.symlink_to("/dev/full")
    check_one_line(run(folder, figures), NO_SPACE, "results/figures")
    fault = "" if mounted else "full:1"
    draws = run(folder, ["stats", "--campaign", "drawn", "--draws", "100"], fault=fault)
    expect(draws.code == 0 and NO_SPACE in draws.error, f"bench stats: {draws.code}, {draws.error[-800:]}")
    if filler:
        filler.unlink()
        _umount(results)
    return Counter({"full disks (reports)": len(REPORTS) + 2})


def _run_full(scratch: Path, command: Sequence[str], room: int, part: Path | None) -> Done:
    if part is not None:
        return run(scratch, command, fault=f"full:{room + 1}", BENCH_FAULT_BELOW=str(part))
    _mount(scratch / "results")
    filler = _fill(scratch / "results", room)
    try:
        return run(scratch, command)
    finally:
        filler.unlink()


def _mount(target: Path) -> None:
    target.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={_DISK}", "none", str(target)], check=True)  # noqa: S607


def _umount(target: Path) -> None:
    subprocess.run(["umount", str(target)], check=True)  # noqa: S607


def _fill(disk: Path, pages: int) -> Path:
    filler, state = disk / "filler", os.statvfs(disk)
    with filler.open("wb") as stream:
        os.posix_fallocate(stream.fileno(), 0, state.f_bavail * state.f_bsize - pages * _PAGE)
    return filler


def everything(folder: Path, options: dict[str, int]) -> Parts:
    mounted, step = own_mounts("tests.faults.full_disk"), options["step"]
    print("a real disk is filled" if mounted else "no file system may be mounted: the error is injected")
    for name, work, pages, extra in (
        ("plain", PLAIN, 14, ("--workers", "1")),
        ("vectors", PLAIN, 30, ("--workers", "1", "--keep-vectors")),
        ("trained", TRAINED, 112, ("--workers", "1")),
        ("workers", TRAINED, 112, ("--workers", "2")),
        ("simcse", SIMCSE, 1150, ("--workers", "1")),
    ):
        last = pages if mounted else len(changes(work, folder / f"{name}-changes", *extra)[1])
        rooms = range(0, last + step, step * max(1, last // 100))
        yield name, full_disk(folder / name, work, rooms, *extra, mounted=mounted)
    yield "reports", reports(folder / "reports", mounted=mounted)


if __name__ == "__main__":
    script(__doc__, everything, step=1)
