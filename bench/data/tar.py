"""Tar files that aren't trusted, read from front to end: no header is parsed before its size is checked.

``tarfile`` parses extended headers of any length, in quadratic time, and calls itself for each that follows
another; only its parser of a single block of 512 bytes is used here.
"""

from __future__ import annotations

import gzip
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path, PurePosixPath

from bench.errors import DataError

MAX_HEADER = 4096
"""Bytes of an extended header, which holds a long name and some times."""
MAX_MEMBERS = 100_000
_BLOCK = tarfile.BLOCKSIZE
_CHUNK = 1 << 20
_PLAIN = (tarfile.REGTYPE, tarfile.AREGTYPE)
_EXTENDED = (
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
    tarfile.XHDTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.XGLTYPE,
)


@dataclass
class Member:
    """One entry of a tar file; its content can be read until the next entry is asked for.

    Args:
        name: Its path as the archive says it, not checked.
        size: Bytes of its content.
        kind: Its type as :mod:`tarfile` names it.
        source: The archive.
        left: Bytes of its content that were not read yet.
    """

    name: str
    size: int
    kind: bytes
    source: _ArchiveStream
    left: int

    @property
    def is_folder(self) -> bool:
        """True for a folder."""
        return self.kind == tarfile.DIRTYPE

    @property
    def is_safe(self) -> bool:
        """True for a plain file or a folder whose path stays below the folder it is unpacked to."""
        path = PurePosixPath(self.name)
        inside = not path.is_absolute() and ".." not in path.parts and not set(self.name) & {"\\", "\0"}
        return inside and (self.is_folder or (self.kind in _PLAIN and bool(path.parts)))

    def chunks(self) -> Iterator[bytes]:
        """Yield the content that is left; raises DataError where the archive ends within it."""
        while self.left:
            chunk = self.source.take(min(self.left, _CHUNK))
            self.left -= len(chunk)
            yield chunk


def iter_members(archive: Path, most: int) -> Iterator[Member]:
    """Yield the entries of a tar file, plain or packed with gzip.

    Args:
        archive: The file, not trusted.
        most: Bytes that it may hold, unpacked.

    Raises:
        DataError: no whole tar file, more than ``most`` bytes or ``MAX_MEMBERS`` entries, or an extended
            header of more than ``MAX_HEADER`` bytes.
    """
    with archive.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    with gzip.open(archive, "rb") if packed else archive.open("rb") as stream:
        source = _ArchiveStream(stream, archive, most)
        count = 0
        while (member := _read_member(source)) is not None:
            count += 1
            if count > MAX_MEMBERS:
                raise DataError(f"it holds more than {MAX_MEMBERS:,} files", where=archive.name)
            yield member
            for _ in member.chunks():
                pass
            source.skip_padding(member.size)
        while source.read(_CHUNK):  # to the end, where gzip has its checksum
            pass


class _ArchiveStream:
    """An archive's bytes, counted."""

    def __init__(self, stream: gzip.GzipFile | BufferedReader, path: Path, most: int) -> None:
        self.stream, self.path, self.most, self.total = stream, path, most, 0

    def read(self, size: int) -> bytes:
        """Return as many bytes as there are, up to ``size``."""
        try:
            found = self.stream.read(size)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise self.damaged(f"gzip: {error}") from error
        except OSError as error:
            raise DataError(f"it can't be read: {error.strerror or error}", where=str(self.path)) from error
        self.total += len(found)
        if self.total > self.most:
            raise DataError(f"it holds more than {self.most:,} bytes", where=self.path.name)
        return found

    def take(self, size: int) -> bytes:
        """Return exactly so many bytes."""
        found = self.read(size)
        if len(found) != size:
            raise self.damaged("it ends too early")
        return found

    def skip_padding(self, size: int) -> None:
        """Pass by what fills the last block of a content."""
        self.take(-size % _BLOCK)

    def damaged(self, why: str) -> DataError:
        """What to raise for anything that no tar file holds."""
        return DataError(
            f"the download is damaged: this is not a whole tar file ({why})",
            where=str(self.path),
            hint="delete it and fetch again",
        )


def _read_member(source: _ArchiveStream) -> Member | None:
    """The next entry with the name and size that extended headers before it give, None at the end."""
    said: dict[str, str] = {}
    while (info := _read_header(source)) is not None:
        if info.type not in _EXTENDED:
            size = _parse_size(said["size"], source) if "size" in said else info.size
            size = 0 if info.isdir() else size
            if source.total + size > source.most:
                raise DataError(f"it holds more than {source.most:,} bytes", where=source.path.name)
            return Member(said.get("path", info.name), size, info.type, source, size)
        if info.size > MAX_HEADER:
            raise DataError(
                f"a header of {info.size:,} bytes",
                where=source.path.name,
                expected=f"at most {MAX_HEADER:,}",
            )
        content = source.take(info.size)
        source.skip_padding(info.size)
        if info.type == tarfile.GNUTYPE_LONGNAME:
            said["path"] = content.split(b"\0")[0].decode("utf-8", "surrogateescape")
        elif info.type in (tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE):
            said |= _parse_pax_records(content, source)
    if said:
        raise source.damaged("it ends after a header")
    return None


def _read_header(source: _ArchiveStream) -> tarfile.TarInfo | None:
    """The next block as a header, None at the end."""
    block = source.read(_BLOCK)
    if not block or (len(block) == _BLOCK and not any(block)):
        return None
    try:
        info = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except tarfile.HeaderError as error:
        raise source.damaged(str(error)) from error
    if info.size < 0:
        raise source.damaged("a size below zero")
    return info


def _parse_pax_records(content: bytes, source: _ArchiveStream) -> dict[str, str]:
    """The entries of a pax header: each is its own length in digits, a blank, NAME=VALUE and a line feed."""
    found = {}
    while content:
        digits, blank, _ = content[:6].partition(b" ")
        length = int(digits) if digits.isdigit() else 0
        record = content[len(digits) + 1 : length]
        name, equals, value = record.removesuffix(b"\n").partition(b"=")
        if not (blank and equals and record.endswith(b"\n") and length <= len(content)):
            raise source.damaged("a header that is none")
        found[name.decode("utf-8", "surrogateescape")] = value.decode("utf-8", "surrogateescape")
        content = content[length:]
    return found


def _parse_size(text: str, source: _ArchiveStream) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 15):
        raise source.damaged("a size that is no number")
    return int(text)
