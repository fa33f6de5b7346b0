"""Texts of a sentence a line, read line by line."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from io import TextIOWrapper
from pathlib import Path
from typing import TextIO

from bench.data.tasks import MARK, normalise_spaces
from bench.errors import DataError

_AS_UTF8 = "save it as UTF-8, such as with: iconv -f ENCODING -t UTF-8 FILE"
_MAGIC = {
    b"PAR1": "a Parquet file",
    b"ARROW1": "an Arrow file",
    b"PK\x03\x04": "a zip archive (as .xlsx, .docx and .npz are)",
    b"\x1f\x8b": "a gzip file",
    b"\xfd7zXZ\0": "an xz file",
    b"BZh": "a bzip2 file",
    b"\x28\xb5\x2f\xfd": "a zstd file",
    b"%PDF-": "a PDF",
    b"SQLite format 3\0": "a database of SQLite",
    b"\x93NUMPY": "an array of numpy",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}
"""First bytes of other files than UTF-8 texts, and their kind."""
LONGEST_MAGIC = 16
_JSON_LINES = 5  # so many lines that begin a document make the text a JSON document


def check_text_kind(head: bytes, path: Path) -> None:
    """Raise DataError for first bytes (LONGEST_MAGIC of them) of another kind than UTF-8 text."""
    kinds = [kind for first, kind in _MAGIC.items() if head.startswith(first)]
    kinds += ["UTF-16"] if b"\0\0" in (head[0:4:2], head[1:4:2]) else []
    if kinds:
        hints = {"a Parquet file": "name a Parquet file .parquet", "UTF-16": _AS_UTF8}
        what = f"this is {kinds[0]}, not a text"
        raise DataError(what, where=str(path), expected="UTF-8", hint=hints.get(kinds[0]))


def open_text(path: Path) -> TextIO:
    """Open a UTF-8 text with lines that end with a line feed; raises DataError for another kind of file."""
    stream = path.open("rb")
    try:
        check_text_kind(stream.peek(LONGEST_MAGIC), path)
    except DataError:
        stream.close()
        raise
    return TextIOWrapper(stream, encoding="utf-8-sig", newline="\n")


def check_returns(line: str, where: str) -> None:
    """Raise DataError for a carriage return inside a line, as in an old Mac's file."""
    if "\r" in line.rstrip("\r\n"):
        raise stray_return_error(where)


def stray_return_error(where: str) -> DataError:
    """Return the error for a carriage return inside a line."""
    what, expected = "a carriage return inside the line", "line ends LF or CRLF"
    return DataError(what, where=where, expected=expected, hint="save the file with LF or CRLF ends")


def encoding_error(path: Path) -> DataError:
    """Return the error for a file in another encoding than UTF-8, with the line of the first wrong byte."""
    raw = path.read_bytes()
    try:
        check_text_kind(raw[:LONGEST_MAGIC], path)
    except DataError as error:
        return error
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        return DataError("these bytes are not utf-8", where=f"{path}:{line}", hint=_AS_UTF8)
    return DataError("the file changed while it was read", where=str(path))


def number_sentences(lines: Iterable[bytes], where: str) -> Iterator[tuple[int, str]]:
    """Yield number and sentence of each line of a UTF-8 text; raises DataError for other files and JSON."""
    json_so_far = _JsonLines(where)
    for number, line in enumerate(lines, start=1):
        try:
            text = line.decode("utf-8").removeprefix(MARK if number == 1 else "")
        except UnicodeDecodeError as error:
            raise DataError("these bytes are not utf-8", where=f"{where}:{number}", hint=_AS_UTF8) from error
        check_returns(text, f"{where}:{number}")
        sentence = normalise_spaces(text)
        if "\0" in sentence:
            what = "this line has the control character U+0000"
            raise DataError(what, where=f"{where}:{number}", expected="text")
        json_so_far.check(sentence)
        yield number, sentence
    json_so_far.check_end()


class _JsonLines:
    """Check of lines for JSON: an object or array each, or the beginning of one document."""

    def __init__(self, where: str) -> None:
        self._where, self._head = where, list[str]()
        self._is_lines = self._is_document = True

    def check(self, line: str) -> None:
        """Take the next line; raises DataError for a JSON document."""
        if not line or not (self._is_lines or self._is_document):
            return
        self._is_lines = self._is_lines and _json_kind(line) == "whole"
        if len(self._head) < _JSON_LINES:
            self._head.append(line)
            self._is_document = self._is_document and bool(_json_kind("\n".join(self._head)))
        elif self._is_document:
            raise self._error("the text is a JSON document")

    def check_end(self) -> None:
        """Raise DataError for a text that is all JSON."""
        if self._head and self._is_lines:
            raise self._error("every line is a JSON object or array")
        if self._head and self._is_document:
            raise self._error("the text is a JSON document")

    def _error(self, what: str) -> DataError:
        hint = "name a file of JSON lines .jsonl"
        return DataError(what, where=self._where, expected="a sentence a line", hint=hint)


def _json_kind(text: str) -> str:
    """Return "whole" for a JSON object or array, "begun" for the beginning of one, otherwise ""."""
    if text[0] not in "[{":
        return ""
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        return "begun" if error.pos >= len(text) else ""
    except (ValueError, RecursionError):
        return ""
    return "whole"


def read_sentences(lines: Iterable[bytes], where: str) -> Iterator[str]:
    """Yield every sentence; raises DataError as :func:`number_sentences`, and for an empty line or text."""
    number = 0
    for number, sentence in number_sentences(lines, where):
        if not sentence:
            raise DataError("this line is empty", where=f"{where}:{number}", expected="a sentence a line")
        yield sentence
    if not number:
        raise DataError("the text is empty", where=where, expected="a sentence a line")
