"""Atomic files, locks and names of the file system."""

from __future__ import annotations

import errno
import multiprocessing
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.errors import InputError
from bench.records import filesystem
from bench.records.filesystem import (
    create_folder_atomically,
    replace_folder,
    temporary_path,
    write_atomically,
)
from bench.records.record import RecordPlace
from bench.records.store import ResultStore

ROOT = Path(__file__).parents[2]
KILLED = """
import os, signal, sys
from pathlib import Path
from bench.records.filesystem import write_atomically
os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)
write_atomically(Path(sys.argv[1]), b'half')
"""


@pytest.mark.parametrize(
    "name", ["toy.json", "x" * 200 + ".json", "\N{SNOWMAN}" * 80 + ".npz", ".hidden", "a.b.c"]
)
def test_temporary_names_are_unique(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getpid", lambda: 7)  # as in two containers of one folder
    paths = [temporary_path(tmp_path / name) for _ in range(100)]
    monkeypatch.setattr(filesystem, "_HOST", "elsewhere")
    paths += [temporary_path(tmp_path / name) for _ in range(100)]
    assert len(set(paths)) == 200
    assert {path.parent for path in paths} == {tmp_path}
    assert all(path.match(".*.tmp") and len(os.fsencode(path.name)) < 256 for path in paths)
    assert all(".elsewhere.7." in path.name for path in paths[100:])
    write_atomically(tmp_path / name, b"text")
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_temporary_file_of_another_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "urandom", bytes)
    temporary_path(tmp_path / "a.json").write_text("another's")
    with pytest.raises(FileExistsError):
        write_atomically(tmp_path / "a.json", b"text")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["another's"]


@pytest.mark.parametrize("clear", ["claim", "clear_leftovers"])
def test_what_a_kill_leaves_is_cleared(tmp_path: Path, clear: str) -> None:
    store, place = ResultStore(tmp_path, "camp"), RecordPlace("mini", "noise", 1, "toy")
    store.prepare()
    path = store.path(place)
    path.parent.mkdir(parents=True)
    for target in (path, path.with_suffix(".npz")):
        done = subprocess.run([sys.executable, "-c", KILLED, str(target)], cwd=ROOT, timeout=60)
        assert done.returncode == -signal.SIGKILL
    assert len(list(path.parent.glob(".toy.*.tmp"))) == 2
    if clear == "claim":
        with store.claim(place, wait=False):
            pass
    else:
        store.clear_leftovers()
    assert list(path.parent.iterdir()) == []


def test_the_next_writer_removes_only_what_a_dead_one_left(tmp_path: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    here, dead = f"{filesystem._HOST}.{os.getpid()}", f"{filesystem._HOST}.{gone.pid}"
    starts = [f"a.json.{here}", f"b.json.{dead}", f"a.{dead}", f"a.json.elsewhere.{gone.pid}"]
    starts += [f"a.json.{filesystem._HOST}.x", f"a.json.{filesystem._HOST}.0"]
    kept = {tmp_path / f".{start}.0.tmp" for start in starts}
    for path in (*kept, tmp_path / f".a.json.{dead}.0.tmp"):
        path.touch()
    (tmp_path / f".a.json.{dead}.1.tmp" / "inside").mkdir(parents=True)
    write_atomically(tmp_path / "a.json", b"text")
    assert set(tmp_path.iterdir()) == {tmp_path / "a.json", *kept}


def test_a_folder_is_whole_or_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), create_folder_atomically(tmp_path / "a" / "b") as folder:
        (folder / "not" / "there").touch()
    assert list((tmp_path / "a").iterdir()) == []
    (tmp_path / "a" / "c").mkdir()
    for name in ("b", "c"):
        with create_folder_atomically(tmp_path / "a" / name) as folder:
            (folder / "one").touch()
            assert not (tmp_path / "a" / name / "one").exists()
    with pytest.raises(OSError, match="not empty"), create_folder_atomically(tmp_path / "a" / "b") as folder:
        (folder / "two").touch()
    paths = (path.relative_to(tmp_path / "a").as_posix() for path in tmp_path.glob("a/**/*"))
    assert sorted(paths) == ["b", "b/one", "c", "c/one"]


