"""Fetching against a small hub on this machine: resumed, checked, unpacked safely."""

from __future__ import annotations

import hashlib
import json
import tarfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from bench.data import downloads, senteval
from bench.data.suites import GROUPS, reference_fingerprints
from bench.errors import DataError, InputError
from tests.support.hub import Hub, small_sts_files, tar_of, unsafe
from tests.support.messages import check_error


@pytest.fixture
def reference(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, bytes]:
    """Make the small tree the reference for group sts7."""
    files = small_sts_files()
    root = tmp_path / "reference"
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    for task_id in GROUPS["sts7"]:
        task = senteval.SOURCES[task_id].read(root)
        facts = {"items": task.items, "sha256": task.sha256, "parts": task.counts}
        monkeypatch.setitem(reference_fingerprints(), task_id, facts)
    return files


@pytest.mark.parametrize("prefix", ["", "./", "SentEval/data/downstream/"])
def test_fetch_places_files(server: Hub, reference: dict[str, bytes], tmp_path: Path, prefix: str) -> None:
    others = {"STS/other.py": b"print()", "readme": b"x"}
    server.files[downloads.ARCHIVE] = tar_of(reference | others, prefix)
    data = tmp_path / "data"
    root = data / "senteval" / "downstream"
    assert downloads.fetch_data("sts7", data) == [root]
    assert {path.relative_to(root).as_posix() for path in root.rglob("*.*")} == set(reference)
    assert not list(data.glob(".unpack-*"))
    server.served.clear()
    downloads.fetch_data("sts7", data)
    assert server.served == []  # checked, not fetched again


def test_download_resumes(
    server: Hub, reference: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)  # the library waits between its tries
    server.files[downloads.ARCHIVE] = tar_of({**reference, "unknown.bin": bytes(24 << 20)})
    server.break_after = 15 << 20  # the library writes 10 MB at a time
    check_error(partial(downloads.fetch_data, "sts7", tmp_path / "data"), "same command again")
    assert not (tmp_path / "data" / "senteval").exists()
    server.break_after = None
    server.served.clear()
    downloads.fetch_data("sts7", tmp_path / "data")
    assert server.served == [(downloads.ARCHIVE, f"bytes={10 << 20}-")]
    assert (tmp_path / "data" / "senteval" / "downstream" / "SICK" / "SICK_train.txt").is_file()


def test_too_long_a_part_is_restarted(server: Hub, reference: dict[str, bytes], tmp_path: Path) -> None:
    content = server.files[downloads.ARCHIVE] = tar_of(reference)
    part = tmp_path / "data" / ".download" / f"{downloads.ARCHIVE}.{hashlib.sha256(content).hexdigest()}.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(content + b"more")
    downloads.fetch_data("sts7", tmp_path / "data")
    assert server.served == [(downloads.ARCHIVE, None)]


def test_leftovers_of_a_kill_are_removed(server: Hub, reference: dict[str, bytes], tmp_path: Path) -> None:
    server.files[downloads.ARCHIVE] = tar_of(reference)
    leftover = tmp_path / "data" / ".unpack-x" / "STS"
    leftover.mkdir(parents=True)
    downloads.fetch_data("sts7", tmp_path / "data")
    assert not leftover.parent.exists()


def test_parallel_fetches_fetch_once(server: Hub, reference: dict[str, bytes], tmp_path: Path) -> None:
    server.files[downloads.ARCHIVE] = tar_of(reference)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: downloads.fetch_data("sts7", tmp_path / "data"), range(4)))
    assert found == [[tmp_path / "data" / "senteval" / "downstream"]] * 4
    assert server.served == [(downloads.ARCHIVE, None)]


def test_a_different_task_is_named_and_refused(
    server: Hub, reference: dict[str, bytes], tmp_path: Path
) -> None:
    changed = {**reference, "STS/STS14-en-test/STS.gs.images.txt": b"1.0\n4.5\n"}
    server.files[downloads.ARCHIVE] = tar_of(changed)
    check_error(partial(downloads.fetch_data, "sts7", tmp_path / "data"), "STS14: ", "differ", kind=DataError)
    assert not (tmp_path / "data" / "senteval").exists()


