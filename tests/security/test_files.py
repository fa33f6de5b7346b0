"""Hostile archives, downloads and packed texts: nothing lands out of place, and nothing grows without end."""

from __future__ import annotations

import gzip
import io
import lzma
import tarfile
from pathlib import Path
from typing import Any

import pytest

from bench.data import downloads, tar, word_vectors
from bench.data.local_tasks import read_local_suite
from bench.errors import BenchError, DataError, InputError
from bench.probes import training_overlap
from tests.support.cli import Cli, refusal
from tests.support.hostile import everything
from tests.support.hub import Hub, small_sts_files, tar_of, unsafe
from tests.support.messages import missing_facts

WANTED = ["SICK/SICK_train.txt"]


def archive(folder: Path, *members: tarfile.TarInfo, mode: Any = "w") -> Path:
    path = folder / "a.tar"
    with tarfile.open(path, mode, format=tarfile.PAX_FORMAT) as tar:
        for member in members:
            tar.addfile(member, io.BytesIO(bytes(member.size)) if member.isfile() else None)
    return path


def refuse(path: Path, message: str) -> None:
    with pytest.raises(DataError, match=message):
        downloads.unpack_archive(path, path.parent / "target", WANTED)


def sized(name: str, size: int, **pax: str) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.size, info.pax_headers = size, dict(pax)
    return info


@pytest.mark.parametrize("kind", [tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.LNKTYPE, tarfile.SYMTYPE])
@pytest.mark.parametrize("name", ["SICK/SICK_train.txt", "x"])
def test_devices_and_links_are_refused(tmp_path: Path, kind: bytes, name: str) -> None:
    path = archive(tmp_path, unsafe(name, kind, "/etc/hostname"))
    refuse(path, r"a\.tar: the archive is not safe: member .*; nothing was unpacked")
    assert not (tmp_path / "target").exists()


def test_a_packed_bomb_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloads, "_MAX_MEMBER", 1 << 20)
    monkeypatch.setattr(downloads, "_MAX_TOTAL", 4 << 20)
    bomb = archive(tmp_path, *(sized(f"other-{n}", 1 << 20) for n in range(8)), mode="w:gz")
    assert bomb.stat().st_size < 1 << 16
    refuse(bomb, r"a\.tar: it holds more than")
    large = archive(tmp_path, sized(WANTED[0], (1 << 20) + 1))
    refuse(large, r"'SICK/SICK_train\.txt' is in it twice or too large")
    refuse(archive(tmp_path, sized("x", 0, comment="y" * (2 << 20)), mode="w:gz"), "a header of 2,097,")
    assert everything(tmp_path / "target") == {}


def block(kind: bytes, size: int, name: str = "x") -> bytes:
    """A header block of 512 bytes as it stands in the archive."""
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, size
    return info.tobuf(tarfile.GNU_FORMAT)


def header(kind: bytes, content: bytes, name: str = "x") -> bytes:
    return block(kind, len(content), name) + content + bytes(-len(content) % 512)


FILE = header(b"0", b"hello", WANTED[0])
EXTENDED = [b"x", b"X", b"g", b"L", b"K"]


DAMAGED = r"a\.tar: the download is damaged: this is not a whole tar file"


@pytest.mark.parametrize("kind", EXTENDED)
def test_a_header_is_refused_before_it_is_parsed_and_many_are_no_recursion(
    tmp_path: Path, kind: bytes
) -> None:
    path = tmp_path / "a.tar"
    # tarfile takes an hour for a megabyte of digits
    for content in (b"1", b"1 ", b"9 path=x\n"):
        for size in (1 << 20, 4097):
            path.write_bytes(header(kind, (content * size)[:size]) + FILE + bytes(1024))
            refuse(path, f"a header of {size:,} bytes; expected at most 4,096")
    path.write_bytes(block(kind, 1 << 62) + FILE)
    refuse(path, r"a header of 4,611,686,018,427,387,904 bytes")
    assert not (tmp_path / "target").exists()
    path.write_bytes(header(kind, b"9 atim=1\n") * 5000 + FILE + bytes(1024))
    if kind == b"L":  # the last one names the file
        refuse(path, r"1 file\(s\) are not in it")
        return
    downloads.unpack_archive(path, tmp_path / "target", WANTED)
    assert (tmp_path / "target" / WANTED[0]).read_bytes() == b"hello"