def test_a_folder_is_replaced_whole_or_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a"
    with replace_folder(path) as folder:
        (folder / "old").touch()
    with pytest.raises(FileNotFoundError), replace_folder(path) as folder:
        (folder / "not" / "there").touch()
    plain = Path.rename

    def fail_to_replace(source: Path, target: Path) -> Path:
        if target == path and (source / "new").exists():
            raise OSError("full")
        return plain(source, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", fail_to_replace)
        with pytest.raises(OSError, match="full"), replace_folder(path) as folder:
            (folder / "new").touch()
    assert [entry.relative_to(tmp_path).as_posix() for entry in sorted(tmp_path.rglob("*"))] == ["a", "a/old"]
    with replace_folder(path) as folder:
        (folder / "new").touch()
        assert (path / "old").exists()
    assert [entry.relative_to(tmp_path).as_posix() for entry in sorted(tmp_path.rglob("*"))] == ["a", "a/new"]


def test_temporary_names_are_made_in_one_place() -> None:
    tops = ("bench", "baselines", "methods", "reports")
    sources = (path for top in tops for path in (ROOT / top).rglob("*.py"))
    makers = [path.name for path in sources if "getpid" in path.read_text(encoding="utf-8")]
    assert makers == ["filesystem.py"]


def hold(path: Path, shared: bool, ready: object, done: object) -> None:
    descriptor = os.open(path, os.O_RDWR)
    filesystem.lock_descriptor(descriptor, shared=shared)
    ready.set()  # type: ignore[attr-defined]
    done.wait(60)  # type: ignore[attr-defined]


@pytest.mark.parametrize(("shared", "seen"), [(False, (True, True)), (True, (False, True))])
def test_a_lock_is_seen_until_its_process_ends(tmp_path: Path, shared: bool, seen: tuple[bool, bool]) -> None:
    path = tmp_path / "file"
    path.write_text("text")
    assert (filesystem.is_locked(path), filesystem.is_locked(path, shared=True)) == (False, False)
    context = multiprocessing.get_context("fork")
    ready, done = context.Event(), context.Event()
    holder = context.Process(target=hold, args=(path, shared, ready, done))
    holder.start()
    assert ready.wait(60)
    assert (filesystem.is_locked(path), filesystem.is_locked(path, shared=True)) == seen
    holder.kill()  # without a chance to let go
    holder.join()
    assert (filesystem.is_locked(path), filesystem.is_locked(path, shared=True)) == (False, False)


def test_a_lock_that_another_has_is_not_waited_for_unless_asked(tmp_path: Path) -> None:
    first = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    second = os.open(tmp_path / "file", os.O_RDWR)
    filesystem.lock_descriptor(first)
    with pytest.raises(BlockingIOError):
        filesystem.lock_descriptor(second, wait=False)
    os.close(first)
    filesystem.lock_descriptor(second)
    os.close(second)


def test_no_file_and_a_link_are_not_locked(tmp_path: Path) -> None:
    assert filesystem.is_locked(tmp_path / "missing") is False
    descriptor = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    filesystem.lock_descriptor(descriptor)
    (tmp_path / "link").symlink_to(tmp_path / "file")
    assert filesystem.is_locked(tmp_path / "file") is True
    assert filesystem.is_locked(tmp_path / "link") is False
    os.close(descriptor)


def test_without_locks_nothing_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filesystem, "fcntl", None)
    (tmp_path / "file").touch()
    assert filesystem.is_locked(tmp_path / "file") is None
    assert filesystem.is_locked(tmp_path / "missing") is False
    descriptor = os.open(tmp_path / "file", os.O_RDWR)
    with pytest.raises(OSError, match="no fcntl"):
        filesystem.lock_descriptor(descriptor)
    os.close(descriptor)


