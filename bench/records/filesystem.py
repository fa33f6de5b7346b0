"""Atomic files and folders, their locks, and portable names."""

from __future__ import annotations

import errno
import hashlib
import os
import platform
import re
import shutil
import stat
import sys
import time
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from bench.errors import DataError, InputError
from bench.records.campaign_lookup import find_misplaced_results, is_campaign_folder

LONGEST = 255  # bytes of a name on most file systems
_UNSAFE = re.compile(r"[^A-Za-z0-9._+=,\[\]@-]+")
_FORBIDDEN = '<>:"/\\|?*'
_PORTS = [f"{port}{digit}" for port in ("COM", "LPT") for digit in "0123456789¹²³"]
_DEVICES = frozenset(("CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$", *_PORTS))
_IN_LISTS = re.compile(r"[,\[\]]+")


def safe_name(text: str) -> str:
    """Return ``text`` as a folder name: unchanged if it can be one, otherwise cleaned and with its hash."""
    cleaned = _UNSAFE.sub("_", text).lstrip(".")[:80]
    if cleaned and cleaned == text:
        return text
    return f"{cleaned}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def model_stem(name: str, sha256: str) -> str:
    """Return a model's name in rows: its last part, with ``_`` for ``,[]``, and 8 digits of its hash."""
    return f"{_IN_LISTS.sub('_', name.split('/')[-1])}-{sha256[:8]}"


def find_name_fault(name: str) -> str | None:
    """Return the fault of a name that Windows or another file system refuses, if any."""
    if name.split(".")[0].rstrip(" ").upper() in _DEVICES:
        return f"Windows reserves the name '{name}'"
    if name.endswith((".", " ")):
        return f"Windows drops the {'dot' if name.endswith('.') else 'blank'} at the end of '{name}'"
    if odd := [char for char in name if char in _FORBIDDEN or ord(char) < 32 or char == "\x7f"]:
        return f"Windows refuses the character {odd[0]!a} in '{name}'"
    if (size := len(name.encode("utf-8", "surrogateescape"))) > LONGEST:
        return f"'{name[:20]}...' has {size} bytes, and a file system takes at most {LONGEST}"
    return None


def find_namesake(name: str, others: Iterable[str]) -> str | None:
    """Return the first other name that differs only by case or form of accents, if any."""
    return next((other for other in others if other != name and _fold_case(other) == _fold_case(name)), None)


def check_new_name(folder: Path, name: str, *, where: str, hint: str, others: Iterable[str] = ()) -> None:
    """Raise InputError for a new name in a folder that Windows or a case-insensitive file system refuses."""
    # A name that the folder has already is accepted. ``others`` are further new names in the folder.
    try:
        present = sorted(os.listdir(folder))
    except OSError:
        present = []
    if name in present:
        return
    fault = find_name_fault(name)
    if fault is None and (other := find_namesake(name, [*present, *others])) is not None:
        fault = f"'{name}' differs only by case from '{other}': macOS and Windows take both for one"
    if fault is not None:
        raise InputError(fault, where=where, expected="a portable name", hint=hint)


def check_new_campaign(results: Path, campaign: str, *, where: str = "--campaign") -> None:
    """Refuse a new campaign in another's folder, and a name that some file system refuses.

    See :func:`check_new_name`.
    """
    misplaced = find_misplaced_results(results, campaign) if is_campaign_folder(results) else None
    if misplaced is not None and not (results / campaign).exists():
        raise misplaced
    other = f"{campaign.rstrip('.').replace('.', '-')}-1"
    typed = f"{where} {other}" if where.startswith("--") else other
    check_new_name(results, campaign, where=where, hint=f"type {typed}")


def _fold_case(name: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


if sys.platform == "win32":
    import msvcrt
else:
    try:
        import fcntl
    except ImportError:  # a Python built without it
        fcntl = None  # type: ignore[assignment]

_NO_LOCKS = (errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK, errno.EINVAL)
_BYTE = 2**30  # byte that Windows locks, which makes it unreadable: beyond the end of every file
READ = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)
"""Flags to open untrusted files, which may be pipes or links."""


def lock_descriptor(descriptor: int, *, shared: bool = False, wait: bool = True) -> None:
    """Lock an open file (on Windows one open for writing) until it is closed."""
    # Raises OSError where such locks are missing, BlockingIOError if it is held and ``wait`` is off.
    if sys.platform == "win32":
        if shared:
            raise OSError(errno.ENOTSUP, "Windows has no shared locks")
        place = os.lseek(descriptor, 0, os.SEEK_CUR)
        os.lseek(descriptor, _BYTE, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1)
        except PermissionError as error:
            raise BlockingIOError(errno.EAGAIN, "another process holds the lock") from error
        finally:
            os.lseek(descriptor, place, os.SEEK_SET)
        return
    if fcntl is None:
        raise OSError(errno.ENOSYS, "this Python has no fcntl")
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    fcntl.flock(descriptor, kind if wait else kind | fcntl.LOCK_NB)


