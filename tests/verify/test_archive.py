"""Files that somebody else made: each is refused in one line, and leaves nothing behind."""

from __future__ import annotations

import io
import json
import stat
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.verify import archive
from tests.support.bundles import NOISE, unchanged
from tests.support.cli import Cli, refusal
from tests.support.messages import missing_facts

Files = dict[str, bytes]
MAKER = "is damaged"
MERGE = ("merge", "bad.zip", "--into", "target")


DATE = (1980, 1, 1, 0, 0, 0)


def zipped(files: Files, only: str = "", **more: Any) -> bytes:
    """What another program makes of files; ``more`` sets fields of every entry, or of one."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as made:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, DATE)
            entry.create_system, entry.external_attr = 3, 0o100644 << 16
            for field, value in more.items() if only in ("", name) else ():
                setattr(entry, field, value)
            made.writestr(entry, files[name])
    return buffer.getvalue()


def added(name: str, content: bytes = b"x") -> Callable[[Files], bytes]:
    return lambda files: zipped({**files, name: content})


def twice(files: Files) -> bytes:
    buffer = io.BytesIO(zipped(files))
    with pytest.warns(UserWarning, match="Duplicate name"), zipfile.ZipFile(buffer, "a") as made:
        made.writestr(zipfile.ZipInfo("report.txt", DATE), "other")
    return buffer.getvalue()


def linked(files: Files) -> bytes:
    """A record that is a link to a file of the machine."""
    link = f"{NOISE}.json"
    return zipped({**files, link: b"/etc/hostname"}, link, external_attr=(stat.S_IFLNK | 0o777) << 16)


def packed_zeros(files: Files) -> bytes:
    return zipped({**files, "report.txt": bytes(10_000_000)}, compress_type=zipfile.ZIP_DEFLATED)


def lying(size: int) -> Callable[[Files], bytes]:
    """The first entry says another size than it has."""

    def change(files: Files) -> bytes:
        payload = bytearray(archive.pack_files(files))
        payload[18:26] = struct.pack("<2L", size, size)
        return bytes(payload)

    return change


def directory(payload: bytes | bytearray) -> int:
    """Where a zip's directory begins."""
    return int(struct.unpack("<L", payload[-6:-2])[0])


def unlisted(files: Files) -> bytes:
    """An entry that the zip's own directory doesn't name, before all others."""
    hidden = archive.pack_files({"plugins/a.py": b"x"})
    return hidden[: directory(hidden)] + archive.pack_files(files)


def overlapping(files: Files) -> bytes:
    """Two entries of the directory lead to one."""
    payload = bytearray(archive.pack_files(files))
    first = directory(payload)
    second = payload.index(b"PK\1\2", first + 4)
    payload[second + 42 : second + 46] = payload[first + 42 : first + 46]
    return bytes(payload)


def encrypted(files: Files) -> bytes:
    payload = bytearray(archive.pack_files(files))
    payload[6] |= 1
    return bytes(payload)


def streamed(files: Files) -> bytes:
    """Sizes stand behind the contents, as in what is written to a pipe."""

    class Pipe(io.BytesIO):
        def seek(self, *place: int) -> int:
            raise OSError

    pipe = Pipe()
    with zipfile.ZipFile(pipe, "w") as made:
        for name in sorted(files):
            made.writestr(zipfile.ZipInfo(name, DATE), files[name])
    return pipe.getvalue()


def commented(files: Files) -> bytes:
    buffer = io.BytesIO(archive.pack_files(files))
    with zipfile.ZipFile(buffer, "a") as made:
        made.comment = b"hello"
    return buffer.getvalue()


MISPLACED = (
    *("/etc/x.json", "C:/x.json", "report.txt\n", "report.html.exe", "plugins/mine.so"),
    *("records/../../../x/seed-1/toy.json", "records/mini/../seed-1/toy.json", "plugins/\u202emine.py"),
    *("records\\mini\\noise\\seed-1\\x.json", "records/mini/noise/seed-1/.x.json", "plugins/\x1b[2J.py"),
    *("records/mini/noise/seed-1/x/toy.json", "plugins/../mine.pth"),
)
HOSTILE: dict[str, tuple[Callable[[Files], bytes], str]] = {
    **{name: (added(name), "has no place") for name in MISPLACED},
    "a folder": (added("records/", b""), "'records/' has no place"),
    "a name twice": (twice, "'report.txt' twice"),
    "a link": (linked, "a link"),
    "a bomb": (packed_zeros, "is compressed"),
    "a size of 4 GB": (lying(2**32 - 1), "has 4,294,967,295 bytes"),
    "a size beyond the end": (lying(60_000_000), "of 'environment.txt'"),
    "a size that is too small": (lying(3), MAKER),
    "an entry that isn't listed": (unlisted, MAKER),
    "entries that overlap": (overlapping, MAKER),
    "an encrypted entry": (encrypted, MAKER),
    "sizes behind contents": (streamed, "bad.zip: it "),
    "a comment": (commented, MAKER),
    "something behind": (lambda files: archive.pack_files(files) + b"x", MAKER),
    "something before": (lambda files: b"#!/bin/sh\n" + archive.pack_files(files), "not a bundle"),
    "half of it": (lambda files: archive.pack_files(files)[:60_000], "bad.zip: it "),
    "without its directory": (lambda f: archive.pack_files(f)[: directory(archive.pack_files(f))], MAKER),
    "other rights": (lambda files: zipped(files, external_attr=0o100755 << 16), MAKER),
    "another date": (lambda files: zipped(files, date_time=(2026, 1, 1, 0, 0, 0)), MAKER),
    "an extra field": (lambda files: zipped(files, extra=b"\x01\x00\x02\x00ab"), MAKER),
    "nothing": (lambda files: b"", "not a bundle"),
    "an empty zip": (lambda files: zipped({}), "not a bundle"),
    "no zip": (lambda files: b"{}", "not a bundle"),
}


