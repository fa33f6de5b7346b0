"""Nothing finished is lost or corrupted: what the scripts of tests.faults do by the hundred, a few times."""

from __future__ import annotations

import errno
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.errors import BenchError, StorageError, storage_reason
from bench.execution.stage_cache import StageCache
from bench.stages import Stage, StageSpec
from tests.faults import (
    clock,
    corrupt,
    full_disk,
    interrupt,
    kill,
    pause,
    processes,
    read_only,
    resume,
    runs,
    vanish,
)
from tests.faults.checks import Done, NotSurvivedError, check_kept, check_one_line, check_whole
from tests.support.stages import ensure

slow, long = pytest.mark.slow, pytest.mark.long


def slowly(*rows: tuple[object, ...]) -> list[Any]:
    return [pytest.param(*row, marks=slow) for row in rows]


def longer(*rows: tuple[object, ...]) -> list[Any]:
    return [pytest.param(*row, marks=long) for row in rows]


def id_of(value: object) -> str | None:
    return value.name if isinstance(value, runs.Work) else None


STAGE = Stage(StageSpec("one", "kind", 1, (), lambda context: {}), 1, "b" * 64)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("work", "workers", "warm", "kills"),
    [
        (runs.SHORT, 1, True, 1),
        *longer((runs.TRAINED, 2, True, 1), (runs.SHORT, 2, True, 1), (runs.TEXT, 1, True, 1)),
        *longer((runs.TRAINED, 2, True, 2)),
        *longer((runs.TRAINED, 1, True, 1), (runs.SIMCSE, 2, True, 1)),
        *longer((runs.PLAIN, 1, False, 2), (runs.SHORT, 1, False, 1)),
    ],
    ids=id_of,
)
def test_killed_commands_go_on(tmp_path: Path, work: runs.Work, workers: int, warm: bool, kills: int) -> None:
    counts = kill.kill(tmp_path / "k", work, kills, workers=workers, warm=warm)
    assert counts.total() == kills


RECORD = "*/seed-1/.toy.json.*"


@pytest.mark.parametrize(
    ("work", "kind", "pattern"),
    [
        (runs.SHORT, "write", RECORD),
        (runs.SWEEP, "write", "*/sweeps/.*"),
        (runs.TEXT, "write", "*.lock.json.*"),
        pytest.param(runs.TRAINED, "write", "*/MANIFEST.json", marks=long),
        *slowly((runs.SWEEP, "os.rename", "*/sweeps/.*"), (runs.MERGE, "write", RECORD)),
        *slowly((runs.MERGE, "os.rmdir", "*")),
        *longer((runs.TEXT, "write", "*.part")),
        pytest.param(runs.REPORT, "write", "*.pdf", marks=long),
        pytest.param(runs.FETCH, "os.rename", "*/STS/*", marks=long),
        *slowly((runs.FETCH, "os.rmdir", "*/.unpack-*")),
        *longer((runs.PRETRAIN, "write", "*/tokenizer_config.json")),
        *longer((runs.PRETRAIN, "os.rename", "*")),
    ],
    ids=id_of,
)
def test_kills_at_moments(tmp_path: Path, work: runs.Work, kind: str, pattern: str) -> None:
    assert kill.kill(tmp_path / "k", work, 1, moment=(kind, pattern)).total() == 1


def test_a_kill_in_the_middle_of_a_record_leaves_half_of_it_beside_its_predictions(tmp_path: Path) -> None:
    expected, made = runs.changes(runs.SHORT, tmp_path / "whole")
    (middle,) = runs.where(made, "write", RECORD)
    scratch = tmp_path / "killed"
    scratch.mkdir()
    command = runs.SHORT.command(scratch)
    assert runs.run(scratch, command, fault=f"kill:{middle + 1}").code == -signal.SIGKILL
    cell = next(scratch.glob("results/local/*/*/seed-1"))
    (half,) = cell.glob(".toy.json.*.tmp")
    assert {path.name for path in cell.iterdir()} == {half.name, "toy.npz"}
    size = (tmp_path / "whole" / cell.relative_to(scratch) / "toy.json").stat().st_size
    assert abs(half.stat().st_size - size / 2) < 20  # times have more or fewer digits
    runs.finish(scratch, command, expected)


