"""Folders that can't be read, or are links, are named: what lies in them is never left out in silence."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.records.filesystem import walk_folder
from tests.support.cli import Cli
from tests.support.messages import missing_facts
from tests.support.unreadable import unreadable
from tests.support.verified import CAMPAIGN, NOISE, found_by_verify, where

Close = Callable[[Path], None]


@pytest.fixture
def close(monkeypatch: pytest.MonkeyPatch) -> Close:
    """Take away the right to look into a folder, from root too."""
    closed: set[str] = set()
    real = os.scandir

    def scandir(path: Any = ".") -> Any:
        if os.path.abspath(path) in closed:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    return lambda folder: closed.add(os.path.abspath(folder))


@pytest.mark.parametrize(
    ("folder", "left"), [(NOISE, 1), (NOISE / "seed-2", 3), (CAMPAIGN / "word_overlap", 3)]
)
def test_a_folder_that_cannot_be_read_is_named(results: Cli, close: Close, folder: Path, left: int) -> None:
    close(folder)
    assert found_by_verify(results) == {where(folder): {"shape"}}
    facts = f"{where(folder)}: shape: ", "can't be read", "Permission denied", f"{left} records, "
    assert missing_facts(results("verify")[1], *facts) == []
    for words in (("report",), ("compare", "noise", "word_overlap"), ("stats",)):
        code, _, err = results(*words)
        assert (code, missing_facts(err, f"{folder}: ", "Permission denied")) == (2, []), words
    code, out, err = results("bundle", "local", "--out", "local.zip")
    assert (code, f"{folder.name}: shape" in out) == (1, True), err
    assert not Path("local.zip").exists()


@pytest.mark.parametrize(("suffix", "check"), [(".json", "shape"), (".npz", "predictions")])
def test_a_file_that_cannot_be_read_is_not_to_be_deleted(results: Cli, suffix: str, check: str) -> None:
    file = next(iter(sorted(NOISE.rglob(f"*{suffix}"))))
    with unreadable(file):
        code, out, _ = results("verify")
    assert code == 1
    (line,) = (line for line in out.splitlines() if f": {check}: " in line)
    assert missing_facts(line, "Permission denied", "right to read") == []
    assert "delete" not in line


@pytest.mark.parametrize("folder", [CAMPAIGN.parent, CAMPAIGN])
def test_nothing_that_can_be_read(results: Cli, close: Close, folder: Path) -> None:
    close(folder)
    code, out, err = results("verify")
    assert (code, out) == (2, "")
    assert missing_facts(err, "no records", f"{folder.name}: Permission denied") == []
    assert results("report")[0] == 2
    code, _, err = results("site")
    assert (code, "can't be read" in err) == (1, True), err


def test_a_linked_campaign_is_named(results: Cli, tmp_path: Path) -> None:
    shutil.copytree("results", "hide")
    Path("results/evil").symlink_to(tmp_path / "hide" / "local")
    Path("results/.cache").symlink_to(tmp_path / "hide")  # nobody reads it for records
    assert found_by_verify(results) == {"evil": {"shape"}}
    assert "evil: shape: " in results("verify")[1]
    assert found_by_verify(results, "results/evil") == {}


@pytest.mark.parametrize("folder", [CAMPAIGN, NOISE, NOISE / "seed-3"])
def test_a_linked_folder_of_a_campaign_is_named(results: Cli, tmp_path: Path, folder: Path) -> None:
    moved = tmp_path / "moved"
    shutil.move(folder, moved)
    folder.symlink_to(moved)
    if folder == CAMPAIGN:
        code, _, err = results("verify")
        assert (code, missing_facts(err, "no records", "a link", "mini")) == (2, [])
    else:
        assert found_by_verify(results) == {where(folder): {"shape"}}
    code, out, _ = results("bundle", "local", "--out", "local.zip")
    assert code != 0, out


def test_files_and_folders_below(tmp_path: Path, close: Close) -> None:
    for name in ("b/c", "a/d", ".hidden/e", "shut/f"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("")
    (tmp_path / "a" / ".g").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "b")
    (tmp_path / "file").symlink_to(tmp_path / "nowhere")
    close(tmp_path / "shut")
    found = walk_folder(tmp_path)
    assert found.files == [tmp_path / name for name in ("a/d", "b/c", "file")]
    assert found.closed == {tmp_path / "shut": "Permission denied"}
    assert found.linked == [tmp_path / "link"]
    assert walk_folder(tmp_path / "none") == walk_folder(tmp_path / "none" / "none")
