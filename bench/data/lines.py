"""A text a sentence a line, read as it comes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from bench.data.tasks import MARK, normalise
from bench.errors import DataError

_AS_UTF8 = "save it as UTF-8, such as with: iconv -f ENCODING -t UTF-8 FILE"
_MAGIC = {
    b"PAR1": "a Parquet file",
    b"ARROW1": "an Arrow file",
    b"PK\x03\x04": "a zip archive (as .xlsx, .docx and .npz are)",
    b"\x1f\x8b": "a gzip file",
    b"\xfd7zXZ\0": "an xz file",
    b"\x28\xb5\x2f\xfd": "a zstd file",
    b"%PDF-": "a PDF",
    b"SQLite format 3\0": "a database of SQLite",
    b"\x93NUMPY": "an array of numpy",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}
"""First bytes of files that are no UTF-8 text, and what these are."""
LONGEST_MAGIC = 16


def check_text(head: bytes, path: Path) -> None:
    """Raise DataError for a file whose first bytes are those of another kind than a UTF-8 text.

    Args:
        head: At least its first LONGEST_MAGIC bytes.
        path: The file.
    """
    for first, kind in _MAGIC.items():
        if head.startswith(first):
            hints = {b"PAR1": "name a Parquet file .parquet", b"\xff\xfe": _AS_UTF8, b"\xfe\xff": _AS_UTF8}
            raise DataError(
                f"this is {kind}, not a text",
                where=str(path),
                expected="UTF-8",
                hint=hints.get(first),
            )


def not_utf8(path: Path) -> DataError:
    """Return the error for a file that is not UTF-8, with the line of the first byte that is none."""
    raw = path.read_bytes()
    try:
        check_text(raw[:LONGEST_MAGIC], path)
    except DataError as error:
        return error
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        return DataError("these bytes are not utf-8", where=f"{path}:{line}", hint=_AS_UTF8)
    return DataError("the file changed while it was read", where=str(path))


def numbered(lines: Iterable[bytes], where: str) -> Iterator[tuple[int, str]]:
    """Yield the number of every line, from 1, and its sentence, white space as in the evaluation data.

    Args:
        lines: The lines of a UTF-8 text, such as a file that is open for reading bytes.
        where: Its name, for errors.

    Raises:
        DataError: a line that is not UTF-8, or has a NUL.
    """
    for number, line in enumerate(lines, start=1):
        try:
            sentence = normalise(line.decode("utf-8").removeprefix(MARK if number == 1 else ""))
        except UnicodeDecodeError as error:
            raise DataError("these bytes are not utf-8", where=f"{where}:{number}") from error
        if "\0" in sentence:
            raise DataError(
                "this line has the control character U+0000", where=f"{where}:{number}", expected="text"
            )
        yield number, sentence


def sentences(lines: Iterable[bytes], where: str) -> Iterator[str]:
    """Yield every line's sentence; see :func:`numbered`.

    Raises:
        DataError: a line without a sentence, as row i of what is made of them belongs to line i, or one that
            is not UTF-8; no line at all.
    """
    number = 0
    for number, sentence in numbered(lines, where):
        if not sentence:
            raise DataError("this line is empty", where=f"{where}:{number}", expected="a sentence a line")
        yield sentence
    if not number:
        raise DataError("the text is empty", where=where, expected="a sentence a line")