@slow
def test_a_killed_forced_run_costs_no_finished_record(tmp_path: Path) -> None:
    assert kill.kill_forced(tmp_path / "k", runs.SHORT, 4) == {"a forced run": 4}


@pytest.mark.parametrize(
    ("work", "workers", "warm", "interrupts"),
    [
        (runs.PLAIN, 2, True, 2),
        *slowly((runs.PLAIN, 1, False, 1), (runs.PLAIN, 2, False, 1)),
        *longer((runs.TRAINED, 1, True, 2)),
        *longer((runs.TRAINED, 2, True, 2), (runs.SIMCSE, 1, True, 2)),
        *longer((runs.PLAIN, 1, False, 3), (runs.PLAIN, 2, False, 3)),
    ],
)
def test_interrupts(tmp_path: Path, work: runs.Work, workers: int, warm: bool, interrupts: int) -> None:
    counts = interrupt.interrupt(tmp_path / "i", work, interrupts, workers=workers, warm=warm)
    assert counts["interrupted"] + counts["interrupted twice"] == interrupts


@pytest.mark.parametrize(("work", "workers"), [(runs.LONG_PRETRAIN, 1), *longer((runs.LONG, 2))], ids=id_of)
def test_killed_trainings_resume(tmp_path: Path, work: runs.Work, workers: int) -> None:
    counts = resume.resume(tmp_path / "r", work, 2, workers=workers)
    assert sum(count for name, count in counts.items() if name.startswith("SIG")) == 2


BEGIN = """
import runpy, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)
class Dying:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)
def swallow():
    try:
        signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt:
        signal.raise_signal(signal.SIGINT)  # on the way out: not heeded
    monotonic = time.monotonic
    time.monotonic = lambda: monotonic() + 4
    signal.raise_signal(signal.SIGINT)
def hook(event, arguments):
    if event == "import" and arguments[0] == "click":
        HOOK
sys.addaudithook(hook)
runpy.run_module("bench", run_name="__main__", alter_sys=True)
"""


@pytest.mark.parametrize("hook", ["signal.raise_signal(signal.SIGINT)", "Dying()", "swallow()"])
def test_an_interrupt_while_it_starts_in_a_destructor_and_a_lost_one(hook: str) -> None:
    command = [sys.executable, "-c", BEGIN.replace("HOOK", hook), "list", "methods"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "\ninterrupted\n")


def test_a_closed_stdout_is_no_error() -> None:
    command = f"{shlex.quote(sys.executable)} -m bench list profiles >&-"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=60)  # noqa: S607
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("work", "options", "rooms"),
    [
        (runs.TRAINED, (), (1, 17)),
        *slowly((runs.SHORT, (), range(0, 40, 13)), (runs.SHORT, ("--keep-vectors",), (9, 16, 22))),
        pytest.param(runs.SIMCSE, (), (5, 24), marks=long),
        *slowly((runs.TRAINED, (), range(0, 80, 40))),
        *longer((runs.TRAINED, ("--workers", "2"), (6, 30))),
    ],
)
def test_a_full_disk(tmp_path: Path, work: runs.Work, options: tuple[str, ...], rooms: range) -> None:
    counts = full_disk.full_disk(tmp_path / "f", work, rooms, *options)
    assert counts[f"full disks ({work.name})"] > len(rooms) // 2