def test_a_damaged_download_is_deleted(server: Hub, reference: dict[str, bytes], tmp_path: Path) -> None:
    server.files[downloads.ARCHIVE] = tar_of(reference)
    server.etag = "0" * 64
    fetch = partial(downloads.fetch_data, "sts7", tmp_path / "data")
    check_error(fetch, "senteval.tar arrived damaged", kind=DataError)
    assert not list((tmp_path / "data").rglob("senteval.tar"))


def test_no_hub_is_one_clear_line(server: Hub, tmp_path: Path) -> None:
    facts = ("senteval.tar", "princeton-nlp/datasets-for-simcse", "same command again")
    check_error(partial(downloads.fetch_data, "sts7", tmp_path / "data"), *facts)
    facts = ("'sts'", "'sts7'", "nli, probing, sts7, transfer7")
    check_error(partial(downloads.fetch_data, "sts", tmp_path / "data"), *facts, kind=InputError)
    (tmp_path / "file").write_text("")
    check_error(partial(downloads.fetch_data, "sts7", tmp_path / "file"), "can't be written", kind=InputError)


@pytest.mark.parametrize(
    "member",
    [
        unsafe("../SICK/SICK_train.txt"),
        unsafe("/SICK/SICK_train.txt"),
        unsafe("a/../../x"),
        unsafe("SICK/SICK_train.txt", tarfile.SYMTYPE, "/etc/passwd"),
        unsafe("SICK/SICK_train.txt", tarfile.LNKTYPE, "../x"),
        unsafe("SICK/SICK_train.txt", tarfile.FIFOTYPE),
    ],
)
def test_unsafe_archives_are_refused_whole(tmp_path: Path, member: tarfile.TarInfo) -> None:
    archive = tmp_path / "a.tar"
    archive.write_bytes(tar_of(small_sts_files(), extra=[member]))
    target = tmp_path / "target"
    unpack = partial(downloads.unpack_archive, archive, target, ["SICK/SICK_train.txt"])
    check_error(unpack, "not safe", kind=DataError)
    assert not target.exists()


def test_incomplete_or_broken_archives_are_refused(tmp_path: Path) -> None:
    archive = tmp_path / "a.tar"
    train, trial = "SICK/SICK_train.txt", "SICK/SICK_trial.txt"
    for content, files, fault in (
        (tar_of({train: b"x"}), [train, trial], f"1 file(s) are not in it, the first is {trial}"),
        (b"no tar at all" * 100, [train], "whole tar file"),
        (tar_of({f"a/{train}": b"x", f"b/{train}": b"y"}), [train], "twice"),
    ):
        archive.write_bytes(content)
        check_error(partial(downloads.unpack_archive, archive, tmp_path / "t", files), fault, kind=DataError)


def test_the_lines_of_the_corpus_count(server: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server.files[downloads.CORPUS] = b"a\nb\nc\n"
    fetch = partial(downloads.fetch_data, "wiki1m", tmp_path / "data")
    check_error(fetch, "wiki1m: 3 lines", "expected 1,000,000", kind=DataError)
    assert not (tmp_path / "data" / "corpus").exists()
    monkeypatch.setattr(downloads, "CORPUS_LINES", (3, 4))
    (corpus,) = downloads.fetch_data("wiki1m", tmp_path / "data")
    assert corpus.read_bytes() == b"a\nb\nc\n"
    server.served.clear()
    assert downloads.fetch_data("wiki1m", tmp_path / "data") == [corpus]
    assert server.served == []


def test_fingerprints_file_is_hashes_and_counts_only() -> None:
    for facts in reference_fingerprints().values():
        assert set(facts) == {"items", "sha256", "parts"}
        assert len(facts["sha256"]) == 64
    assert json.dumps(reference_fingerprints())
