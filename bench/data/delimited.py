"""Tables in text files: rows of ``.tsv``, ``.csv`` and ``.jsonl``, and the quotes of a ``.tsv``."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any, Literal, NamedTuple, TextIO

from bench.data.tasks import MARK, normalise_spaces
from bench.data.text_lines import check_returns, stray_return_error
from bench.errors import DataError
from bench.schema import parse_decimal

QUOTED = "quotes read as a CSV writer's"
"""Note on a ``.tsv`` file that a CSV writer wrote."""
JOINED = "delete it: files that are joined each bring a header"
_MOST_LABELS = 20
_CONSTANTS = ("NA", "TRUE", "FALSE")  # R writes them without quotes
_MOST_LINES = 10  # of a cell: an open quote makes one cell of many rows
_FEWEST_IDS = 10
_NUMERIC = re.compile(r"(?=.*\d)[\d\s.,:/%+()$\u20ac\u00a3\u00a5\u2212\u2013-]+")
"""Fractions, percentages, amounts, decimal commas, dates and times."""
_MISSING = {"", "-", "--", "?", ".", "nan", "na", "n/a", "#n/a", "none", "null", "inf", "-inf", "+inf"}
ENDINGS = (".tsv", ".csv", ".jsonl")
_CELL = re.compile(r'(")(?:[^"]++|"")*+"(?=[\t\r\n]|\Z)|[^\t\r\n"]*+(?=[\t\r\n]|\Z)')
"""A cell of a CSV writer with tabs: in quotes, with doubled inner quotes, or without quotes."""
_QUOTED_CELL = re.compile(r'"(?:[^"]|"")*"')
_LINE_END = re.compile(r"\r\n|\r|\n")


class _Cell(NamedTuple):
    text: str  # with its quotes
    line: int  # on which it begins

    @property
    def is_quoted(self) -> bool:
        return self.text.startswith('"')


class _StrayQuoteError(Exception):
    """A quote against the rules of CSV; its argument is the line."""


def has_csv_quotes(text: str, path: Path) -> bool:
    """Decide whether the quotes of a ``.tsv`` text are a CSV writer's, or part of the text.

    Proofs of a CSV writer: a quoted cell with a doubled quote, a quoted tab or new line that makes rows of
    equal length, or quotes around all cells except numbers. Raises DataError for a proof, and another line
    against the rules of CSV.
    """
    if '"' not in text:
        return False
    plain = [line.split("\t") for line in _LINE_END.split(text)]
    # a cell in quotes with a doubled quote inside
    doubled = (any('""' in c[1:-1] and _QUOTED_CELL.fullmatch(c) for c in row) for row in plain)
    proof = next((number for number, found in enumerate(doubled, start=1) if found), 0)
    fault, rows = 0, list[list[_Cell]]()
    try:
        rows = list(_quoted_rows(text))
    except _StrayQuoteError as error:
        fault = error.args[0]
    uneven = _find_uneven_row(rows)
    if not proof and not fault and not uneven:
        proof = _find_uneven_row(plain) or int(_is_all_quoted(rows))
    if proof and uneven and not _find_uneven_row(plain):
        fault = rows[uneven - 1][0].line
    if proof and fault:
        what = f"a quote here is text, and a quote in line {proof} is a CSV writer's"
        hint = "write the table as .jsonl, or as .csv with a CSV writer"
        expected = "quotes of one kind in the file"
        raise DataError(what, where=f"{path}:{fault}", expected=expected, hint=hint)
    return proof > 0


def count_quoted_cells(text: str) -> str:
    """Return a note on the cells of a ``.tsv`` text that begin and end with a quote which is text, or ""."""
    cells = (cell for line in _LINE_END.split(text) if '"' in line for cell in line.split("\t"))
    count = sum(len(cell) > 1 and cell[0] == cell[-1] == '"' for cell in cells)
    if not count:
        return ""
    verbs = "cell begins and ends" if count == 1 else "cells begin and end"
    return f"{count:,} {verbs} with a quote, which is part of its text"


def separator_hint(cells: Sequence[str]) -> str | None:
    """Return the hint for a row of one cell that holds several names or texts."""
    for mark, name in (("\t", "tabs"), (";", "';'"), ("|", "'|'"), (",", "commas")):
        if len(cells) == 1 and mark in cells[0]:
            return f"the columns are separated by {name} here: write them with commas (.csv) or tabs (.tsv)"
    return None


def _quoted_rows(text: str) -> Iterator[list[_Cell]]:
    """Yield the rows as a CSV reader with tabs reads them; raises _StrayQuoteError."""
    at, line, row = 0, 1, list[_Cell]()
    while at <= len(text):
        match = _CELL.match(text, at)
        if match is None:
            raise _StrayQuoteError(line)
        row.append(_Cell(match[0], line))
        line += len(_LINE_END.findall(match[0]))
        at = match.end()
        if text.startswith("\t", at):
            at += 1
            continue
        yield row
        row = []
        at += 2 if text.startswith("\r\n", at) else 1
        line += 1


def _find_uneven_row(rows: Sequence[Sequence[str | _Cell]]) -> int:
    """Return the number of the first row with another length than the first, or 0."""
    width = 0
    for number, row in enumerate(rows, start=1):
        if any(getattr(cell, "text", cell) for cell in row):
            width = width or len(row)
            if len(row) != width:
                return number
    return 0


def _is_all_quoted(rows: Sequence[Sequence[_Cell]]) -> bool:
    """Check for a first row in quotes, and quotes around all cells except numbers and R's constants."""
    whole = [row for row in rows if any(cell.text for cell in row)]
    if len(whole) < 2 or not all(cell.is_quoted for cell in whole[0]):
        return False
    bare = [cell.text for row in whole for cell in row if not cell.is_quoted]
    return all(text in _CONSTANTS or _is_number(text) for text in bare)