def test_a_file_that_may_not_be_read_may_be_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, flags: int) -> int:
        raise PermissionError(errno.EACCES, "not permitted")

    (tmp_path / "file").touch()
    monkeypatch.setattr(os, "open", refuse)
    assert filesystem.is_locked(tmp_path / "file") is None


PORTABLE = ("simcse", "SimCSE", "con-1", "console", "aux-12ab34cd", "com", "com10", "lpt", "a[lr=1e-05,b=F]")
RESERVED = (
    *("CON", "con", "Prn", "aux", "NUL", "nul.tar.gz", "COM0", "com9", "lpt9.txt", "COM¹", "LPT³"),
    *("CONIN$", "conout$", "aux.txt", "CON .x"),
)


@pytest.mark.parametrize(
    ("name", "part"),
    [
        *((name, f"Windows reserves the name '{name}'") for name in RESERVED),
        ("simcse.", "the dot at the end of 'simcse.'"),
        ("simcse ", "the blank"),
        *((f"a{char}b", f"character {char!a}") for char in '<>:"/\\|?*\x00\x1f\x7f'),
        ("é" * 128, "256 bytes, and a file system takes at most 255"),
    ],
)
def test_names_that_some_file_system_cannot_hold(name: str, part: str, tmp_path: Path) -> None:
    assert part in (filesystem.find_name_fault(name) or "")
    with pytest.raises(InputError) as caught:
        filesystem.check_new_name(tmp_path, name, where="--campaign", hint="type X")
    assert (caught.value.where, caught.value.hint) == ("--campaign", "type X")


@pytest.mark.parametrize("name", PORTABLE)
def test_portable_names(name: str, tmp_path: Path) -> None:
    assert filesystem.find_name_fault(name) is None
    filesystem.check_new_name(tmp_path / "nowhere", name, where="--campaign", hint="")


@given(st.text(max_size=300))
def test_a_folder_name_has_no_character_that_windows_refuses(text: str) -> None:
    name = filesystem.safe_name(text)
    assert not set(name) & set('<>:"/\\|?*')
    assert name.isascii()
    assert len(name) <= 89


def test_names_that_are_one_where_case_is() -> None:
    assert filesystem.find_namesake("SimCSE", ["tncse", "simcse"]) == "simcse"
    assert filesystem.find_namesake("e\N{COMBINING ACUTE ACCENT}", ["É"]) == "É"
    assert filesystem.find_namesake("straße", ["STRASSE"]) == "STRASSE"
    assert filesystem.find_namesake("simcse", ["simcse", "simcse-1"]) is None


def test_what_is_there_goes_on(tmp_path: Path) -> None:
    for name in ("CON", "simcse.", "SimCSE", "simcse"):
        (tmp_path / name).mkdir()
    for name in ("CON", "simcse.", "SimCSE", "simcse"):
        filesystem.check_new_name(tmp_path, name, where="", hint="")
        ResultStore(tmp_path, name).prepare()
    for name in ("con", "SIMCSE", "Simcse."):
        with pytest.raises(InputError):
            filesystem.check_new_name(tmp_path, name, where="", hint="")
    with pytest.raises(InputError, match=r"'B' .* case from 'b'"):
        filesystem.check_new_name(tmp_path, "B", where="", hint="", others=["b", "B"])


@pytest.mark.parametrize("campaign", ["CON", "aux.txt", "mini.", "Mini"])
def test_a_new_campaign(campaign: str, tmp_path: Path) -> None:
    (tmp_path / "mini").mkdir()
    with pytest.raises(InputError) as caught:
        ResultStore(tmp_path, campaign).prepare()
    assert str(caught.value).startswith("--campaign: ")
    assert [path.name for path in tmp_path.iterdir()] == ["mini"]
    name = str(caught.value).rpartition(" ")[2]
    filesystem.check_new_campaign(tmp_path, name)  # what the error says to type works
    ResultStore(tmp_path, campaign)  # and reading never refuses