def test_no_room_in_the_middle_of_a_record_or_between_it_and_its_predictions(tmp_path: Path) -> None:
    made = runs.changes(runs.SHORT, tmp_path / "whole")[1]
    moments = ("write", "*/seed-1/.toy.npz.*"), ("open", RECORD), ("write", RECORD), ("fsync", RECORD)
    rooms = [runs.where(made, *moment)[0] for moment in moments]
    assert full_disk.full_disk(tmp_path / "f", runs.SHORT, rooms) == {"full disks (short)": 4}


def test_where_a_stage_finds_no_room_the_run_ends_with_no_failed_record(tmp_path: Path) -> None:
    counts = full_disk.full_disk(tmp_path / "f", runs.TRAINED, (3, 20), part="results/.stages")
    assert counts["full disks (trained)"] == 2


@slow
def test_a_report_whose_output_finds_the_disk_full_is_one_line(tmp_path: Path) -> None:
    full_disk.reports(tmp_path / "r")


@slow
def test_read_only_results_are_reported_and_refuse_to_run_in_one_line(tmp_path: Path) -> None:
    assert read_only.read_only(tmp_path / "r").keys() == {"one line", "read"}


LONG_LOSSES = ("weights vanish", "weights change", "text vanishes", "model changes, two workers")
SLOW_LOSSES = [(name,) for name in vanish.LOSSES if name not in ("model changes", *LONG_LOSSES)]


@pytest.mark.parametrize("name", ["model changes", *slowly(*SLOW_LOSSES), *longer(*zip(LONG_LOSSES))])
def test_a_file_that_is_lost_in_mid_run_costs_the_cells_that_need_it(tmp_path: Path, name: str) -> None:
    loss = vanish.LOSSES[name]
    assert bool(vanish.vanish(tmp_path / "v", loss)["failed with the reason"]) == bool(loss.reasons)


OTHER_DAMAGE = [name for name in corrupt.STAGES if name != "part-1 flipped"]


@pytest.mark.parametrize("names", [["part-1 flipped", "facts.json truncated"], *slowly((OTHER_DAMAGE,))])
def test_damaged_stages_are_trained_again_to_the_same_bytes(tmp_path: Path, names: list[str]) -> None:
    corrupt.stages(tmp_path / "s", names)


@pytest.mark.parametrize("damage", [corrupt.predictions, *slowly((corrupt.records,))])
def test_damaged_cells_are_named_and_run_again(tmp_path: Path, damage: Callable[..., object]) -> None:
    damage(tmp_path / "d")


@pytest.mark.slow
def test_no_flipped_bit_of_a_record_is_used_in_silence(tmp_path: Path) -> None:
    assert corrupt.flips(tmp_path / "f", 60)["flipped bits found"] > 50


@pytest.mark.parametrize(
    ("work", "number", "workers", "kills", "warm"),
    [
        *((runs.TRAINED, 3, 1, 0, True), (runs.TRAINED, 2, 1, 1, True)),
        *longer((runs.PLAIN, 2, 1, 0, False), (runs.TRAINED, 2, 2, 0, True)),
        *slowly((runs.TRAINED, 3, 1, 2, True), (runs.PLAIN, 3, 2, 2, True)),
    ],
)
def test_sharing(tmp_path: Path, work: runs.Work, number: int, workers: int, kills: int, warm: bool) -> None:
    processes.share(tmp_path / "p", work, number, workers=workers, kills=kills, warm=warm)


STOPS = [*slowly((runs.TRAINED, 3), (runs.FETCH, 1)), *longer((runs.TEXT, 1))]


@pytest.mark.parametrize(("work", "stops"), [(runs.SHORT, 2), *STOPS], ids=id_of)
def test_a_stopped_process_keeps_what_it_has(tmp_path: Path, work: runs.Work, stops: int) -> None:
    assert pause.pause(tmp_path / "p", work, stops).total() == stops


@slow
def test_a_clock_that_goes_back_changes_no_fetched_text(tmp_path: Path) -> None:
    clock.backwards_elsewhere(tmp_path / "c", runs.TEXT)