@pytest.mark.parametrize(
    "content",
    [
        *(b"1" * 4096, b"5 a=", b"99 a=b\n", b"0 a=b\n", b"-6 a=b\n", b"6_0 a=b\n", b" a=b\n", b"6 a=b"),
        *(b"4 ab\n", b"11 size=-1\n", b"12 size=1_0\n", b"11 size=\xc2\xb2\n"),
        b"27 size=" + b"9" * 18 + b"\n",
    ],
)
def test_a_pax_header_that_is_none_is_a_damaged_download(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.tar").write_bytes(header(b"x", content) + FILE + bytes(1024))
    refuse(tmp_path / "a.tar", DAMAGED)


def test_odd_sizes_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.tar"
    below = bytearray(block(b"0", 0, WANTED[0]))
    below[124:136] = b"\xff" * 11 + b"\xfb"  # -5
    below[148:156] = b" " * 8
    below[148:156] = b"%06o\0 " % sum(below)
    huge = header(b"x", b"24 size=" + b"9" * 15 + b"\n") + block(b"0", 0)
    for content, why in ((bytes(below), "below zero"), (huge, "more than"), (FILE[:600], "early")):
        path.write_bytes(content)
        refuse(path, why)
    monkeypatch.setattr(tar, "MAX_MEMBERS", 3)
    path.write_bytes(FILE + block(b"0", 0) * 3 + bytes(1024))
    refuse(path, r"a\.tar: it holds more than 3 files")


LONG = "é" * 60 + "/" + "b" * 120 + "/"


@pytest.mark.parametrize("mode", ["w", "w:gz"])
@pytest.mark.parametrize(
    ("form", "prefix"),
    [
        *((tarfile.USTAR_FORMAT, name) for name in ("", "./", "a" * 90 + "/")),
        *((form, name) for form in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT) for name in ("./", LONG)),
    ],
)
def test_what_tar_programs_write_is_read(tmp_path: Path, form: int, prefix: str, mode: Any) -> None:
    path = tmp_path / "a.tar"
    with tarfile.open(path, mode, format=form, pax_headers={"comment": "c" * 500}) as made:
        files = [(f"{prefix}other", b"0"), (prefix + WANTED[0], b"0")]
        for name, kind in [(prefix or ".", tarfile.DIRTYPE), *files]:
            member = sized(name, 0 if kind == tarfile.DIRTYPE else 1500)
            member.type, member.mtime = kind, 1.5 if form == tarfile.PAX_FORMAT else 1
            made.addfile(member, io.BytesIO(b"x" * 1500))
    downloads.unpack_archive(path, tmp_path / "target", WANTED)
    assert everything(tmp_path / "target") == {WANTED[0]: b"x" * 1500}


