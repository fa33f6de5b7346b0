"""Downloads of pinned revisions: SimCSE's evaluation archive and training texts, SentEval's probing tasks."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

from filelock import FileLock

from bench.data import lock_files, probing_files, senteval
from bench.data.labelled_pairs import read_pairs
from bench.data.suites import GROUPS, check_reference, is_reference, read_task
from bench.data.tar import iter_members
from bench.errors import BenchError, DataError, InputError, unknown_name

REPOSITORY = "princeton-nlp/datasets-for-simcse"
REVISION = "e145e8bb659b2aa2669f32ef79cb4cdef6c58fef"  # head of main since 2021-09-03
ARCHIVE = "senteval.tar"
CORPUS = lock_files.WIKI1M
CORPUS_LINES = (1_000_000, 1_000_001)  # the last line may be unfinished
PAIRS = 275_601  # triplets of SimCSE's NLI file according to the paper
TEXTS = {"wiki1m": CORPUS, "nli": lock_files.NLI}
"""SimCSE's training texts, which have no published hash."""
NAMES = (*GROUPS, *TEXTS, "probing")
PROBING_ADDRESS = "https://raw.githubusercontent.com"
_MAX_MEMBER = 64 << 20  # the largest known file, SST-2's training split, has 4 MB
_MAX_TOTAL = 4 << 30  # of the whole archive, unpacked
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def fetch_data(name: str, data: Path) -> list[Path]:
    """Get one of NAMES into ``data``; a finished group is only checked, an interrupted download resumes.

    Returns its files or folders, which are put in place after all have passed their check. Raises InputError
    for an unknown name, BenchError for a hub out of reach, DataError for damaged or other data.
    """
    if name not in NAMES:
        raise unknown_name("data set", name, NAMES, where="bench data fetch")
    try:
        data.mkdir(parents=True, exist_ok=True)
        if name in TEXTS:
            target = data / "corpus" / TEXTS[name]
            _fetch_once(target.name, data, partial(_is_pinned, target), partial(_fetch_text, target))
            return [target]
        if name == "probing":
            return [_fetch_probing(data)]
        return [_fetch_tasks(GROUPS[name], data)]
    except OSError as error:
        raise InputError(f"can't be written: {error.strerror or error}", where=str(data)) from error


def _fetch_once(file: str, data: Path, there: Callable[[], bool], get: Callable[[Path], None]) -> None:
    """Get a file if its contents are missing; other processes wait for it."""
    if there():
        return  # also in a read-only folder
    folder = data / ".download"
    folder.mkdir(exist_ok=True)
    with FileLock(folder / f"{file}.lock"):
        if not there():
            get(folder)


def _fetch_tasks(tasks: Sequence[str], data: Path) -> Path:
    try:
        root = senteval.find_root(data)  # where the readers would look
    except DataError:
        root = data / "senteval" / "downstream"

    def whole() -> bool:
        with suppress(DataError):
            return all(is_reference(read_task(root, task)) for task in tasks)
        return False

    def get(folder: Path) -> None:
        for leftover in data.glob(".unpack-*"):  # of a killed process: we have the lock
            shutil.rmtree(leftover, ignore_errors=True)
        if whole():
            return
        archive = _download_file(ARCHIVE, _query_hub(ARCHIVE), folder)
        with tempfile.TemporaryDirectory(dir=data, prefix=".unpack-") as staging:
            unpack_archive(archive, Path(staging), list(senteval.iter_files(tuple(tasks))))
            for task in tasks:
                check_reference(read_task(Path(staging), task), Path(staging))
            for file in senteval.iter_files(tuple(tasks)):
                (root / file).parent.mkdir(parents=True, exist_ok=True)
                (Path(staging) / file).replace(root / file)

    _fetch_once(ARCHIVE, data, lambda: whole() and not any(data.glob(".unpack-*")), get)
    return root


def _fetch_probing(data: Path) -> Path:
    """Get the probing files that are missing or differ from SentEval's, all or none."""
    root = probing_files.choose_probing_folder(data)
    host = (_read_address("BENCH_PROBING_ADDRESS") or PROBING_ADDRESS).rstrip("/")

    def lacking() -> list[str]:
        return [
            file for file in probing_files.BLOBS if not _passes(probing_files.check_probing_file, file, root)
        ]

    def get(folder: Path) -> None:
        paths, repository = [], probing_files.REPOSITORY
        for file in lacking():
            url = f"{host}/{repository}/{probing_files.REVISION}/data/probing/{file}"
            blob = probing_files.BLOBS[file]
            remote = _Remote(url, blob, None, probing_files.git_blob_hash, repository)
            paths.append(_download_file(file, remote, folder))
        root.mkdir(parents=True, exist_ok=True)
        for path in paths:
            path.replace(root / path.name)

    _fetch_once("probing", data, lambda: not lacking(), get)
    return root


def _passes(check: Callable[..., object], *arguments: object) -> bool:
    try:
        check(*arguments)
    except DataError:
        return False
    return True


def unpack_archive(archive: Path, target: Path, files: Sequence[str]) -> None:
    """Unpack ``files`` (ends of paths) of an untrusted tar file; raises DataError for unsafe ones."""
    written: set[str] = set()
    for member in iter_members(archive, _MAX_TOTAL):
        if not member.is_safe:
            what = f"the archive is not safe: member '{member.name[:200]}' leaves it or isn't a plain file"
            raise DataError(what, where=archive.name, hint="nothing was unpacked into the data folder")
        path = f"/{PurePosixPath(member.name)}"
        name = next((file for file in files if path.endswith(f"/{file}")), None)
        if name is None or member.is_folder:
            continue
        if name in written or member.size > _MAX_MEMBER:
            raise DataError(f"'{name}' is in it twice or too large", where=archive.name)
        written.add(name)
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        with (target / name).open("wb") as output:
            output.writelines(member.chunks())
    if missing := sorted(set(files) - written):
        what = f"{len(missing)} file(s) are not in it, the first is {missing[0]}"
        raise DataError(what, where=archive.name)