def _is_number(text: str) -> bool:
    try:
        parse_decimal(text)
    except ValueError:
        return False
    return True


def number_kind(texts: Collection[str]) -> str:
    """Return "a number" or "an id or a number" for a column of these, otherwise "".

    Markers of missing values, such as "nan" and "N/A", may stand among the numbers. Ids are ten or more ASCII
    words with a digit each.

    >>> number_kind(["0/5", "3 %", "N/A"]), number_kind(["A cat.", "5"])
    ('a number', '')
    """
    if all(map(_is_numeric, texts)):
        return "a number"
    ids = (text.isascii() and len(text.split()) == 1 and re.search(r"\d", text) for text in texts)
    return "an id or a number" if len(texts) >= _FEWEST_IDS and all(ids) else ""


def _is_numeric(text: str) -> bool:
    bare = text.strip()
    return bare.casefold() in _MISSING or _NUMERIC.fullmatch(bare) is not None or _is_number(bare)


@dataclass
class LongCells:
    """Number of cells with more than one line, and lines of the shortest and the longest."""

    count: int = 0
    fewest: int = 0
    most: int = 0

    def add(self, fields: Sequence[str], path: Path, line: int) -> None:
        """Count the cells of a row that begins on a line; raises DataError for too many lines."""
        for cell in fields:
            lines = 1 + len(_LINE_END.findall(cell))
            if lines > _MOST_LINES:
                what, expected = f"a cell of {lines:,} lines begins here", f"at most {_MOST_LINES} lines"
                hint = "close the quote that is open; write longer texts as .jsonl"
                raise DataError(what, where=f"{path}:{line}", expected=expected, hint=hint)
            if lines > 1:
                self.count += 1
                self.fewest = min(self.fewest or lines, lines)
                self.most = max(self.most, lines)
            line += cell.count("\n")

    @property
    def note(self) -> str:
        """The count in words, or ""."""
        if not self.count:
            return ""
        size = f"{self.most}" if self.fewest == self.most else f"{self.fewest} to {self.most}"
        return f"{self.count:,} cell{'s' * (self.count != 1)} of {size} lines"


