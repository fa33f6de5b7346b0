"""SentEval's probing tasks: fetched from a small server, and read."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from bench.cli.main import cli
from bench.data import hub, probing_files
from bench.errors import BenchError, DataError, InputError

TEXT = "tr\tPAST\tit  was so\nva\tPRES\tit is so\nte\tPAST\tit was\n"


class Quiet(SimpleHTTPRequestHandler):
    served: list[str] = []  # noqa: RUF012

    def do_GET(self) -> None:
        self.served.append(self.path)
        super().do_GET()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A server's folder with ten small files, which are pinned."""
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    root = tmp_path / "web" / probing_files.REPOSITORY / probing_files.REVISION / "data" / "probing"
    root.mkdir(parents=True)
    for file in probing_files.BLOBS:
        content = (TEXT + f"te\tPRES\t{file}\n").encode()
        (root / file).write_bytes(content)
        name = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
        monkeypatch.setitem(probing_files.BLOBS, file, name)
    Quiet.served.clear()
    handler = partial(Quiet, directory=str(tmp_path / "web"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        monkeypatch.setenv("BENCH_PROBING_ADDRESS", f"http://127.0.0.1:{server.server_port}/")
        yield root
        server.shutdown()


def command(*words: str) -> Any:
    return CliRunner().invoke(cli, ["data", *words])


def test_the_ten_files_come_and_are_checked(files: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    done = command("fetch", "probing", "--data", str(data))
    assert done.exit_code == 0, done.output
    place = data / "senteval" / "probing"
    assert {path.name for path in place.iterdir()} == set(probing_files.BLOBS)
    assert len(Quiet.served) == 10
    assert hub.fetch_data("probing", data) == [place]
    assert len(Quiet.served) == 10  # checked, not fetched again
    task = probing_files.read_probing_task("Tense", probing_files.find_probing_folder(data))
    assert task.counts == {"train": 1, "dev": 1, "test": 2}
    assert task.splits[0].first == ("it was so",)
    verified = command("verify", "probing", "--data", str(data))
    assert verified.output.count(" ok  git blob ") == 10
    (place / "tree_depth.txt").write_text("x")
    verified = command("verify", "probing", "--data", str(data))
    assert [line.split()[0] for line in verified.output.splitlines() if "BAD" in line] == ["tree_depth.txt"]
    hub.fetch_data("probing", data)
    assert Quiet.served[10:] == [Quiet.served[2]]  # only the damaged one
    assert probing_files.check_probing_file("tree_depth.txt", place) == probing_files.BLOBS["tree_depth.txt"]


def test_they_stand_beside_the_downstream_folder(files: Path, tmp_path: Path) -> None:
    (tmp_path / "SentEval" / "data" / "downstream" / "STS").mkdir(parents=True)
    (place,) = hub.fetch_data("probing", tmp_path / "SentEval" / "data")
    assert place == tmp_path / "SentEval" / "data" / "probing"
    assert probing_files.find_probing_folder(tmp_path) == place
    for data, tasks, probing in (
        ("deep", "senteval/downstream", "senteval/probing"),
        ("flat", ".", "probing"),
    ):
        (tmp_path / data / tasks / "STS").mkdir(parents=True)
        assert probing_files.choose_probing_folder(tmp_path / data) == tmp_path / data / probing
    assert probing_files.find_probing_folder(tmp_path / "SentEval" / "data" / "downstream").resolve() == place


def test_a_damaged_or_missing_file_leaves_nothing(files: Path, tmp_path: Path) -> None:
    (files / "tree_depth.txt").write_text("other")
    with pytest.raises(DataError, match=r"tree_depth.txt arrived damaged .*facebookresearch/SentEval"):
        hub.fetch_data("probing", tmp_path / "data")
    (files / "tree_depth.txt").unlink()
    Quiet.served.clear()
    with pytest.raises(BenchError, match=r"tree_depth.txt .* facebookresearch/SentEval: .*404"):
        hub.fetch_data("probing", tmp_path / "data")
    assert not list(tmp_path.glob("data/**/probing"))
    assert len(Quiet.served) == 1  # earlier files are kept


def test_parts_are_taken_up(files: Path, tmp_path: Path) -> None:
    folder = tmp_path / "data" / ".download"
    folder.mkdir(parents=True)
    for file, cut in (("tree_depth.txt", 9), ("word_content.txt", None)):
        (folder / f"{file}.{probing_files.BLOBS[file]}.part").write_bytes((files / file).read_bytes()[:cut])
    (place,) = hub.fetch_data("probing", tmp_path / "data")
    assert len(Quiet.served) == 9  # a whole part isn't asked for
    assert all(probing_files.check_probing_file(file, place) for file in probing_files.BLOBS)


def test_a_plain_address_is_refused(files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCH_PROBING_ADDRESS", "http://example.org")
    with pytest.raises(InputError, match=r"BENCH_PROBING_ADDRESS: 'http://example\.org' .*https"):
        hub.fetch_data("probing", tmp_path / "data")


def test_what_is_missing_says_how_to_get_it(tmp_path: Path) -> None:
    hint = f"bench data fetch probing --data {tmp_path}"
    with pytest.raises(DataError, match=f"no probing data.*{hint}"):
        probing_files.find_probing_folder(tmp_path)
    with pytest.raises(DataError, match=f"missing; {hint}"):
        probing_files.check_probing_file("tree_depth.txt", tmp_path / "probing")


def test_the_pinned_files_are_gits() -> None:
    assert set(probing_files.FILES.values()) == set(probing_files.BLOBS)
    assert all(len(name) == 40 for name in probing_files.BLOBS.values())
