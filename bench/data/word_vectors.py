"""Static word vectors as text: the formats of word2vec and GloVe, plain, ``.gz`` or ``.xz``."""

from __future__ import annotations

import gzip
import lzma
import string
import zlib
from array import array
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench.data.text_lines import LONGEST_MAGIC, check_text_kind, stray_return_error
from bench.encoder import FloatArray
from bench.errors import DataError

FORM = "word vectors as text (word2vec or GloVe: a word and its numbers a line), plain, .gz or .xz"
_OPEN: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": lzma.open}
_PACKED = {b"\x1f\x8b": ".gz", b"\xfd7zXZ\0": ".xz", b"BZh": ".bz2"}
_TEXT = (".txt", ".vec")
_LONGEST = 1 << 20  # bytes of a line: a binary file may lack line ends
_EXPANDS = 100  # times its size that a file may unpack to; text: 2 to 5
_SMALL = 1 << 28  # bytes that any file may unpack to
_BLANKS = "single blanks between a word and its numbers"


@dataclass(frozen=True)
class WordVectors:
    """All vectors of a file."""

    rows: dict[str, int]  # row of each word
    vectors: FloatArray  # float32 (words, dim)
    repeated: int  # lines with a word of an earlier line, which counts

    def find(self, token: str) -> int | None:
        """Return a token's row: as it is, lower-cased, stripped of ASCII punctuation, or both."""
        bare = token.strip(string.punctuation)
        for form in (token, token.lower(), bare, bare.lower()):
            if form and form in self.rows:
                return self.rows[form]
        return None


def read_dimension(path: Path) -> int:
    """Return the dimension from the first lines; raises DataError as :func:`read_word_vectors` does."""
    return len(next(_read_entries(path))[1])


def check_shape(path: Path) -> None:
    """Check words and numbers of fields of all lines; raises DataError as :func:`read_word_vectors`."""
    for _ in _check_lines(path):
        pass


def read_word_vectors(path: Path) -> WordVectors:
    """Read a whole file; in memory 4 bytes a number, and the words.

    A first line of two whole numbers is word2vec's header (words, dimension). Elsewhere the last ``dim``
    fields are the numbers and all before them is the word. Raises DataError with the line.
    """
    rows: dict[str, int] = {}
    values, repeated = array("f"), 0
    for word, row in _read_entries(path):
        if word in rows:
            repeated += 1
        else:
            rows[word] = len(rows)
            values.frombytes(row.tobytes())
    return WordVectors(rows, np.frombuffer(values, np.float32).reshape(len(rows), -1), repeated)


def strip_endings(path: Path) -> str:
    """Strip .gz, .xz, .txt, .vec from a file name; ``glove.840B.300d`` stays whole."""
    name = path.name
    for endings in (tuple(_OPEN), _TEXT):
        for ending in endings:
            if name.endswith(ending) and name != ending:
                name = name.removesuffix(ending)
                break
    return name


def _read_entries(path: Path) -> Iterator[tuple[str, FloatArray]]:
    for number, fields, dim, expected in _check_lines(path):
        yield _parse_entry(fields, dim, f"{path}:{number}", expected)


def _check_lines(path: Path) -> Iterator[tuple[int, list[bytes], int, str]]:
    """Yield number, fields, dimension and expected form of each line; raises DataError for other sizes."""
    dim: int | None = None
    promised: int | None = None
    count = 0
    for number, line in enumerate(_read_lines(path), start=1):
        where = f"{path}:{number}"
        fields = _split_fields(line.removeprefix(BOM_UTF8) if number == 1 else line, where)
        digits = number == 1 and len(fields) == 2 and all(f.isdigit() and len(f) < 19 for f in fields)
        if digits and int(fields[1]):
            promised, dim = int(fields[0]), int(fields[1])
        elif fields != [b""]:
            dim = len(fields) - 1 if dim is None else dim
            count += 1
            expected = FORM if count == 1 else f"{dim} numbers, as the first line says"
            if dim < 1 or len(fields) <= dim:
                raise _size_error(fields, where, expected)
            if count == 1 and not any(map(_is_number, fields[1:])):
                hint = "delete a header of column names, as R's write.table writes"
                raise DataError("the first line has no numbers", where=where, expected=FORM, hint=hint)
            yield number, fields, dim, expected
    if not count:
        raise DataError("it contains no word vector", where=str(path), expected=FORM)
    if promised is not None and count != promised:
        what = f"{count:,} word vectors, but the first line says {promised:,}"
        raise DataError(what, where=str(path), expected="the whole file")


def _split_fields(line: bytes, where: str) -> list[bytes]:
    bare = line.rstrip()
    if b"\r" in bare:
        raise stray_return_error(where)
    if b"\t" in bare:
        raise DataError("a tab inside the line", where=where, expected=_BLANKS)
    return bare.split(b" ")


def _read_lines(path: Path) -> Iterator[bytes]:
    try:
        left = max(_SMALL, _EXPANDS * path.stat().st_size)
        with _OPEN.get(path.suffix, open)(path, "rb") as stream:
            _check_kind(stream.peek(LONGEST_MAGIC), path)
            while line := stream.readline(_LONGEST):
                left -= len(line)
                if left < 0:
                    what = f"it unpacks to more than {_EXPANDS} times its size"
                    raise DataError(what, where=str(path), expected=FORM)
                if len(line) == _LONGEST:
                    raise DataError("a line of more than a megabyte", where=str(path), expected=FORM)
                yield line
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
        raise DataError(f"it can't be unpacked: {error}", where=str(path), expected="a whole file") from error
    except OSError as error:
        raise DataError(f"it can't be read: {error.strerror}", where=str(path)) from error


def _check_kind(head: bytes, path: Path) -> None:
    for first, ending in _PACKED.items():
        if head.startswith(first):
            hint = f"name it {ending}" if ending in _OPEN else "unpack it"
            what = f"this is a {ending} file by its first bytes"
            raise DataError(what, where=str(path), expected=FORM, hint=hint)
    check_text_kind(head, path)


def _parse_entry(fields: list[bytes], dim: int, where: str, expected: str) -> tuple[str, FloatArray]:
    extra = len(fields) - 1 - dim
    if b"" in fields[max(extra, 1) :]:
        raise DataError("two blanks in a row", where=where, expected=_BLANKS)
    if extra and _is_number(fields[extra]):
        raise _size_error(fields, where, expected)
    try:
        word = b" ".join(fields[: extra + 1]).decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError("these bytes are not utf-8", where=where, expected=FORM) from error
    try:
        if b"_" in b" ".join(fields[extra + 1 :]):  # numpy takes 1_0 for 10
            raise ValueError
        with np.errstate(over="ignore"):  # infinities are refused below
            row = np.array(fields[extra + 1 :], dtype=np.float32)
    except ValueError as error:
        wrong = next(field for field in fields[extra + 1 :] if not _is_number(field))
        shown = wrong[:20].decode("utf-8", "backslashreplace")
        raise DataError(f"{shown!a} is not a number", where=where, expected=FORM) from error
    if not np.isfinite(row).all():
        raise DataError("a number that is not finite in float32", where=where)
    return word, row


def _size_error(fields: Sequence[bytes], where: str, expected: str) -> DataError:
    return DataError(f"{len(fields) - 1} fields after the word", where=where, expected=expected)


def _is_number(field: bytes) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return b"_" not in field