@dataclass(frozen=True)
class DelimitedTable:
    """Rows of a file, with notes for the dry run."""

    rows: Iterator[tuple[int, dict[str, Any]]]  # line number, {column: value}
    quotes: str = ""  # note on the quotes of a ``.tsv`` file
    cells: LongCells = field(default_factory=LongCells)  # counted while the rows are read

    @property
    def form(self) -> str:
        """Notes on quotes and long cells, after all rows are read."""
        return ", ".join(filter(None, (self.quotes, self.cells.note)))


def open_table(
    path: Path,
    stream: TextIO,
    columns: list[str] | None = None,
    *,
    blank_rows: bool = False,
    delimiter: str = "",
) -> DelimitedTable:
    r"""Return the rows of a file that is open for reading with ``newline="\n"``; ``path`` has its ending.

    ``columns`` names those of a file without a header. ``blank_rows`` makes an empty line a row of empty
    cells. ``delimiter`` is that of a file that its ending doesn't describe.

    Raises DataError for another ending and, while the rows are read, for a damaged line.
    """
    ending = path.suffix.lower()
    if delimiter:
        ending = ".tsv" if delimiter == "\t" else ".csv"
    if ending not in ENDINGS:
        raise DataError(f"'{path.suffix}' is not a format", where=str(path), expected=".tsv, .csv or .jsonl")
    if ending == ".jsonl":
        return DelimitedTable(_json_rows(path, stream))
    cells, note = LongCells(), ""
    if ending == ".csv":
        rows = csv_rows(stream, path, cells, delimiter or ",")
    else:
        text = stream.read()
        quoted = has_csv_quotes(text, path)
        note = QUOTED if quoted else count_quoted_cells(text)
        rows = csv_rows(StringIO(text), path, cells, "\t", csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE)
    return DelimitedTable(_named_rows(rows, path, columns, blank_rows), note, cells)


def csv_rows(
    lines: Iterable[str],
    path: Path,
    cells: LongCells,
    delimiter: str = ",",
    quoting: Literal[0, 3] = csv.QUOTE_MINIMAL,
) -> Iterator[tuple[int, list[str]]]:
    """Yield the line on which each row begins, and its cells; raises DataError for damaged rows."""
    reader = csv.reader(lines, strict=True, delimiter=delimiter, quoting=quoting)
    line = 1  # an open quote is an error at the end of the file only
    try:
        for fields in reader:
            cells.add(fields, path, line)
            yield line, fields
            line = reader.line_num + 1
    except csv.Error as error:
        what = str(error)
        if "new-line character" in what:
            raise stray_return_error(f"{path}:{line}") from error
        if "field limit" in what:
            what = f"a text of more than {csv.field_size_limit():,} characters"
        what, expected = f"can't read this row: {what}", "cells quoted as Python's csv writes them"
        raise DataError(what, where=f"{path}:{line}", expected=expected) from error