CLOCKS = [(runs.TRAINED, 1), *longer((runs.PLAIN, 2), (runs.SIMCSE, 1))]


@pytest.mark.parametrize(("work", "workers"), CLOCKS)
def test_a_clock_that_goes_back_changes_nothing(tmp_path: Path, work: runs.Work, workers: int) -> None:
    clock.backwards(tmp_path / "c", work, workers)


def test_the_checks_notice_what_they_are_for(tmp_path: Path) -> None:
    expected = runs.undisturbed(runs.PLAIN, tmp_path / "one")
    record = next((tmp_path / "one" / "results").glob("*/*/*/*/toy.json"))
    check_whole(tmp_path / "one", expected)
    with pytest.raises(NotSurvivedError, match=r"other bytes than undisturbed: mini/fault_plain.*/toy\.npz"):
        check_whole(tmp_path / "one", {name: content + b"x" for name, content in expected.items()})
    half, stage = record.parent / ".toy.npz.vm.1.tmp", tmp_path / "one" / "results" / ".stages" / ("a" * 64)
    for stray in (half, stage):
        stray.mkdir(parents=True)
        with pytest.raises(NotSurvivedError, match=f"left lying about: .*{stray.name}"):
            check_whole(tmp_path / "one", expected)
        stray.rmdir()
    record.write_text(record.read_text()[:200])
    with pytest.raises(NotSurvivedError, match="a half record"):
        check_whole(tmp_path / "one", expected)
    with pytest.raises(NotSurvivedError, match="finished, and written again or lost"):
        check_kept({record: 1}, {record: 2})
    for done, what in (
        (Done(0, "", ""), "exit code 0"),
        (Done(1, "", "error: a\nerror: b\n"), "2 error lines"),
        (Done(1, "", "Traceback\nerror: disk\n"), "a traceback"),
        (Done(1, "", "error: another\n"), "'disk' is not in"),
    ):
        with pytest.raises(NotSurvivedError, match=what):
            check_one_line(done, "disk")
    for code, text, what in (
        (1, runs.INTERRUPTED, "exit code 1"),
        (130, "", "exit code 130"),
        (130, f"{runs.INTERRUPTED}\n{runs.INTERRUPTED}", "exit code 130"),
        (130, f"{runs.INTERRUPTED}\nException ignored in", "'Exception ignored'"),
    ):
        with pytest.raises(NotSurvivedError, match=what):
            interrupt.check_interrupted(Done(code, "", text))


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError(errno.ENOSPC, "x", "file"), "No space left on device"),
        (OSError(errno.EROFS, "x"), "Read-only file system"),
        (RuntimeError("SafetensorError: I/O error: No space left on device (os error 28)"), "No space left"),
        (OSError(errno.ENOENT, "No such file or directory", "text"), None),
        (ValueError("no space"), None),
    ],
)
def test_storage_errors_are_told_from_others(tmp_path: Path, error: Exception, reason: str | None) -> None:
    def train(out: Path) -> dict[str, object]:
        raise error

    assert (storage_reason(error) is None) == (reason is None)
    text = f"stage 'one' can't be kept: {reason}" if reason else re.escape(str(error))
    with pytest.raises(StorageError if reason else type(error), match=text) as caught:
        ensure(StageCache(tmp_path), STAGE, train)
    assert isinstance(caught.value, BenchError) == bool(reason)


def test_leftovers_of_killed_trainings_go_but_not_those_of_a_living_one(tmp_path: Path) -> None:
    cache = StageCache(tmp_path)
    abandoned = tmp_path / f".{'a' * 64}.x.tmp"
    abandoned.mkdir()

    def train(out: Path) -> dict[str, object]:
        StageCache(tmp_path).clear_leftovers()
        assert out.is_dir()
        return {}

    assert ensure(cache, STAGE, train) is not None
    assert not abandoned.exists()
    assert [path for path in tmp_path.iterdir() if path.suffix == ".tmp"] == []
