"""SentEval's probing tasks: fetched from a small server, and read."""

from __future__ import annotations

import hashlib
from functools import partial
from pathlib import Path

import pytest

from bench.data import downloads, probing_files
from bench.data.probing_files import BLOBS, check_probing_file, find_probing_folder
from bench.errors import DataError, InputError
from tests.support.cli import Cli
from tests.support.hub import Hub
from tests.support.messages import check_error

DEPTH = "tree_depth.txt"


@pytest.fixture
def probing(server: Hub, monkeypatch: pytest.MonkeyPatch) -> Hub:
    """A server with ten small files, which are pinned."""
    for file in BLOBS:
        content = f"tr\tPAST\tit  was so\nva\tPRES\tit is so\nte\tPAST\tit was\nte\tPRES\t{file}\n".encode()
        server.files[file] = content
        blob = b"blob %d\0" % len(content) + content
        monkeypatch.setitem(BLOBS, file, hashlib.sha1(blob, usedforsecurity=False).hexdigest())
    monkeypatch.setenv("BENCH_PROBING_ADDRESS", f"http://127.0.0.1:{server.server_port}/")
    return server


def test_the_ten_files_come_and_are_checked(probing: Hub, cli: Cli, tmp_path: Path) -> None:
    data, place = tmp_path / "data", tmp_path / "data" / "senteval" / "probing"
    assert cli("data", "fetch", "probing", "--data", "data")[0] == 0
    assert {path.name for path in place.iterdir()} == set(BLOBS)
    assert len(probing.served) == 10
    assert downloads.fetch_data("probing", data) == [place]
    assert len(probing.served) == 10  # checked, not fetched again
    task = probing_files.read_probing_task("Tense", find_probing_folder(data))
    assert task.counts == {"train": 1, "dev": 1, "test": 2}
    assert task.splits[0].first == ("it was so",)
    assert cli("data", "verify", "probing", "--data", "data")[1].count(" ok  git blob ") == 10
    (place / DEPTH).write_text("x")
    out = cli("data", "verify", "probing", "--data", "data")[1]
    assert [line.split()[0] for line in out.splitlines() if "BAD" in line] == [DEPTH]
    downloads.fetch_data("probing", data)
    assert probing.served[10:] == [(DEPTH, None)]  # only the damaged one
    assert check_probing_file(DEPTH, place) == BLOBS[DEPTH]


def test_they_stand_beside_the_downstream_folder(probing: Hub, tmp_path: Path) -> None:
    (tmp_path / "SentEval" / "data" / "downstream" / "STS").mkdir(parents=True)
    (place,) = downloads.fetch_data("probing", tmp_path / "SentEval" / "data")
    assert place == tmp_path / "SentEval" / "data" / "probing"
    assert find_probing_folder(tmp_path) == place
    for data, tasks, folder in (
        ("deep", "senteval/downstream", "senteval/probing"),
        ("flat", ".", "probing"),
    ):
        (tmp_path / data / tasks / "STS").mkdir(parents=True)
        assert probing_files.choose_probing_folder(tmp_path / data) == tmp_path / data / folder
    assert find_probing_folder(tmp_path / "SentEval" / "data" / "downstream").resolve() == place


def test_a_damaged_or_missing_file_leaves_nothing(probing: Hub, tmp_path: Path) -> None:
    fetch = partial(downloads.fetch_data, "probing", tmp_path / "data")
    probing.files[DEPTH] = b"other"
    check_error(fetch, f"{DEPTH} arrived damaged", "facebookresearch/SentEval", kind=DataError)
    del probing.files[DEPTH]
    probing.served.clear()
    check_error(fetch, DEPTH, "facebookresearch/SentEval: ", "404")
    assert not list(tmp_path.glob("data/**/probing"))
    assert len(probing.served) == 0  # earlier files are kept


def test_parts_are_taken_up(probing: Hub, tmp_path: Path) -> None:
    folder = tmp_path / "data" / ".download"
    folder.mkdir(parents=True)
    for file, end in ((DEPTH, 9), ("word_content.txt", None)):
        (folder / f"{file}.{BLOBS[file]}.part").write_bytes(probing.files[file][:end])
    (place,) = downloads.fetch_data("probing", tmp_path / "data")
    assert len(probing.served) == 9  # a whole part isn't asked for
    assert (DEPTH, "bytes=9-") in probing.served
    assert all(check_probing_file(file, place) for file in BLOBS)


def test_a_plain_address_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCH_PROBING_ADDRESS", "http://example.org")
    fetch = partial(downloads.fetch_data, "probing", tmp_path / "data")
    check_error(fetch, "'http://example.org'", "https", where="BENCH_PROBING_ADDRESS", kind=InputError)


def test_what_is_missing_says_how_to_get_it(tmp_path: Path) -> None:
    hint = f"bench data fetch probing --data {tmp_path}"
    check_error(lambda: find_probing_folder(tmp_path), "no probing data", hint)
    check_error(lambda: check_probing_file(DEPTH, tmp_path / "probing"), "missing", hint)


def test_the_pinned_files_are_gits() -> None:
    assert set(probing_files.FILES.values()) == set(BLOBS)
    assert all(len(name) == 40 for name in BLOBS.values())
