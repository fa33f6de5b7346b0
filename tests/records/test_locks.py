"""Locks that end with their process, and what is known where a system has none."""

from __future__ import annotations

import errno
import multiprocessing
import os
from pathlib import Path

import pytest

from bench.records import filesystem as locks


def hold(path: Path, shared: bool, ready: object, done: object) -> None:
    descriptor = os.open(path, os.O_RDWR)
    locks.lock_descriptor(descriptor, shared=shared)
    ready.set()  # type: ignore[attr-defined]
    done.wait(60)  # type: ignore[attr-defined]


@pytest.mark.parametrize(("shared", "seen"), [(False, (True, True)), (True, (False, True))])
def test_a_lock_is_seen_until_its_process_ends(tmp_path: Path, shared: bool, seen: tuple[bool, bool]) -> None:
    path = tmp_path / "file"
    path.write_text("text")
    assert (locks.is_locked(path), locks.is_locked(path, shared=True)) == (False, False)
    context = multiprocessing.get_context("fork")
    ready, done = context.Event(), context.Event()
    holder = context.Process(target=hold, args=(path, shared, ready, done))
    holder.start()
    assert ready.wait(60)
    assert (locks.is_locked(path), locks.is_locked(path, shared=True)) == seen
    holder.kill()  # without a chance to let go
    holder.join()
    assert (locks.is_locked(path), locks.is_locked(path, shared=True)) == (False, False)


def test_a_lock_that_another_has_is_not_waited_for_unless_asked(tmp_path: Path) -> None:
    first = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    second = os.open(tmp_path / "file", os.O_RDWR)
    locks.lock_descriptor(first)
    with pytest.raises(BlockingIOError):
        locks.lock_descriptor(second, wait=False)
    os.close(first)
    locks.lock_descriptor(second)
    os.close(second)


def test_no_file_and_a_link_are_not_locked(tmp_path: Path) -> None:
    assert locks.is_locked(tmp_path / "missing") is False
    descriptor = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    locks.lock_descriptor(descriptor)
    (tmp_path / "link").symlink_to(tmp_path / "file")
    assert locks.is_locked(tmp_path / "file") is True
    assert locks.is_locked(tmp_path / "link") is False
    os.close(descriptor)


def test_without_locks_nothing_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "fcntl", None)
    (tmp_path / "file").touch()
    assert locks.is_locked(tmp_path / "file") is None
    assert locks.is_locked(tmp_path / "missing") is False
    descriptor = os.open(tmp_path / "file", os.O_RDWR)
    with pytest.raises(OSError, match="no fcntl"):
        locks.lock_descriptor(descriptor)
    os.close(descriptor)


def test_a_file_that_may_not_be_read_may_be_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, flags: int) -> int:
        raise PermissionError(errno.EACCES, "not permitted")

    (tmp_path / "file").touch()
    monkeypatch.setattr(os, "open", refuse)
    assert locks.is_locked(tmp_path / "file") is None
