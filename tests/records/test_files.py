"""Temporary names are nobody else's, and what a killed process leaves under them is found."""

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


@pytest.mark.parametrize(
    "name", ["toy.json", "x" * 200 + ".json", "\N{SNOWMAN}" * 80 + ".npz", ".hidden", "a.b.c"]
)
def test_no_two_writers_have_one_temporary_name(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getpid", lambda: 7)  # as in two containers of one folder
    found = [temporary_path(tmp_path / name) for _ in range(100)]
    monkeypatch.setattr(files, "_HOST", "elsewhere")
    found += [temporary_path(tmp_path / name) for _ in range(100)]
    assert len(set(found)) == 200
    assert {path.parent for path in found} == {tmp_path}
    assert all(path.match(".*.tmp") and len(os.fsencode(path.name)) < 256 for path in found)
    assert all(".elsewhere.7." in path.name for path in found[100:])
    write_atomically(tmp_path / name, b"text")
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_temporary_file_of_another_is_neither_written_nor_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "urandom", bytes)
    other = temporary_path(tmp_path / "a.json")
    other.write_text("another's")
    with pytest.raises(FileExistsError):
        write_atomically(tmp_path / "a.json", b"text")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["another's"]


def test_what_a_kill_leaves_is_cleared(tmp_path: Path) -> None:
    store, place = ResultStore(tmp_path, "camp"), RecordPlace("mini", "noise", 1, "toy")
    store.prepare()
    path = store.path(place)
    path.parent.mkdir(parents=True)
    code = (
        "import os, signal, sys\nfrom pathlib import Path\nfrom bench.records.filesystem import write_whole\n"
        "os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)\nwrite_whole(Path(sys.argv[1]), b'half')"
    )
    for clear in ("claim", "clear_leftovers"):
        for target in (path, path.with_suffix(".npz")):
            done = subprocess.run([sys.executable, "-c", code, str(target)], cwd=ROOT, timeout=60)
            assert done.returncode == -signal.SIGKILL
        assert len(list(path.parent.glob(".toy.*.tmp"))) == 2
        if clear == "claim":
            with store.claim(place, wait=False):
                pass
        else:
            store.clear_leftovers()
        assert list(path.parent.iterdir()) == []


def test_the_next_writer_removes_what_a_dead_one_left_and_nothing_else(tmp_path: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    host, own = files._HOST, tmp_path / f".a.json.{files._HOST}.{os.getpid()}.0.tmp"
    left = tmp_path / f".a.json.{host}.{gone.pid}.0.tmp", tmp_path / f".a.json.{host}.{gone.pid}.1.tmp"
    kept = [
        own,
        *(tmp_path / f".{name}.{host}.{gone.pid}.0.tmp" for name in ("b.json", "a")),
        *(
            tmp_path / f".a.json.{start}.0.tmp"
            for start in (f"elsewhere.{gone.pid}", f"{host}.x", f"{host}.0")
        ),
    ]
    for path in (left[0], *kept):
        path.touch()
    (left[1] / "inside").mkdir(parents=True)
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
    assert sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("one")) == [
        "a/b/one",
        "a/c/one",
    ]
    with pytest.raises(OSError, match="not empty"), create_folder_atomically(tmp_path / "a" / "b") as folder:
        (folder / "two").touch()
    assert sorted(path.name for path in (tmp_path / "a").rglob("*")) == ["b", "c", "one", "one"]


def test_temporary_names_are_made_in_one_place() -> None:
    """A process id alone is not unique where several machines share a folder."""
    sources = (
        path for top in ("bench", "baselines", "methods", "reports") for path in (ROOT / top).rglob("*.py")
    )
    assert {path.name for path in sources if "getpid" in path.read_text(encoding="utf-8")} == {"files.py"}
