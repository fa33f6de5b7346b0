"""Living and killed runs told apart where flock works, is missing, or does nothing."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from bench.execution import events
from bench.execution.liveness import PROCESS, find_process_state
from bench.execution.monitor import RunMonitor
from bench.execution.stage_cache import StageCache
from bench.records import filesystem
from bench.records.record import RecordPlace
from bench.records.store import ResultStore
from tests.support.cli import Cli
from tests.support.house import ROOT
from tests.support.messages import missing_facts

RUN = ("run", "--methods", "noise", "--seeds", "1-2", "--suite", "toy")


def do_nothing(descriptor: int, kind: int) -> None:
    """A flock as of a file system that ignores it."""


def raise_missing(descriptor: int, kind: int) -> None:
    """A flock as of a file system without it."""
    raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))


@pytest.fixture(params=[do_nothing, raise_missing])
def without_locks(request: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int, int], None]]:
    filesystem.do_locks_exclude.cache_clear()
    monkeypatch.setattr(fcntl, "flock", request.param)
    yield request.param
    filesystem.do_locks_exclude.cache_clear()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "results" / "local"
    (root / ".locks").mkdir(parents=True)
    return root


def begin_run(root: Path, **process: object) -> Path:
    """A run's folder that this process wrote and let go, with other facts of its process."""
    folder = root / events.FOLDER / "run"
    folder.mkdir(parents=True)
    for name, line in (("run", {"cells": {"simcse": 2}}), ("cell", {"method": "simcse", "seed": 1})):
        file = events.EventFile(folder / f"{name}.jsonl", line)
        file.write({"doing": "train", "stage": "joint", "time": time.time()})
        file.close()
        first, *others = file.path.read_text().splitlines()
        facts = json.loads(first)
        facts[PROCESS] |= process
        file.path.write_text("\n".join([json.dumps(facts), *others, ""]))
    return folder


def look(folder: Path) -> RunMonitor:
    run = RunMonitor(folder)
    run.look()
    return run


def dead_process() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_a_living_run_without_locks_is_neither_gone_nor_cleared_away(root: Path, without_locks: Any) -> None:
    folder = root / events.FOLDER / "run"
    folder.mkdir(parents=True)  # open_run_folder needs a lock of its own
    file = events.EventFile(folder / "run.jsonl", {"cells": {"simcse": 2}})
    cell = events.EventFile(folder / "cell.jsonl", {"method": "simcse", "seed": 1})
    cell.write({"doing": "train", "stage": "joint", "time": time.time()})
    run = look(folder)
    assert (run.state, run.may_run, run.cells[0].state) == ("alive", True, "alive")
    assert "gone" not in run.summary()
    assert "stopped" not in run.lines()[0]
    events._remove_dead_runs(root)
    assert folder.is_dir()
    file.close()
    cell.close()


def test_a_killed_run_without_locks_is_gone(root: Path, without_locks: Any) -> None:
    folder = begin_run(root, pid=dead_process())
    run = look(folder)
    assert not missing_facts(run.summary(), "stopped", "gone")
    assert not missing_facts(run.lines()[0], "stopped: joint")
    events._remove_dead_runs(root)
    assert not folder.exists()


def test_a_later_process_of_the_same_number_is_another(root: Path, without_locks: Any) -> None:
    assert look(begin_run(root, began="1")).state == "gone"


@pytest.mark.parametrize("boot", ["other", None])
def test_of_another_machine_only_the_last_news_are_known(root: Path, boot: str | None) -> None:
    folder = begin_run(root, node="node3\x1b[31m", boot=boot)
    run = look(folder)
    assert (run.state, run.may_run, run.cells[0].runs) == ("unknown", True, True)
    assert not missing_facts(
        run.summary(), "0 of 2 cells", "last news 0 s ago on node3", "no lock shows here"
    )
    assert not missing_facts(run.lines()[0], "perhaps joint", "last news 0 s ago, ?")
    assert run.summary().isprintable()
    assert "gone" not in run.summary()
    events._remove_dead_runs(root)
    assert folder.is_dir()
    run.look(time.time() + 3600)
    assert not run.may_run  # so that `bench watch` ends
    for path in folder.iterdir():
        os.utime(path, (1e9, 1e9))
    events._remove_dead_runs(root)
    assert not folder.exists()