def _is_pinned(text: Path) -> bool:
    """Check a text against its lock file, False if one is missing; raises DataError for another text."""
    if not text.is_file() or lock_files.read_pin(text) is None:
        return False
    lock_files.check_pin(text, lock_files.hash_file(text))
    return True


def _fetch_text(target: Path, folder: Path) -> None:
    """Put a training text in place after its lock file, or measure an existing one that lacks it."""
    if target.is_file() and _passes(check_text_size, target):
        lock_files.write_pin(target, lock_files.measure_text(target))
        return
    pin, remote = lock_files.read_pin(target), _query_hub(target.name)
    if pin is not None and pin.sha256 != remote.etag:
        what = f"the hub has another text than was pinned on {pin.date[:10]}: sha256 {remote.etag}"
        hint = f"nothing was fetched; to accept it, delete {lock_files.lock_file(target)} and fetch again"
        raise DataError(what, where=remote.address, expected=pin.sha256, hint=hint)
    file = _download_file(target.name, remote, folder)
    check_text_size(file)
    target.parent.mkdir(parents=True, exist_ok=True)
    if pin is None or pin.address is None:
        lock_files.write_pin(target, lock_files.measure_text(file, address=remote.address, etag=remote.etag))
    file.replace(target)


def check_text_size(text: Path) -> None:
    """Raise DataError for a text of SimCSE's with another number of lines or triplets."""
    if text.name == lock_files.NLI:
        pairs = read_pairs(text)
        if len(pairs.negatives) != PAIRS:
            kind = "triplets" if pairs.negatives else "pairs"
            what = f"nli: {len(pairs.sentences):,} {kind}"
            raise DataError(what, where=str(text), expected=f"{PAIRS:,} triplets")
        return
    with text.open("rb") as stream:
        count = sum(1 for _ in stream)  # also an unfinished last one
    if count not in CORPUS_LINES:
        raise DataError(f"wiki1m: {count:,} lines", where=str(text), expected=f"{CORPUS_LINES[0]:,}")


@dataclass(frozen=True)
class _Remote:
    url: str
    etag: str  # hash of the file, as the hub's etag of large files
    size: int | None
    digest: Callable[[Path], str] = lock_files.hash_file
    source: str = REPOSITORY

    @property
    def address(self) -> str:
        """The URL, except a mirror's password."""
        parts = urlsplit(self.url)
        return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _query_hub(filename: str) -> _Remote:
    """Ask the hub for the facts of one file of the pinned revision."""
    with _hub_errors(filename):
        from huggingface_hub import get_hf_file_metadata, hf_hub_url

        endpoint = _read_address("HF_ENDPOINT")
        url = hf_hub_url(REPOSITORY, filename, repo_type="dataset", revision=REVISION, endpoint=endpoint)
        facts = get_hf_file_metadata(url, endpoint=endpoint)
        etag = re.sub(r"[^0-9A-Za-z]", "", facts.etag or "unknown")
        if len(etag) != 64:
            raise ValueError("the hub gives no sha256 to check it against")
        return _Remote(url, etag, facts.size)


def _download_file(filename: str, remote: _Remote, folder: Path) -> Path:
    """Download one file into a folder; resumes from its part, whose name holds the version's etag."""
    whole, part = folder / filename, folder / f"{filename}.{remote.etag}.part"
    if whole.is_file() and remote.digest(whole) == remote.etag:
        return whole  # fetched for the other group
    if remote.size is None and part.is_file() and remote.digest(part) == remote.etag:
        return part.rename(whole)
    with _hub_errors(filename, remote.source):
        from huggingface_hub.file_download import http_get

        with part.open("ab") as stream:
            if remote.size is not None and stream.tell() > remote.size:
                stream.truncate(0)
            start = stream.seek(0, os.SEEK_END)
            http_get(
                remote.url, stream, resume_size=start, expected_size=remote.size, displayed_filename=filename,
                headers={"Accept-Encoding": "identity"},
            )  # fmt: skip
    if remote.digest(part) != remote.etag:
        part.unlink()
        what = f"{filename} arrived damaged (its hash is not that of {remote.source})"
        raise DataError(what, hint="fetch again")
    return part.rename(whole)


@contextmanager
def _hub_errors(filename: str, source: str = REPOSITORY) -> Iterator[None]:
    """Raise BenchError for a source that is unreachable or breaks off."""
    try:
        yield
    except BenchError:
        raise
    except Exception as error:  # the library, its HTTP client and the sockets raise unrelated kinds
        reason = str(error).strip().split("\n")[0] or type(error).__name__
        what = f"{filename} could not be fetched from {source}: {reason}"
        raise BenchError(what, hint="run the same command again: it resumes the download") from error


def _read_address(variable: str) -> str | None:
    """Return a mirror's address; raises InputError for plain http, which others could change."""
    given = os.environ.get(variable) or None
    here = urlsplit(given or "").hostname in _LOOPBACK
    if given and not given.startswith(("https://", "http://") if here else "https://"):
        raise InputError(f"'{given}' is not an https address", where=variable, expected="https://HOST")
    return given