def is_locked(path: Path, *, shared: bool = False) -> bool | None:
    """Return whether a process holds a lock on a file, if this is known."""
    # A link counts as missing. ``shared`` counts shared locks too, and opens the file for writing.
    writes = shared or sys.platform == "win32"
    try:
        descriptor = os.open(path, READ | os.O_RDWR if writes else READ)
    except OSError as error:  # a file that may not be read may be locked
        return False if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP) else None
    try:
        lock_descriptor(descriptor, shared=not writes, wait=False)
    except (BlockingIOError, PermissionError):
        return True
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return False


@cache
def do_locks_exclude(folder: Path) -> bool:
    """Return whether a lock in a folder keeps others out: False where locks are missing or do nothing.

    Two descriptors of one process exclude each other where locks work. The file stays in the folder.
    """
    descriptors: list[int] = []
    try:
        for _ in range(2):
            descriptors.append(os.open(folder / ".probe.lock", os.O_RDWR | os.O_CREAT, 0o666))
            lock_descriptor(descriptors[-1], wait=False)
    except (BlockingIOError, PermissionError):  # held by the first, or by another process's question
        return True
    except OSError as error:  # a full disk or a missing folder leaves the answer open
        return error.errno not in _NO_LOCKS
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
    return False


@dataclass
class FolderContents:
    """Visible contents of a folder in the order of paths."""

    files: list[Path] = field(default_factory=list)
    closed: dict[Path, str] = field(default_factory=dict)  # unreadable folders, with the error
    linked: list[Path] = field(default_factory=list)  # links to folders, whose contents are left out


def walk_folder(folder: Path) -> FolderContents:
    """Return the contents of a folder, also those that ``glob`` skips: unreadable folders."""
    files, linked, closed = list[Path](), list[Path](), dict[Path, str]()

    def note_error(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):  # another process may have tidied up
            closed[Path(error.filename or folder)] = error.strerror or type(error).__name__

    for top, folders, names in os.walk(folder, onerror=note_error):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        linked += [path for name in folders if (path := Path(top, name)).is_symlink()]
        files += [Path(top, name) for name in names if not name.startswith(".")]
    return FolderContents(sorted(files), dict(sorted(closed.items())), sorted(linked))


def check_readable(folder: Path) -> None:
    """Raise DataError for an unreadable folder, whose files would be missed."""
    for path, why in walk_folder(folder).closed.items():
        hint = "give yourself the right to read it"
        raise DataError(f"this folder can't be read: {why}", where=str(path), hint=hint)


def _read_machine() -> dict[str, str]:
    """Return name and boot id of this machine, and the namespace of its process ids: names may be shared."""
    facts = {"node": platform.node()[:40]}
    with suppress(OSError):
        facts["boot"] = Path("/proc/sys/kernel/random/boot_id").read_text()[:8]
        facts["space"] = os.readlink("/proc/self/ns/pid")
    return facts


_MACHINE = _read_machine()
_HOST = re.sub(r"[^A-Za-z0-9-]+", "-", "-".join(_MACHINE.values())).strip("-")
_ABANDONED = 86_400.0  # seconds after which another machine's temporary file is nobody's
_TEMPORARY = re.compile(r"\..+\.[A-Za-z0-9-]*\.\d+\.[0-9a-f]{12}\.tmp", re.DOTALL)


def temporary_path(path: Path) -> Path:
    """Return a new hidden name next to a file, ``.NAME.HOST.PID.RANDOM.tmp``, unique on all machines."""
    # Such files of killed processes of this machine for the same file are removed.
    name = path.name.encode("utf-8", "ignore")[:80].decode("utf-8", "ignore")
    start = f".{name}.{_HOST}."
    try:
        names = os.listdir(path.parent)
    except OSError:  # writing there raises the error
        names = []
    for other in names:
        temporary = other.startswith(start) and other.endswith(".tmp")
        if temporary and not _is_process_alive(other[len(start) :].split(".")[0]):
            shutil.rmtree(path.parent / other, ignore_errors=True)  # does nothing to a file
            with suppress(OSError):
                (path.parent / other).unlink(missing_ok=True)
    return path.with_name(f"{start}{os.getpid()}.{os.urandom(6).hex()}.tmp")


def find_temporary_files(folder: Path) -> list[Path]:
    """Return the files of a folder with names of :func:`temporary_path`, of any process."""
    return [path for path in folder.glob(".*.tmp") if _TEMPORARY.fullmatch(path.name)]


def is_abandoned(path: Path) -> bool:
    """Return whether a temporary file's process has surely ended: here by its number, elsewhere by age."""
    name, number = path.name.removesuffix(".tmp").split(".")[-3:-1]
    if name == _HOST:
        return not _is_process_alive(number)
    return is_older_than(path, _ABANDONED)


def is_older_than(path: Path, seconds: float) -> bool:
    """Return whether a file was last changed so long ago; False for a missing one."""
    try:
        return time.time() - path.stat().st_mtime > seconds
    except OSError:
        return False