def test_a_machine_that_was_restarted_since_runs_nothing(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = begin_run(root, boot="earlier")
    assert look(folder).state == "unknown"
    monkeypatch.setattr(time, "clock_gettime", lambda clock: -1.0)
    assert look(folder).state == "gone"


def test_a_container_of_the_same_machine_is_seen_by_its_lock(root: Path) -> None:
    assert look(begin_run(root, node="container", space="pid:[1]")).state == "gone"  # it let its lock go
    file = root / events.FOLDER / "run" / "run.jsonl"
    first = {PROCESS: {**filesystem.describe_process(), "space": "pid:[1]", "locked": False}}
    assert find_process_state(file, first) == "unknown"
    descriptor = os.open(file, os.O_RDWR)
    filesystem.lock_descriptor(descriptor)
    assert find_process_state(file, first) == "alive"
    os.close(descriptor)


@pytest.mark.parametrize(
    "process", [{"pid": "1"}, {"pid": True}, {"pid": 10**30}, {"pid": -1}, {}, [], "x", None]
)
def test_the_process_in_a_file_may_be_anything(tmp_path: Path, process: Any) -> None:
    (tmp_path / "run.jsonl").write_text("{}\n")
    assert find_process_state(tmp_path / "run.jsonl", {PROCESS: process}) in ("gone", "unknown")


def test_watch_says_what_it_can_see(root: Path, cli: Cli) -> None:
    begin_run(root, boot="other", node="node3")
    code, out, _ = cli("watch", "--once", "--results", str(root.parent))
    assert (code, missing_facts(out, "on node3", "nothing is seen to run")) == (0, [])


def test_without_locks_what_a_living_process_writes_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filesystem.do_locks_exclude.cache_clear()
    monkeypatch.setattr(fcntl, "flock", do_nothing)
    store, place = ResultStore(tmp_path, "camp"), RecordPlace("mini", "noise", 1, "toy")
    store.prepare()
    path = store.path(place)
    path.parent.mkdir(parents=True)
    mine = filesystem.temporary_path(path)
    dead = path.with_name(mine.name.replace(f".{os.getpid()}.", f".{dead_process()}."))
    elsewhere = [path.with_name(f".toy.json.node{n}.{os.getpid()}.{n:012x}.tmp") for n in (1, 2)]
    for file in (mine, dead, *elsewhere):
        file.write_text("being written")
    os.utime(elsewhere[1], (1e9, 1e9))
    training = tmp_path / ".stages" / f".{'a' * 64}.x.tmp"
    training.mkdir(parents=True)
    store.clear_leftovers()
    StageCache(tmp_path / ".stages").clear_leftovers()
    with store.claim(place, wait=False):
        pass
    assert {file for file in path.parent.iterdir()} == {mine, elsewhere[0]}
    assert training.is_dir()
    filesystem.do_locks_exclude.cache_clear()


def test_locks_are_tried_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(flock: Callable[[int, int], None]) -> bool:
        filesystem.do_locks_exclude.cache_clear()
        monkeypatch.setattr(fcntl, "flock", flock)
        return filesystem.do_locks_exclude(tmp_path)

    assert [answer(flock) for flock in (fcntl.flock, do_nothing, raise_missing)] == [True, False, False]
    filesystem.do_locks_exclude.cache_clear()


def test_a_run_without_locks_says_so_and_ends(cli: Cli, without_locks: Any, tmp_path: Path) -> None:
    code, _, err = cli(*RUN)
    assert not missing_facts(err, "no locks here (flock)", "no second run")
    if without_locks is do_nothing:
        assert code == 0
    else:  # filelock refuses, where it has no substitute
        assert not missing_facts(err, "Operation not supported", "file system that has locks")
    with suppress(FileNotFoundError):
        assert list((tmp_path / "results" / "local" / ".running").iterdir()) == []


def test_a_process_that_starts_names_itself() -> None:
    code = "from bench.records.filesystem import describe_process as d; import json; print(json.dumps(d()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, cwd=ROOT, timeout=60, check=True)
    facts = json.loads(done.stdout)
    assert filesystem.is_same_machine(facts)
    assert not filesystem.is_described_process_alive(facts)
    assert filesystem.is_described_process_alive(filesystem.describe_process())
