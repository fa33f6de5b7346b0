"""Reader of untrusted tar files, from front to end; checks the size of a header before it parses it.

``tarfile`` parses extended headers of any length, in quadratic time, and calls itself for each that follows
another. So only its parser of a single block of 512 bytes is used here.
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

MAX_HEADER = 4096  # bytes of an extended header, which holds a long name and some times
MAX_MEMBERS = 100_000
_BLOCK = tarfile.BLOCKSIZE
_CHUNK = 1 << 20
_PLAIN = (tarfile.REGTYPE, tarfile.AREGTYPE)
_PAX = (tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE)
_EXTENDED = (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, *_PAX, tarfile.XGLTYPE)


@dataclass
class Member:
    """One entry of a tar file; its content can be read until the next entry."""

    name: str  # its unchecked path in the archive
    size: int  # bytes of its content
    kind: bytes  # a type of tarfile
    source: _ArchiveStream
    left: int  # bytes of its content that are still unread

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder."""
        return self.kind == tarfile.DIRTYPE

    @property
    def is_safe(self) -> bool:
        """Whether it is a plain file or folder with a path below the target folder."""
        path = PurePosixPath(self.name)
        inside = not path.is_absolute() and ".." not in path.parts and not set(self.name) & {"\\", "\0"}
        return inside and (self.is_folder or (self.kind in _PLAIN and bool(path.parts)))

    def chunks(self) -> Iterator[bytes]:
        """Yield the unread content; raises DataError if the archive ends within it."""
        while self.left:
            chunk = self.source.take(min(self.left, _CHUNK))
            self.left -= len(chunk)
            yield chunk


def iter_members(archive: Path, most: int) -> Iterator[Member]:
    """Yield the entries of an untrusted tar file, plain or gzip; raises DataError, also beyond the limits."""
    with archive.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    with gzip.open(archive, "rb") if packed else archive.open("rb") as stream:
        source = _ArchiveStream(stream, archive, most)
        for count, member in enumerate(iter(lambda: _read_member(source), None)):
            if count == MAX_MEMBERS:
                raise DataError(f"it holds more than {MAX_MEMBERS:,} files", where=archive.name)
            yield member
            for _ in member.chunks():
                pass
            source.skip_padding(member.size)
        while source.read(_CHUNK):  # to gzip's checksum at the end
            pass


class _ArchiveStream:
    """Reader of an archive that counts its bytes."""

    def __init__(self, stream: gzip.GzipFile | BufferedReader, path: Path, most: int) -> None:
        self.stream, self.path, self.most, self.total = stream, path, most, 0

    def read(self, size: int) -> bytes:
        """Return at most ``size`` bytes."""
        try:
            content = self.stream.read(size)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise self.damaged(f"gzip: {error}") from error
        except OSError as error:
            raise DataError(f"it can't be read: {error.strerror or error}", where=str(self.path)) from error
        self.total += len(content)
        self.check_total()
        return content

    def check_total(self, coming: int = 0) -> None:
        """Raise DataError if the archive is larger than allowed."""
        if self.total + coming > self.most:
            raise DataError(f"it holds more than {self.most:,} bytes", where=self.path.name)

    def take(self, size: int) -> bytes:
        """Return exactly ``size`` bytes."""
        content = self.read(size)
        if len(content) != size:
            raise self.damaged("it ends too early")
        return content

    def skip_padding(self, size: int) -> None:
        """Skip the rest of a content's last block."""
        self.take(-size % _BLOCK)

    def damaged(self, why: str) -> DataError:
        """Return the error for an invalid tar file."""
        what = f"the download is damaged: this is not a whole tar file ({why})"
        return DataError(what, where=str(self.path), hint="delete it and fetch again")


def _read_member(source: _ArchiveStream) -> Member | None:
    """Return the next entry with name and size of its extended headers, if there is one."""
    extended: dict[str, str] = {}
    while (info := _read_header(source)) is not None:
        if info.type not in _EXTENDED:
            digits = extended.get("size", "0")
            if not (digits.isascii() and digits.isdigit() and len(digits) <= 15):
                raise source.damaged("an invalid size")
            size = int(digits) if "size" in extended else info.size
            size = 0 if info.isdir() else size
            source.check_total(size)
            return Member(extended.get("path", info.name), size, info.type, source, size)
        if info.size > MAX_HEADER:
            what, expected = f"a header of {info.size:,} bytes", f"at most {MAX_HEADER:,}"
            raise DataError(what, where=source.path.name, expected=expected)
        content = source.take(info.size)
        source.skip_padding(info.size)
        if info.type == tarfile.GNUTYPE_LONGNAME:
            extended["path"] = content.split(b"\0")[0].decode("utf-8", "surrogateescape")
        elif info.type in _PAX:
            extended |= _parse_pax_records(content, source)
    if extended:
        raise source.damaged("it ends after a header")
    return None


def _read_header(source: _ArchiveStream) -> tarfile.TarInfo | None:
    """Parse the next block as a header, if there is one."""
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
    """Parse a pax header: records of their own length in digits, a blank, NAME=VALUE and a line feed."""
    records = {}
    while content:
        digits, blank, _ = content[:6].partition(b" ")
        length = int(digits) if digits.isdigit() else 0
        record = content[len(digits) + 1 : length]
        name, equals, value = record.removesuffix(b"\n").partition(b"=")
        if not (blank and equals and record.endswith(b"\n") and length <= len(content)):
            raise source.damaged("an invalid header")
        records[name.decode("utf-8", "surrogateescape")] = value.decode("utf-8", "surrogateescape")
        content = content[length:]
    return records
