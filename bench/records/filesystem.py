"""Files and folders that are whole or not there at all, their locks, and their names."""

from __future__ import annotations

import errno
import hashlib
import os
import platform
import re
import shutil
import stat
import sys
import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from bench.errors import DataError, InputError

LONGEST = 255
"""Bytes of a name on most file systems."""
_UNSAFE = re.compile(r"[^A-Za-z0-9._+=,\[\]@-]+")
_FORBIDDEN = '<>:"/\\|?*'
_PORTS = [f"{port}{digit}" for port in ("COM", "LPT") for digit in "0123456789¹²³"]
_DEVICES = frozenset(("CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$", *_PORTS))
_IN_LISTS = re.compile(r"[,\[\]]+")


def safe_name(text: str) -> str:
    """Return ``text`` as one folder name: as it is if it can be one, else cleaned and with its hash."""
    cleaned = _UNSAFE.sub("_", text).lstrip(".")[:80]
    if cleaned and cleaned == text:
        return text
    return f"{cleaned}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def model_stem(name: str, sha256: str) -> str:
    """Return what rows call a model from a folder or file: its last name, and 8 digits of its hash.

    A comma or bracket becomes a ``_``, as they have a meaning in lists of methods.

    >>> model_stem("my,folder[v=2]", "0123456789abcdef")
    'my_folder_v=2_-01234567'
    """
    return f"{_IN_LISTS.sub('_', name.split('/')[-1])}-{sha256[:8]}"


def find_name_fault(name: str) -> str | None:
    """Return why Windows or another file system can't hold a name, None where all can.

    >>> find_name_fault("aux.txt"), find_name_fault("simcse.")
    ("Windows reserves the name 'aux.txt'", "Windows drops the dot at the end of 'simcse.'")
    >>> find_name_fault("simcse[lr=1e-05]")
    """
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
    """Return the first other name that is the same where upper and lower case are one, None if there is none.

    Forms of one accented letter are one too, as on macOS.

    >>> find_namesake("SimCSE", ["tncse", "simcse"]), find_namesake("simcse", ["simcse"])
    ('simcse', None)
    """
    return next((each for each in others if each != name and _fold_case(each) == _fold_case(name)), None)


def check_new_name(folder: Path, name: str, *, where: str, hint: str, others: Iterable[str] = ()) -> None:
    """Refuse a new name of a folder that a case-insensitive file system or Windows can't hold.

    A name that is in the folder already, spelled like this, is never refused.

    Args:
        folder: Where it is to stand; it need not exist.
        name: The name.
        where: For the error: the option that gives it.
        hint: For the error: what to type.
        others: Names that are new in the same folder.

    Raises:
        InputError: a reserved name, a character or an ending that Windows refuses, more than 255 bytes, or a
            name that differs only by case from one in the folder or another new one.

    >>> check_new_name(Path("nowhere"), "simcse", where="--campaign", hint="type X")
    >>> check_new_name(Path("nowhere"), "CON", where="--campaign", hint="type X")
    Traceback (most recent call last):
        ...
    bench.errors.InputError: --campaign: Windows reserves the name 'CON'; expected a portable name; type X
    """
    there = _list_names(folder)
    if name in there:
        return
    fault = find_name_fault(name)
    if fault is None and (other := find_namesake(name, [*there, *others])) is not None:
        fault = f"'{name}' differs only by case from '{other}': macOS and Windows take both for one"
    if fault is not None:
        raise InputError(fault, where=where, expected="a portable name", hint=hint)


def check_new_campaign(results: Path, campaign: str, *, where: str = "--campaign") -> None:
    """Refuse a new campaign that not every file system can hold; see :func:`check_new`."""
    other = f"{campaign.rstrip('.').replace('.', '-')}-1"
    check_new_name(results, campaign, where=where, hint=f"type {where} {other}")


def _list_names(folder: Path) -> list[str]:
    """Names in a folder as they are spelled; none where it isn't there or can't be read."""
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _fold_case(name: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


if sys.platform == "win32":
    import msvcrt
else:
    try:
        import fcntl
    except ImportError:  # a Python built without it
        fcntl = None  # type: ignore[assignment]

_BYTE = 2**30
"""Windows locks bytes, which nobody can read then: this one lies beyond every file of ours."""
READ = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)
"""Flags that open a file of somebody else: a pipe doesn't block, a link isn't followed."""


def lock_descriptor(descriptor: int, *, shared: bool = False, wait: bool = True) -> None:
    """Lock an open file until it is closed.

    Args:
        descriptor: The open file; Windows needs one that is open for writing.
        shared: Let other processes hold shared locks at the same time; Windows has none.
        wait: Wait for a lock that another process holds.

    Raises:
        BlockingIOError: another process holds it, without ``wait``.
        OSError: this system or file system has no such locks.
    """
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
    """Return whether a process holds a lock on a file, None where the system can't tell.

    Args:
        path: The file; a link counts as no file.
        shared: Count shared locks too, for which the file is opened for writing.
    """
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