def are_labels(texts: Collection[str]) -> bool:
    """Check for at most 20 distinct single words, each there twice or more on average."""
    distinct = set(texts)
    few = len(distinct) <= min(_MOST_LABELS, len(texts) // 2)
    return few and not any(" " in text for text in distinct)


def are_names(columns: Any) -> bool:
    """Check for a list of distinct texts."""
    named = isinstance(columns, list) and all(isinstance(name, str) for name in columns)
    return named and len(set(columns)) == len(columns)


def check_byte_order_mark(fields: Sequence[str], where: str) -> None:
    """Raise DataError for a row that begins with a byte order mark, as in the second of two joined files."""
    if fields[0].startswith(MARK):
        hint = "delete it: files that are joined each bring their own"
        expected = "one at its beginning, or none"
        raise DataError("a byte order mark inside the file", where=where, expected=expected, hint=hint)


def check_separator_line(fields: Sequence[str], where: str) -> None:
    """Raise DataError for a first row that is a spreadsheet's, such as ``sep=;``."""
    if fields[0].strip(' "').lower().startswith("sep=") and not any(fields[1:]):
        what, expected = "this line names a spreadsheet's separator", "the names of the columns"
        raise DataError(what, where=where, expected=expected, hint="delete the line")


def check_repeated_header(fields: Sequence[str], header: Sequence[str], where: str, hint: str) -> None:
    """Raise DataError for a row with the names of the columns, except for case and blanks."""
    if _fold(fields) == _fold(header):
        what = "this row has the names of the columns"
        raise DataError(what, where=where, expected="a row of data", hint=hint)


def _fold(names: Sequence[str]) -> list[str]:
    return [normalise_spaces(name).casefold() for name in names]


def check_last_name(names: Sequence[str], where: str) -> None:
    """Raise DataError for a header whose last name is empty."""
    if len(names) > 1 and not names[-1].strip():
        raise DataError("the header ends with a separator", where=where, expected="a name after it")


def row_names_hint(cells: int, names: int) -> str | None:
    """Return the hint for a row with one cell more than the header has names."""
    if cells != names + 1:
        return None
    return "R's write.table gives the row names no column name: write with row.names = FALSE"


def _named_rows(
    rows: Iterator[tuple[int, list[str]]], path: Path, columns: list[str] | None, blank_rows: bool
) -> Iterator[tuple[int, dict[str, Any]]]:
    header, blank = columns, ""
    repeated = JOINED if columns is None else "leave out columns = [...]"
    for line, fields in rows:
        where = f"{path}:{line}"
        if not fields and header is not None:
            if blank_rows:
                yield line, dict.fromkeys(header, "")
            else:
                blank = blank or where  # harmless at the end of a file
            continue
        if not fields or blank:
            expected = "the names of the columns" if header is None else f"a row of {', '.join(header)}"
            raise DataError("this line is empty", where=blank or where, expected=expected)
        check_byte_order_mark(fields, where)
        if header is not None:
            check_repeated_header(fields, header, where, repeated)
        if line == 1:
            check_separator_line(fields, where)
        if header is None:
            _check_header(fields, where)
            header = fields
        elif len(fields) != len(header):
            hint = row_names_hint(len(fields), len(header)) if line == 2 else None
            expected = f"{len(header)} ({', '.join(header)})"
            raise DataError(f"{len(fields)} columns", where=where, expected=expected, hint=hint)
        else:
            yield line, dict(zip(header, fields, strict=True))


def _check_header(names: list[str], where: str) -> None:
    if not are_names(names):
        raise DataError(f"columns {', '.join(names)}", where=where, expected="distinct names")
    check_last_name(names, where)
    # a first sentence in place of a header has other characters too
    words = all(re.fullmatch(r"[\w.-]+", name.strip(' "')) for name in re.split(r"[\t;|,]", names[0]))
    if words and (hint := separator_hint(names)):
        raise DataError("the header is one column", where=where, expected="a column each", hint=hint)


def _json_rows(path: Path, stream: TextIO) -> Iterator[tuple[int, dict[str, Any]]]:
    for line, text in enumerate(stream, 1):
        where = f"{path}:{line}"
        check_returns(text, where)
        if not text.strip():
            continue
        try:
            row = json.loads(text, object_pairs_hook=_build_object)
        except (ValueError, RecursionError) as error:
            raise DataError(f"no JSON: {error}", where=where) from error
        if not isinstance(row, dict):
            raise DataError("no JSON object", where=where, expected="{...} on every line")
        try:
            if "\\u" in text:  # an escape may be half of a character, as in a truncated text
                json.dumps(row, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise DataError(f"this can't be written as UTF-8: {error.reason}", where=where) from error
        yield line, row


def _build_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) < len(pairs):
        raise ValueError("a name is given twice")
    return row
