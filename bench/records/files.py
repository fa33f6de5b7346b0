"""Files and folders that are whole or not there at all."""

from __future__ import annotations

import errno
import os
import platform
import re
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def _host() -> str:
    """This machine since it started, and what its process ids count in: machines may share a name."""
    facts = [platform.node()[:40]]
    with suppress(OSError):
        facts += [Path("/proc/sys/kernel/random/boot_id").read_text()[:8], os.readlink("/proc/self/ns/pid")]
    return re.sub(r"[^A-Za-z0-9-]+", "-", "-".join(facts)).strip("-")


_HOST = _host()
_TEMPORARY = re.compile(r"\..+\.[A-Za-z0-9-]*\.\d+\.[0-9a-f]{12}\.tmp", re.DOTALL)


def temporary(path: Path) -> Path:
    """Return a new hidden name beside a file, ``.NAME.HOST.PID.RANDOM.tmp``, to write to and then rename.

    No other process has it, even on another machine that shares the folder. What killed ones of this machine
    left there for the same file is removed.
    """
    name = path.name.encode("utf-8", "ignore")[:80].decode("utf-8", "ignore")
    start = f".{name}.{_HOST}."
    _clear_abandoned(path.parent, start)
    return path.with_name(f"{start}{os.getpid()}.{os.urandom(6).hex()}.tmp")


def temporaries(folder: Path) -> list[Path]:
    """Return the files of a folder that have names as :func:`temporary` gives, of whatever process."""
    return [path for path in folder.glob(".*.tmp") if _TEMPORARY.fullmatch(path.name)]


def _clear_abandoned(folder: Path, start: str) -> None:
    """Remove temporary files and folders whose names begin so, and whose process is gone."""
    try:
        names = os.listdir(folder)
    except OSError:  # what is to be written there will say so
        return
    for name in names:
        if name.startswith(start) and name.endswith(".tmp") and not _lives(name[len(start) :].split(".")[0]):
            shutil.rmtree(folder / name, ignore_errors=True)  # does nothing to a file
            with suppress(OSError):
                (folder / name).unlink(missing_ok=True)


def _lives(process: str) -> bool:
    if os.name == "nt":  # where os.kill ends the process, whatever the signal
        return True
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return False
    except (PermissionError, ValueError, OverflowError):  # another user's, or no number: not ours to remove
        return True
    return True


def content_of(path: Path) -> bytes:
    """Read a file; raises OSError, also for what is none: a pipe or a device may never end."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
    return path.read_bytes()


def write_whole(path: Path, payload: bytes) -> None:
    """Write a file in a folder that is there; a kill leaves what was there before, or the new file.

    Raises:
        OSError: it can't be written.
    """
    scratch = temporary(path)
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
    scratch = temporary(path)
    scratch.mkdir()
    scratch.rmdir()


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """Yield a new folder, which takes the place of one that is empty or isn't there if all goes well.

    Raises:
        OSError: it can't be written, or the place was filled meanwhile.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = temporary(path)
    scratch.mkdir()
    try:
        yield scratch
        if os.name == "nt" and path.is_dir():
            path.rmdir()  # Windows renames to no folder that is there, even an empty one
        scratch.rename(path)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