@dataclass
class FolderContents:
    """Everything below a folder but what is hidden, in the order of the paths.

    Args:
        files: Its files; a link to one is one.
        closed: Folders that can't be read, each with the system's words for it.
        linked: Links to folders, which are not followed.
    """

    files: list[Path] = field(default_factory=list)
    closed: dict[Path, str] = field(default_factory=dict)
    linked: list[Path] = field(default_factory=list)


def walk_folder(folder: Path) -> FolderContents:
    """Return what is below a folder; nothing where there is no such folder.

    ``glob`` passes by a folder that can't be read without a word.
    """
    found = FolderContents()

    def closed(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):  # such as of another process that tidied up
            found.closed[Path(error.filename or folder)] = error.strerror or type(error).__name__

    for top, folders, names in os.walk(folder, onerror=closed):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        found.linked += [path for name in folders if (path := Path(top, name)).is_symlink()]
        found.files += [Path(top, name) for name in names if not name.startswith(".")]
    return FolderContents(sorted(found.files), dict(sorted(found.closed.items())), sorted(found.linked))


def check_readable(folder: Path) -> None:
    """Raise DataError where a folder below can't be read: what it holds would be left out in silence."""
    for path, why in walk_folder(folder).closed.items():
        raise DataError(
            f"this folder can't be read: {why}", where=str(path), hint="give yourself the right to read it"
        )


def _host_name() -> str:
    """This machine since it started, and what its process ids count in: machines may share a name."""
    facts = [platform.node()[:40]]
    with suppress(OSError):
        facts += [Path("/proc/sys/kernel/random/boot_id").read_text()[:8], os.readlink("/proc/self/ns/pid")]
    return re.sub(r"[^A-Za-z0-9-]+", "-", "-".join(facts)).strip("-")


_HOST = _host_name()
_TEMPORARY = re.compile(r"\..+\.[A-Za-z0-9-]*\.\d+\.[0-9a-f]{12}\.tmp", re.DOTALL)


def temporary_path(path: Path) -> Path:
    """Return a new hidden name beside a file, ``.NAME.HOST.PID.RANDOM.tmp``, to write to and then rename.

    No other process has it, even on another machine that shares the folder. What killed ones of this machine
    left there for the same file is removed.
    """
    name = path.name.encode("utf-8", "ignore")[:80].decode("utf-8", "ignore")
    start = f".{name}.{_HOST}."
    _remove_abandoned_files(path.parent, start)
    return path.with_name(f"{start}{os.getpid()}.{os.urandom(6).hex()}.tmp")


def find_temporary_files(folder: Path) -> list[Path]:
    """Return the files of a folder that have names as :func:`temporary` gives, of whatever process."""
    return [path for path in folder.glob(".*.tmp") if _TEMPORARY.fullmatch(path.name)]


def _remove_abandoned_files(folder: Path, start: str) -> None:
    """Remove temporary files and folders whose names begin so, and whose process is gone."""
    try:
        names = os.listdir(folder)
    except OSError:  # what is to be written there will say so
        return
    for name in names:
        if (
            name.startswith(start)
            and name.endswith(".tmp")
            and not _is_process_alive(name[len(start) :].split(".")[0])
        ):
            shutil.rmtree(folder / name, ignore_errors=True)  # does nothing to a file
            with suppress(OSError):
                (folder / name).unlink(missing_ok=True)


def _is_process_alive(process: str) -> bool:
    if os.name == "nt":  # where os.kill ends the process, whatever the signal
        return True
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return False
    except (PermissionError, ValueError, OverflowError):  # another user's, or no number: not ours to remove
        return True
    return True


def read_regular_file(path: Path) -> bytes:
    """Read a file; raises OSError, also for what is none: a pipe or a device may never end."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
    return path.read_bytes()


def write_atomically(path: Path, payload: bytes) -> None:
    """Write a file in a folder that is there; a kill leaves what was there before, or the new file.

    Raises:
        OSError: it can't be written.
    """
    scratch = temporary_path(path)
    stream = scratch.open("xb")  # nothing is removed where this fails: the file is another process's
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


def check_new_folder(path: Path) -> None:
    """Raise OSError where :func:`whole_folder` couldn't write, and leave nothing but the folder above."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = temporary_path(path)
    scratch.mkdir()
    scratch.rmdir()


@contextmanager
def create_folder_atomically(path: Path) -> Iterator[Path]:
    """Yield a new folder, which takes the place of one that is empty or isn't there if all goes well.

    Raises:
        OSError: it can't be written, or the place was filled meanwhile.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = temporary_path(path)
    scratch.mkdir()
    try:
        yield scratch
        if os.name == "nt" and path.is_dir():
            path.rmdir()  # Windows renames to no folder that is there, even an empty one
        scratch.rename(path)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