def _is_process_alive(process: str) -> bool:
    if os.name == "nt":  # where os.kill ends the process for any signal
        return True
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return False
    except (PermissionError, ValueError, OverflowError):  # another user's, or no number
        return True
    return True


def describe_process() -> dict[str, Any]:
    """Return facts that identify this process: its machine, its number, its start where known."""
    return {**_MACHINE, "pid": os.getpid(), "began": _read_process_start(os.getpid())}


def is_same_machine(process: Mapping[str, Any], *, shared_kernel: bool = False) -> bool:
    """Return whether facts of :func:`describe_process` are of this machine since its last start.

    With ``shared_kernel`` a container of the same machine counts, whose process numbers mean others.
    """
    names = ("boot",) if shared_kernel and "boot" in _MACHINE else ("node", "boot", "space")
    return all(process.get(name) == _MACHINE.get(name) for name in names)


def is_described_process_alive(process: Mapping[str, Any]) -> bool:
    """Return whether a process of this machine still runs; a later one of the same number doesn't count."""
    number = process.get("pid")
    if type(number) is not int or number < 1 or not _is_process_alive(str(number)):
        return False
    began, now = process.get("began"), _read_process_start(number)
    return began is None or now is None or began == now


def _read_process_start(number: int) -> str | None:
    """Return when a process started, in ticks since the boot, where Linux says it."""
    try:
        line = Path(f"/proc/{number}/stat").read_text(errors="replace")
    except OSError:
        return None
    fields = line.rpartition(")")[2].split()  # the name before it may hold blanks and brackets
    return fields[19] if len(fields) > 19 else None


@contextmanager
def hold_output(path: Path, lock_file: Path) -> Iterator[None]:
    """Hold the lock of a file or folder that is being made; raises InputError if another process has it."""
    lock = FileLock(lock_file)
    # where locks are missing, the name of the finished output decides
    with suppress(OSError, NotImplementedError):
        lock_file.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=0)
        except Timeout as error:
            what = "another process is making this"
            hint = "wait for it, or name another output"
            raise InputError(what, where=str(path), hint=hint) from error
    try:
        yield
    finally:
        if lock.is_locked:
            with suppress(OSError):  # Windows removes no open file
                lock_file.unlink(missing_ok=True)
            lock.release()


def pretraining_lock(out: Path) -> Path:
    """Return the lock that a pretraining into a folder holds."""
    return out.with_name(f".{out.name}.pretrain.lock")


def read_regular_file(path: Path) -> bytes:
    """Read a file; raises OSError, also for a pipe or a device, which may be endless."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
    return path.read_bytes()


def write_atomically(path: Path, payload: bytes) -> None:
    """Write a file in an existing folder; after a kill there is the old file or the new one."""
    scratch = temporary_path(path)
    stream = scratch.open("xb")  # if this fails, the file is another process's and stays
    try:
        with stream:
            stream.write(payload)
            stream.flush()
            os.fsync(stream.fileno())
        scratch.replace(path)
    finally:
        scratch.unlink(missing_ok=True)
    if os.name == "nt":  # which opens no folder
        return
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def remove_with_leftovers(path: Path) -> None:
    """Remove a file, and the temporary files that killed processes left of it."""
    with suppress(OSError):
        path.unlink(missing_ok=True)
    for leftover in find_temporary_files(path.parent):
        if leftover.name.startswith(f".{path.name}.") and is_abandoned(leftover):
            with suppress(OSError):
                leftover.unlink(missing_ok=True)


def user_cache_folder() -> Path:
    """Return BENCH_CACHE, otherwise cse-bench in the user's cache; raises RuntimeError without a home."""
    given = os.environ.get("BENCH_CACHE")
    if given:
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cse-bench"


def check_new_folder(path: Path) -> None:
    """Raise OSError where :func:`create_folder_atomically` would fail; make only the parent folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = temporary_path(path)
    scratch.mkdir()
    scratch.rmdir()


@contextmanager
def create_folder_atomically(path: Path, commit: Callable[[], object] = lambda: None) -> Iterator[Path]:
    """Yield a new folder, which at the end replaces an empty or missing one; raises OSError.

    ``commit`` is called when the folder is complete, just before it gets its name.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = temporary_path(path)
    scratch.mkdir()
    try:
        yield scratch
        commit()
        if os.name == "nt" and path.is_dir():
            path.rmdir()  # Windows renames to no existing folder
        scratch.rename(path)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


@contextmanager
def replace_folder(path: Path) -> Iterator[Path]:
    """Yield a new folder, which on success replaces an existing one; after an error the old one is there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch, before = temporary_path(path), temporary_path(path)
    scratch.mkdir()
    try:
        yield scratch
        if path.is_dir():
            path.rename(before)
        try:
            scratch.rename(path)
        except OSError:
            if before.is_dir():
                before.rename(path)
            raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        shutil.rmtree(before, ignore_errors=True)
