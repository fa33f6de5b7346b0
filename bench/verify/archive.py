"""Write and read bundles: zips of stored entries whose bytes follow from their contents.

A read file is untrusted. It is parsed in this simple form, and then compared, to the byte, with
:func:`pack_files` of its entries. So links, dates, hidden or overlapping entries and comments are refused.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import struct
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.errors import InputError
from bench.schema import LONGEST_BYLINE, Block, MapOf, find_fault, is_byline, is_count, is_label, is_text
from bench.version import __version__

SCHEMA = 1
MOST_FILES, MOST_BYTES, LARGEST_FILE = 10_000, 256 * 2**20, 64 * 2**20
MANIFEST, ENVIRONMENT, VERIFIED = "manifest.json", "environment.txt", "verify.json"
REPORTS = {"report.txt": "text", "report.html": "html"}
"""Rendered reports, with their formats."""
ALWAYS = frozenset({ENVIRONMENT, VERIFIED, *REPORTS})
PLAN = "plan.json"
"""Sealed plan of the campaign, if it has one."""
RECORDS, PLUGINS, PROFILES, SWEEPS = "records/", "plugins/", "profiles/", "sweeps/"
_PART = r"[A-Za-z0-9_+=,\[\]@-][A-Za-z0-9._+=,\[\]@-]{0,99}"
_LAYOUT = re.compile(
    rf"manifest\.json|environment\.txt|verify\.json|plan\.json|report\.(txt|html)|plugins/{_PART}\.py"
    rf"|profiles/{_PART}\.toml|sweeps/{_PART}\.json"
    rf"|records/{_PART}/{_PART}/(no-seed|seed-[0-9]{{1,20}})/{_PART}\.(json|npz)"
)
_HEADER = struct.Struct("<4s5H3L2H")
_MANIFEST = Block(
    {
        "schema": is_count,
        "bench": is_label,
        "campaign": is_label,
        "files": MapOf(Block({"sha256": is_text, "size": is_count}, closed=True)),
    },
    {"by": is_byline},
    closed=True,
)
ASK_AGAIN = "ask its sender for the file that bench bundle wrote"
_BUNDLE = "a file that bench bundle wrote"


@dataclass(frozen=True)
class Bundle:
    """A bundle: its campaign's name at its sender, contents by name (except the manifest), hash of the whole.

    ``by`` is the sender by ``--by``, or "".
    """

    campaign: str
    files: Mapping[str, bytes]
    sha256: str
    by: str = ""

    def below(self, folder: str) -> dict[str, bytes]:
        """Return the contents of the files in a folder such as ``RECORDS``, by their names in it."""
        names = (name for name in self.files if name.startswith(folder))
        return {name.removeprefix(folder): self.files[name] for name in names}


def check_sender(text: str) -> str:
    """Return the name of ``--by``, stripped; raises InputError for an unprintable, empty or long one."""
    by = text.strip(" ")
    if not is_byline(by):
        raise InputError(
            f"{by[:LONGEST_BYLINE]!r} of {len(by):,} characters",
            where="--by",
            expected=f"one line of 1 to {LONGEST_BYLINE} characters that can be printed, such as a name",
        )
    return by


def assemble_bundle(campaign: str, files: Mapping[str, bytes], by: str = "") -> bytes:
    """Return the bundle of a campaign's files, with its sender if given (:func:`check_sender`).

    Raises InputError for a file of another name, and for more files or bytes than a bundle may hold.
    """
    return pack_files({**files, MANIFEST: _render_manifest(campaign, __version__, files, by)})


def read_bundle(path: Path) -> Bundle:
    """Read an untrusted bundle; raises InputError for a large or damaged file, or another one."""
    where = str(path)
    if not path.is_file():
        raise InputError("no such file", where=where, expected=_BUNDLE)
    with path.open("rb") as stream:
        payload = stream.read(MOST_BYTES + 1)
    files = _unpack_files(payload, where)
    manifest = _read_manifest(files, where)
    del files[MANIFEST]
    if missing := sorted(ALWAYS - files.keys()):
        raise InputError(f"it lacks {', '.join(missing)}", where=where, hint=ASK_AGAIN)
    return Bundle(manifest["campaign"], files, hashlib.sha256(payload).hexdigest(), manifest.get("by", ""))


def pack_files(files: Mapping[str, bytes]) -> bytes:
    """Return the zip of stored entries by name, of one date and owner; raises as :func:`assemble_bundle`."""
    size = sum(map(len, files.values()))
    if len(files) > MOST_FILES or size > MOST_BYTES:
        expected = f"at most {MOST_FILES:,} files and {MOST_BYTES:,} bytes"
        raise InputError(f"{len(files):,} files of {size:,} bytes", where="the bundle", expected=expected)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(files):
            _check_file(name, len(files[name]), "the bundle")
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.create_system, entry.external_attr = 3, 0o100644 << 16  # the same on every system
            archive.writestr(entry, files[name])
    return buffer.getvalue()


def _unpack_files(payload: bytes, where: str) -> dict[str, bytes]:
    """Return the files of a zip that :func:`pack` made; raises InputError for any other."""
    if len(payload) > MOST_BYTES:
        raise InputError("it is too large", where=where, expected=f"at most {MOST_BYTES:,} bytes")
    if not payload.startswith(b"PK\3\4"):
        raise InputError("this is not a bundle", where=where, expected=_BUNDLE)
    files: dict[str, bytes] = {}
    place = 0
    while payload.startswith(b"PK\3\4", place) and len(payload) >= place + _HEADER.size:
        _, _, _, method, _, _, _, packed, size, length, extra = _HEADER.unpack_from(payload, place)
        begin = place + _HEADER.size
        start = begin + length + extra
        name = payload[begin : begin + length].decode("ascii", errors="backslashreplace")
        _check_file(name, size, where)
        if name in files:
            raise InputError(f"it holds '{name}' twice", where=where, hint=ASK_AGAIN)
        if method != zipfile.ZIP_STORED or packed != size:
            raise InputError(f"'{name}' is compressed", where=where, hint=ASK_AGAIN)
        if len(files) == MOST_FILES:
            raise InputError("it holds too many files", where=where, expected=f"at most {MOST_FILES:,}")
        if start + size > len(payload):
            raise InputError(f"it ends in the midst of '{name}'", where=where, hint="copy it again")
        files[name] = payload[start : start + size]
        place = start + size
    if pack_files(files) != payload:
        what = "it holds a link, or something else that bench bundle doesn't write, or is damaged"
        raise InputError(what, where=where, hint=ASK_AGAIN)
    return files


def _check_file(name: str, size: int, where: str) -> None:
    """Raise InputError for a file that is foreign to a bundle."""
    if not _LAYOUT.fullmatch(name):
        raise InputError(f"'{name}' has no place in a bundle", where=where)
    if size > LARGEST_FILE:
        what, expected = f"'{name}' has {size:,} bytes", f"at most {LARGEST_FILE:,} a file"
        raise InputError(what, where=where, expected=expected)


def _file_facts(content: bytes) -> dict[str, Any]:
    return {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content)}


def _render_manifest(campaign: str, version: str, files: Mapping[str, bytes], by: str) -> bytes:
    listed = {name: _file_facts(content) for name, content in files.items()}
    facts = {"schema": SCHEMA, "bench": version, "campaign": campaign, "files": listed}
    facts |= {"by": by} if by else {}
    return (json.dumps(facts, indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode()


def _read_manifest(files: Mapping[str, bytes], where: str) -> dict[str, Any]:
    """Return the checked manifest; raises InputError for a missing or newer one, or one of other files."""
    where = f"{where}, {MANIFEST}"
    try:
        manifest: dict[str, Any] = json.loads(files[MANIFEST])
        if not isinstance(manifest, dict):
            raise ValueError("it is no mapping")
        if is_count(manifest.get("schema")) and manifest["schema"] > SCHEMA:
            what = f"bundle schema {manifest['schema']} is newer than this bench"
            raise InputError(what, where=where, expected=f"schema {SCHEMA}", hint="upgrade cse-bench")
        if place := find_fault(manifest, _MANIFEST):
            raise ValueError(f"'{place}' is missing, unknown or isn't what it should be")
    except KeyError as error:
        raise InputError("it has no manifest", where=where, hint=ASK_AGAIN) from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"this is no manifest: {error}", where=where, hint=ASK_AGAIN) from error
    _check_listed_files(manifest, files, where)
    return manifest


def _check_listed_files(manifest: Mapping[str, Any], files: Mapping[str, bytes], where: str) -> None:
    """Raise InputError unless the manifest is the one of these files."""
    others = {name: content for name, content in files.items() if name != MANIFEST}
    listed = manifest["files"]
    for name in sorted(listed.keys() | others.keys()):
        what = ""
        if name not in others:
            what = "is missing"
        elif name not in listed:
            what = "isn't named here"
        elif listed[name] != _file_facts(others[name]):
            what = "is not the file that is named here"
        if what:
            raise InputError(f"'{name}' {what}", where=where, hint=ASK_AGAIN)
    rendered = _render_manifest(manifest["campaign"], manifest["bench"], others, manifest.get("by", ""))
    if manifest["schema"] != SCHEMA or rendered != files[MANIFEST]:
        raise InputError("it isn't written as bench bundle writes it", where=where, hint=ASK_AGAIN)
