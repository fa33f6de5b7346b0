"""One hostile record or unreadable folder is one finding: everything else is checked all the same."""

from __future__ import annotations

import errno
import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.execution import repetition
from bench.records import integrity
from bench.records.filesystem import walk_folder
from bench.records.record import safe_name
from tests.support.cli import Cli
from tests.support.forge import add_points, forge
from tests.support.messages import missing_facts, numbers_in
from tests.support.unreadable import unreadable
from tests.support.verified import CAMPAIGN, NOISE, ONE, found_by_verify, where

TWO = NOISE / "seed-2" / "toy.json"
Edit = Callable[[dict[str, Any]], object]


def two_members(record: dict[str, Any]) -> None:
    stage = {"sentences_seen": 1, "key": "0" * 64, "settings": {}}
    record["training"] = {
        "arithmetic": 2,
        "stages": {"x": stage},
        "members": {"x": {"method": "simcse,tncse", "options": {}}},
    }
    record["timing"]["training_cpu_seconds"] = {"x": 1.0}


def test_a_member_that_is_two_methods(results: Cli) -> None:
    forge(ONE, two_members)
    forge(TWO, add_points)
    assert found_by_verify(results) == {where(ONE): {"method"}, where(TWO): {"score"}}
    assert missing_facts(results("verify")[1], "builds on 'simcse,tncse'") == []
    code, _, err = results("verify", str(ONE), "--rerun")
    assert (code, missing_facts(err, "'simcse,tncse'"), "internal" in err) == (2, [], False)


@pytest.mark.parametrize("kind", ["local:", "contrast:"])
def test_a_suite_whose_file_can_have_no_such_name(results: Cli, tmp_path: Path, kind: str) -> None:
    suite = kind + 300 * "a"
    path = TWO.with_name(f"{safe_name(suite)}.json")
    TWO.rename(path)
    TWO.with_suffix(".npz").rename(path.with_suffix(".npz"))
    forge(path, lambda record: record.update(suite=suite))
    forge(path, lambda record: record["predictions"].update(file=path.with_suffix(".npz").name))
    forge(ONE, add_points)
    (tmp_path / "data").mkdir()
    found = found_by_verify(results, "--data", "data")
    assert (found[where(ONE)], found[where(path)]) == ({"score"}, {"data"})
    assert "name too long" in results("verify", "--data", "data")[1]


def nested(levels: int) -> dict[str, Any]:
    inner: dict[str, Any] = {}
    for _ in range(levels):
        inner = {"a": inner}
    return inner


@pytest.mark.parametrize(
    ("edit", "place"),
    [
        (lambda record: record["provenance"].update(x=nested(600)), "'provenance.x.a.a.a."),
        (lambda record: record.update(training=building_on(5)), "'training.members.x.backbone' is"),
        (lambda record: record.update(training=building_on({})), "'training.members.x.backbone.name' is"),
    ],
)
def test_a_record_that_no_command_could_work_with(results: Cli, edit: Edit, place: str) -> None:
    forge(ONE, edit, "kept")
    assert found_by_verify(results) == {where(ONE): {"shape"}}
    assert place in results("verify")[1]
    for command, code in (("report", 1), ("stats", 2)):
        found, out, err = results(command)
        assert (found, missing_facts(err, ONE, "run record"), "internal" in err) == (code, [], False)
        assert ("word_overlap" in out) == (command == "report")


def building_on(backbone: object) -> dict[str, Any]:
    member = {"method": "simcse", "version": 1, "options": {}, "backbone": backbone}
    return {"members": {"x": member}}


def test_a_member_that_says_that_it_has_no_model(results: Cli) -> None:
    for path in NOISE.glob("*/toy.json"):
        forge(path, lambda record: record.update(training=building_on(None)))
    assert found_by_verify(results) == {}
    assert results("report", "--format", "csv")[0] == 0


@pytest.mark.parametrize("suffix", [".json", ".npz"])
def test_what_is_no_file_in_a_files_place(results: Cli, tmp_path: Path, suffix: str) -> None:
    file = ONE.with_suffix(suffix)
    check = "shape" if suffix == ".json" else "predictions"
    file.rename(tmp_path / file.name)
    file.symlink_to(tmp_path / file.name)
    assert found_by_verify(results) == {where(ONE): {check}}
    assert missing_facts(results("verify")[1], "a link", "delete the file") == []
    file.unlink()
    with socket.socket(socket.AF_UNIX) as door:  # as a pipe is none, but nobody waits for who writes
        door.bind(str(file))
    assert found_by_verify(results) == {where(ONE): {check}}
    assert missing_facts(results("verify")[1], "no file;", "delete the file") == []
    code, _, err = results("stats")
    assert (code, missing_facts(err, file, "no regular file")) == (2, [])


def test_all_methods_in_the_place_of_one(results: Cli) -> None:
    forge(ONE, lambda record: record.update(method="all"))
    path = ONE.parents[2] / "all" / "seed-1" / "toy.json"
    path.parent.parent.mkdir()
    ONE.parent.rename(path.parent)
    assert results("verify")[0] == 0
    code, _, err = results("verify", str(path), "--rerun")
    assert (code, "internal" in err) != (1, True)


def test_what_nobody_foresaw_is_a_finding(results: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def faults(record: Any) -> Any:
        if record.seed == 1:
            raise KeyError("nobody foresaw\x1b this")
        return integrity.find_record_faults(record)

    monkeypatch.setattr("bench.verify.record_checks.find_record_faults", faults)
    forge(TWO, add_points)
    assert found_by_verify(results) == {where(ONE): {"shape"}, where(TWO): {"score"}}
    out = results("verify")[1]
    assert missing_facts(out, f"{where(ONE)}: shape: ", "KeyError: ", "keep it") == []
    assert numbers_in(out.splitlines()[-1])[:2] == [4, 6]


def test_a_repetition_that_fails_in_an_unknown_way(results: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(record: Any, **given: Any) -> Any:
        if record.seed == 1:
            raise ValueError("not enough values to unpack")
        return repetition.rerun_record(record, **given)

    monkeypatch.setattr("bench.verify.rerun_sample.rerun_record", failing)
    code, out, err = results("verify", "--rerun", "9", "--choose", "1")
    facts = f"{where(ONE)}: rerun: ", "ValueError: not enough"
    assert (code, missing_facts(out, *facts), err.count("equal to the")) == (1, [], 3)
    assert "Traceback" not in err


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
    facts = f"{where(folder)}: shape: ", "can't be read", "Permission denied", f"{left} record"
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