def test_a_cut_or_flipped_gzip_is_a_damaged_download(server: Hub, tmp_path: Path) -> None:
    whole = gzip.compress(tar_of({name: bytes(range(256)) * 4 for name in WANTED}), mtime=0)
    path = tmp_path / "a.tar"
    damaged = [whole[:size] for size in range(2, len(whole), 7)]
    damaged += [whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :] for at in range(10, len(whole), 3)]
    damaged += [whole + b"more", whole[:-8] + bytes(8), b"\x1f\x8b" + bytes(600)]
    for content in damaged:
        path.write_bytes(content)
        refuse(path, DAMAGED)
    server.files[downloads.ARCHIVE] = whole[: len(whole) // 2]
    with pytest.raises(DataError, match=r"senteval\.tar: .*damaged: .*fetch again"):
        downloads.fetch_data("sts7", tmp_path / "data")
    assert not (tmp_path / "data" / "senteval").exists()
    assert not list((tmp_path / "data").glob(".unpack-*"))


@pytest.mark.parametrize("address", ["http://hub.example", "ftp://127.0.0.1", "file:///etc", "hub.example"])
def test_nothing_is_fetched_over_an_open_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", address)
    with pytest.raises(InputError) as caught:
        downloads.fetch_data("sts7", tmp_path / "data")
    assert (caught.value.where, caught.value.expected) == ("HF_ENDPOINT", "https://HOST")
    assert address in caught.value.what


def test_a_file_that_the_hub_has_no_hash_of_is_not_fetched(server: Hub, tmp_path: Path) -> None:
    server.files[downloads.ARCHIVE] = tar_of(small_sts_files())
    server.etag = "../../../etc/passwd"
    with pytest.raises(BenchError, match=r"senteval\.tar could not be .* no sha256 to check it against"):
        downloads.fetch_data("sts7", tmp_path / "data")
    assert server.served == []
    assert everything(tmp_path) == {}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("v.txt", b"2 1000000000000\na 1 2\n", r"v\.txt:2: 2 fields after the word; expected word vectors"),
        ("v.txt", b"9" * 6000 + b" 3\na 1 2 3\n", r"v\.txt:1: |v\.txt:2: "),
        ("v.txt", b"x" * (1 << 21), "a line of more than a megabyte"),
        ("v.gz", gzip.compress(b"0" * (1 << 24), mtime=0), "a line of more than a megabyte"),
        ("v.gz", gzip.compress(b"a 1 2\n" * 10, mtime=0)[:-9], "it can't be unpacked"),
        ("v.gz", gzip.compress(b"a 0 0\n" * 100_000, mtime=0), "v.gz: it unpacks to more than 100 times"),
        ("v.xz", lzma.compress(b"a 0 0\n" * 100_000), "v.xz: it unpacks to more than 100 times its size"),
    ],
)
def test_word_vectors_without_end_or_sense(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, content: bytes, message: str
) -> None:
    monkeypatch.setattr(word_vectors, "_SMALL", 1 << 16)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        word_vectors.read_word_vectors(tmp_path / name)


def test_a_training_text_of_one_endless_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training_overlap, "_LONGEST", 1 << 16)
    (tmp_path / "t.xz").write_bytes(lzma.compress(b"short\n" + bytes(1 << 20)))
    with pytest.raises(DataError, match=r"t\.xz:2: a line of more than 64 megabytes"):
        list(training_overlap.read_training_lines(tmp_path / "t.xz"))


def test_a_local_task_reads_tables_alone(tmp_path: Path) -> None:
    away = tmp_path / "away.tsv"
    away.write_text("sentence1\tsentence2\tscore\na\tb\t1\nc\td\t2\n")
    entry = '[[task]]\nname = "t"\ntype = "sts"\nfile = "{}"\n'
    (tmp_path / "x.toml").write_text(entry.format(away))
    (task,) = read_local_suite(tmp_path / "x.toml")
    assert str(tmp_path) not in repr(task)
    for place in ("/etc/passwd", "../../../../../../../../../../etc/passwd"):
        (tmp_path / "x.toml").write_text(entry.format(place))
        with pytest.raises(DataError, match=r"etc/passwd: '' is not a format; expected \.tsv"):
            read_local_suite(tmp_path / "x.toml")


def test_an_export_writes_over_nothing(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("kept")
    (tmp_path / "link").symlink_to(tmp_path / "full")
    for out in ("full", "link", "full/file", "link/../full"):
        said = refusal(cli, "export", "noise", "--seed", "1", "--suite", "toy", "--out", out)
        assert missing_facts(said, f"--out {out}: ", "a new folder") == []
    assert everything(tmp_path) == {"full/file": b"kept"}
