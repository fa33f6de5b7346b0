"""Locks on open files that end with the process which holds them, even when it is killed."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

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


def lock(descriptor: int, *, shared: bool = False, wait: bool = True) -> None:
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
        lock(descriptor, shared=not writes, wait=False)
    except (BlockingIOError, PermissionError):
        return True
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return False