@pytest.mark.parametrize(("make", "fact"), HOSTILE.values(), ids=map(ascii, HOSTILE))
def test_a_hostile_file_is_refused(work: Path, cli: Cli, make: Callable[[Files], bytes], fact: str) -> None:
    with zipfile.ZipFile(work / "local.zip") as good:
        files = {name: good.read(name) for name in good.namelist()}
    assert zipped(files) == (work / "local.zip").read_bytes()
    (work / "bad.zip").write_bytes(make(files))
    with unchanged(work):
        assert missing_facts(refusal(cli, *MERGE), "bad.zip: ", fact) == []


Manifest = dict[str, Any]
REPORT = "report.txt"
MANIFESTS: dict[str, tuple[Callable[[Manifest], object], str]] = {
    "another hash": (lambda m: m["files"][REPORT].update(sha256="0" * 64), "'report.txt' is not"),
    "another size": (lambda m: m["files"][REPORT].update(size=1), "'report.txt' is not"),
    "a file too few": (lambda m: m["files"].pop(REPORT), "'report.txt' isn't named"),
    "a file too many": (
        lambda m: m["files"].update({"plugins/x.py": m["files"][REPORT]}),
        "'plugins/x.py' is missing",
    ),
    "itself": (
        lambda m: m["files"].update({"manifest.json": m["files"][REPORT]}),
        "'manifest.json' is missing",
    ),
    "a newer schema": (lambda m: m.update(schema=2), "schema 2"),
    "an older schema": (lambda m: m.update(schema=0), "bench bundle writes"),
    "no schema": (lambda m: m.pop("schema"), "'schema' is missing"),
    "a schema that is none": (lambda m: m.update(schema=True), "'schema' is missing"),
    "a campaign elsewhere": (lambda m: m.update(campaign="../x"), "'../x'"),
    "a campaign that is hidden": (lambda m: m.update(campaign=".merge"), "'.merge'"),
    "a campaign that is none": (lambda m: m.update(campaign=["x"]), "'campaign' is missing"),
    "an unknown field": (lambda m: m.update(run="me"), "'run' is missing, unknown"),
    "files that are none": (lambda m: m.update(files=[]), "'files' is missing"),
}


@pytest.mark.parametrize(("change", "fact"), MANIFESTS.values(), ids=MANIFESTS)
def test_a_manifest_of_other_files(
    work: Path, cli: Cli, files: Files, change: Callable[[Manifest], object], fact: str
) -> None:
    with zipfile.ZipFile(work / "local.zip") as good:
        said = json.loads(good.read("manifest.json"))
    change(said)
    text = json.dumps(said, indent=2, sort_keys=True) + "\n"
    (work / "bad.zip").write_bytes(archive.pack_files({**files, "manifest.json": text.encode()}))
    with unchanged(work):
        assert fact in refusal(cli, *MERGE)


@pytest.mark.parametrize(
    "text", [b"", b"[]", b"{", b"\xff", b"[" * 100_000, b'{"schema": 1, "schema": 1}', b"1" * 10_000]
)
def test_a_manifest_that_is_none(work: Path, cli: Cli, files: Files, text: bytes) -> None:
    (work / "bad.zip").write_bytes(archive.pack_files({**files, "manifest.json": text}))
    assert missing_facts(refusal(cli, *MERGE), "bad.zip, manifest.json: ", "is no manifest") == []
    (work / "bad.zip").write_bytes(archive.pack_files(files))
    assert missing_facts(refusal(cli, *MERGE), "bad.zip, manifest.json: ", "has no manifest") == []
    with zipfile.ZipFile(work / "local.zip") as good:
        whole = good.read("manifest.json")
    (work / "bad.zip").write_bytes(archive.pack_files({**files, "manifest.json": whole + b" "}))
    assert "bench bundle writes" in refusal(cli, *MERGE)


@pytest.mark.parametrize("name", sorted(archive.ALWAYS))
def test_a_part_that_is_left_out(work: Path, cli: Cli, files: Files, name: str) -> None:
    del files[name]
    (work / "bad.zip").write_bytes(archive.assemble_bundle("local", files))
    assert f"bad.zip: it lacks {name}" in refusal(cli, *MERGE)


def test_no_file_and_limits(work: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "bad.zip: no such" in refusal(cli, *MERGE)
    (work / "bad.zip").mkdir()
    assert "bad.zip: no records" in refusal(cli, *MERGE)
    assert not (work / "target").exists()
    size = (work / "local.zip").stat().st_size
    with unchanged(work):
        for name, most in (("MOST_BYTES", size - 1), ("MOST_FILES", 17), ("LARGEST_FILE", 1_000)):
            with monkeypatch.context() as patch:
                patch.setattr(archive, name, most)
                assert f"at most {most:,}" in refusal(cli, "merge", "local.zip", "--into", "target")
    monkeypatch.setattr(archive, "MOST_BYTES", size)
    monkeypatch.setattr(archive, "MOST_FILES", 18)
    assert cli("merge", "local.zip", "--into", "target")[0] == 0
