"""Temporary names are unique; files that a killed process leaves under them are removed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bench.records import filesystem as files
from bench.records.filesystem import create_folder_atomically, temporary_path, write_atomically
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
    monkeypatch.setattr(files, "_HOST", "elsewhere")
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
    here, dead = f"{files._HOST}.{os.getpid()}", f"{files._HOST}.{gone.pid}"
    starts = [f"a.json.{here}", f"b.json.{dead}", f"a.{dead}", f"a.json.elsewhere.{gone.pid}"]
    starts += [f"a.json.{files._HOST}.x", f"a.json.{files._HOST}.0"]
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


def test_temporary_names_are_made_in_one_place() -> None:
    """A process id is not unique where several machines share a folder."""
    tops = ("bench", "baselines", "methods", "reports")
    sources = (path for top in tops for path in (ROOT / top).rglob("*.py"))
    makers = [path.name for path in sources if "getpid" in path.read_text(encoding="utf-8")]
    assert makers == ["filesystem.py"]
