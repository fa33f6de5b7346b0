"""``bench data fetch``: SimCSE's own evaluation archive and corpus, from a pinned revision of its hub."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Self
from urllib.parse import urlsplit

from filelock import FileLock

from bench.data import senteval
from bench.data.suites import GROUPS, check_reference, is_reference, read_task
from bench.errors import BenchError, DataError, InputError, unknown

REPOSITORY = "princeton-nlp/datasets-for-simcse"
REVISION = "e145e8bb659b2aa2669f32ef79cb4cdef6c58fef"  # head of main since 2021-09-03
ARCHIVE = "senteval.tar"
CORPUS = "wiki1m_for_simcse.txt"
CORPUS_LINES = (1_000_000, 1_000_001)  # by whether a reader counts an unfinished last line
NAMES = (*GROUPS, "wiki1m")
_CHUNK = 1 << 20
_MAX_MEMBER = 64 << 20  # the largest known file, SST-2's training split, has 4 MB
_MAX_TOTAL = 4 << 30  # of all members, unpacked or passed by
_MAX_HEADER = 1 << 20  # of a member's extended header, which tarfile reads at once
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def fetch(name: str, data: Path) -> list[Path]:
    """Get one group into ``data``; a finished group is only checked, an interrupted download goes on.

    Nothing is put in place before all of it has passed its check.

    Args:
        name: "sts7", "transfer7" or "wiki1m".
        data: Data folder; made if missing.

    Returns:
        The files or folders that are there now.

    Raises:
        InputError: unknown name, or a folder that can't be written.
        BenchError: the hub can't be reached or broke off.
        DataError: an unsafe archive, or (naming the task) data that differ from the reference.
    """
    if name not in NAMES:
        raise unknown("data set", name, NAMES, where="bench data fetch")
    try:
        data.mkdir(parents=True, exist_ok=True)
        return _fetch_corpus(data) if name == "wiki1m" else _fetch_tasks(GROUPS[name], data)
    except OSError as error:
        raise InputError(f"can't be written: {error.strerror or error}", where=str(data)) from error


def _fetch_tasks(tasks: Sequence[str], data: Path) -> list[Path]:
    try:
        root = senteval.find_root(data)  # where the readers would look
    except DataError:
        root = data / "senteval" / "downstream"
    if all(_in_place(root, task) for task in tasks):
        return [root]
    archive = _download(ARCHIVE, data)
    with tempfile.TemporaryDirectory(dir=data, prefix=".unpack-") as staging:
        unpack(archive, Path(staging), list(senteval.iter_files(tuple(tasks))))
        for task in tasks:
            check_reference(read_task(Path(staging), task), Path(staging))
        for file in senteval.iter_files(tuple(tasks)):
            (root / file).parent.mkdir(parents=True, exist_ok=True)
            (Path(staging) / file).replace(root / file)
    return [root]


def _in_place(root: Path, task: str) -> bool:
    try:
        return is_reference(read_task(root, task))
    except DataError:
        return False


def unpack(archive: Path, target: Path, files: Sequence[str]) -> None:
    """Unpack known files, wherever in the archive their folder is; nothing else is written.

    Args:
        archive: A tar file, not trusted.
        target: Folder to write to.
        files: Relative paths to write; a member counts as one if its path ends with it.

    Raises:
        DataError: no tar file, a member that points outside, a known file twice, too large or missing, or
            more than such an archive can rightly hold.
    """
    wanted = set(files)
    found: set[str] = set()
    total = 0
    try:
        with tarfile.open(archive, "r:*", tarinfo=_Member) as tar:
            for member in tar:
                _refuse_unsafe(member, archive)
                total += member.size + tarfile.BLOCKSIZE
                if total > _MAX_TOTAL:
                    raise DataError(f"it holds more than {_MAX_TOTAL >> 30} GB", where=archive.name)
                name = _known(member.name, wanted)
                if name is None or not member.isfile():
                    continue
                if name in found or member.size > _MAX_MEMBER:
                    raise DataError(f"'{name}' is in it twice or too large", where=archive.name)
                found.add(name)
                source = tar.extractfile(member)
                if source is None:
                    raise DataError(f"'{name}' can't be read", where=archive.name)
                (target / name).parent.mkdir(parents=True, exist_ok=True)
                with source, (target / name).open("wb") as output:
                    shutil.copyfileobj(source, output, _CHUNK)
    except (tarfile.TarError, EOFError) as error:
        raise DataError(
            f"this is not a whole tar file: {error}", where=str(archive), hint="delete it and fetch again"
        ) from error
    missing = sorted(wanted - found)
    if missing:
        raise DataError(
            f"{len(missing)} file(s) are not in it, the first is {missing[0]}", where=archive.name
        )


class _Member(tarfile.TarInfo):
    """A member whose header is checked before what it announces is read."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        """Parse a header block; raises DataError for an extended header of absurd size."""
        member = super().frombuf(buf, encoding, errors)
        if not (member.isfile() or member.isdir()) and member.size > _MAX_HEADER:
            raise DataError(
                f"a header of {member.size:,} bytes", where="archive", expected=f"{_MAX_HEADER:,}"
            )
        return member


def _refuse_unsafe(member: tarfile.TarInfo, archive: Path) -> None:
    path = PurePosixPath(member.name)
    if path.is_absolute() or ".." in path.parts or not (member.isfile() or member.isdir()):
        raise DataError(
            f"the archive is not safe: member '{member.name}' points outside it or is not a plain file",
            where=archive.name,
            hint="nothing was unpacked into the data folder",
        )


def _known(name: str, wanted: set[str]) -> str | None:
    parts = PurePosixPath(name).parts
    return next((tail for i in range(len(parts)) if (tail := "/".join(parts[i:])) in wanted), None)


def _fetch_corpus(data: Path) -> list[Path]:
    target = data / "corpus" / CORPUS
    if target.is_file() and _count_lines(target) in CORPUS_LINES:
        return [target]
    file = _download(CORPUS, data)
    count = _count_lines(file)
    if count not in CORPUS_LINES:
        raise DataError(
            f"wiki1m: {count:,} lines",
            where=CORPUS,
            expected=f"{CORPUS_LINES[0]:,}",
            hint="nothing was put in place",
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    file.replace(target)
    return [target]


def _count_lines(file: Path) -> int:
    with file.open("rb") as stream:
        return sum(1 for _ in stream)


def _download(filename: str, data: Path) -> Path:
    """Download one file of the pinned revision into ``data/.download``; goes on where it broke off.

    The library's own download keeps no partial file for the next process, so the part is kept here, named by
    the hub's etag (for large files their sha256): a part of another version is never continued.
    """
    from huggingface_hub import get_hf_file_metadata, hf_hub_url
    from huggingface_hub.file_download import http_get

    endpoint = _endpoint()
    folder = data / ".download"
    folder.mkdir(exist_ok=True)
    with FileLock(folder / f"{filename}.lock"):
        try:
            url = hf_hub_url(REPOSITORY, filename, repo_type="dataset", revision=REVISION, endpoint=endpoint)
            facts = get_hf_file_metadata(url, endpoint=endpoint)
            etag = re.sub(r"[^0-9A-Za-z]", "", facts.etag or "unknown")
            if len(etag) != 64:
                raise ValueError("the hub gives no sha256 to check it against")
            if (folder / filename).is_file() and _sha256(folder / filename) == etag:
                return folder / filename  # fetched for the other group before
            part = folder / f"{filename}.{etag}.part"
            with part.open("ab") as stream:
                http_get(
                    url,
                    stream,
                    resume_size=stream.tell(),
                    expected_size=facts.size,
                    displayed_filename=filename,
                )
        except Exception as error:  # the library, its HTTP client and the sockets raise unrelated kinds
            reason = str(error).strip().split("\n")[0] or type(error).__name__
            raise BenchError(
                f"{filename} could not be fetched from {REPOSITORY}: {reason}",
                hint="run the same command again: it goes on where it stopped",
            ) from error
        if _sha256(part) != etag:
            part.unlink()
            raise DataError(f"{filename} arrived damaged (its sha256 is not the hub's)", hint="fetch again")
        return part.rename(folder / filename)


def _endpoint() -> str | None:
    """The hub to ask instead of the usual one; raises InputError where others could change what it sends."""
    given = os.environ.get("HF_ENDPOINT") or None
    here = urlsplit(given or "").hostname in _LOOPBACK
    if given and not given.startswith(("https://", "http://") if here else "https://"):
        raise InputError(f"'{given}' is not an https address", where="HF_ENDPOINT", expected="https://HOST")
    return given


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
