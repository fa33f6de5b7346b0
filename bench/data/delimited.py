"""Tables in text files: rows of ``.tsv``, ``.csv`` and ``.jsonl``, and the quotes of a ``.tsv``."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any, TextIO

from bench.errors import DataError
from bench.schema import decimal

QUOTED = "quotes read as a CSV writer's"
"""The dry run adds it to a ``.tsv`` file that a CSV writer wrote."""
_MOST_LABELS = 20
ENDINGS = (".tsv", ".csv", ".jsonl")
_CELL = re.compile(r'(")(?:[^"]++|"")*+"(?=[\t\r\n]|\Z)|[^\t\r\n"]*+(?=[\t\r\n]|\Z)')
"""A cell of a CSV writer with tabs: in quotes, with each inner quote doubled, or without a quote."""
_QUOTED_CELL = re.compile(r'"(?:[^"]|"")*"')
_LINE_END = re.compile(r"\r\n|\r|\n")


@dataclass(frozen=True)
class _Cell:
    """A cell as it is in the file: its text with its quotes, and the line on which it begins."""

    text: str
    line: int

    @property
    def is_quoted(self) -> bool:
        return self.text.startswith('"')


class _StrayQuoteError(Exception):
    """A quote that no CSV writer writes; its argument is the line."""


def has_csv_quotes(text: str, path: Path) -> bool:
    """Decide whether the quotes of a ``.tsv`` text are a CSV writer's, or part of the text.

    A CSV writer's quotes are proved by a quoted cell with a doubled quote, by a quoted tab or new line that
    makes rows of equal length, or by quotes around every cell but numbers.

    Raises:
        DataError: there is a proof, and another line breaks the rules of CSV.
    """
    if '"' not in text:
        return False
    plain = [line.split("\t") for line in _LINE_END.split(text)]
    proof = next((number for number, row in enumerate(plain, start=1) if any(map(_is_doubled, row))), 0)
    fault, rows = 0, list[list[_Cell]]()
    try:
        rows = list(_quoted_rows(text))
    except _StrayQuoteError as error:
        fault = error.args[0]
    uneven = _uneven([[cell.text for cell in row] for row in rows])
    if not proof and not fault and not uneven:
        proof = _uneven(plain) or int(_is_all_quoted(rows))
    if proof and uneven and not _uneven(plain):
        fault = rows[uneven - 1][0].line
    if proof and fault:
        raise DataError(
            f"a quote here is text, and a quote in line {proof} is a CSV writer's",
            where=f"{path}:{fault}",
            expected="quotes of one kind in the file",
            hint="write the table as .jsonl, or as .csv with a CSV writer",
        )
    return proof > 0


def quotes_as_text(text: str) -> str:
    r"""Count the cells of a ``.tsv`` text that begin and end with a quote, if its quotes are text.

    >>> quotes_as_text('"Yes, it is."\t5')
    '1 cell begins and ends with a quote, which is part of its text'
    """
    cells = (cell for line in _LINE_END.split(text) if '"' in line for cell in line.split("\t"))
    count = sum(len(cell) > 1 and cell[0] == cell[-1] == '"' for cell in cells)
    if not count:
        return ""
    verbs = "cell begins and ends" if count == 1 else "cells begin and end"
    return f"{count:,} {verbs} with a quote, which is part of its text"


def other_separator(cells: Sequence[str]) -> str | None:
    """Return the hint for a row of one cell that holds several names or texts, None for any other row.

    >>> other_separator(["sentence1;sentence2;score"])
    "the columns are separated by ';' here: write them with commas (.csv) or tabs (.tsv)"
    """
    found = next((mark for mark in ("\t", ";", "|", ",") if len(cells) == 1 and mark in cells[0]), None)
    if found is None:
        return None
    shown = {"\t": "tabs", ",": "commas"}.get(found, f"'{found}'")
    return f"the columns are separated by {shown} here: write them with commas (.csv) or tabs (.tsv)"


def _is_doubled(cell: str) -> bool:
    """True for a cell in quotes with a doubled quote inside."""
    return '""' in cell[1:-1] and _QUOTED_CELL.fullmatch(cell) is not None


def _quoted_rows(text: str) -> Iterator[list[_Cell]]:
    """Yield the rows as a CSV reader with tabs reads them; raises _StrayQuoteError."""
    at, line, row = 0, 1, list[_Cell]()
    while at <= len(text):
        found = _CELL.match(text, at)
        if found is None:
            raise _StrayQuoteError(line)
        row.append(_Cell(found[0], line))
        line += len(_LINE_END.findall(found[0]))
        at = found.end()
        if text.startswith("\t", at):
            at += 1
            continue
        yield row
        row = []
        at += 2 if text.startswith("\r\n", at) else 1
        line += 1


def _uneven(rows: Sequence[Sequence[str]]) -> int:
    """Number of the first row whose length differs from the first one's, 0 for none; blank lines aside."""
    whole = [(number, len(row)) for number, row in enumerate(rows, start=1) if any(row)]
    return next((number for number, length in whole if length != whole[0][1]), 0)


def _is_all_quoted(rows: Sequence[Sequence[_Cell]]) -> bool:
    """True if the first row is in quotes, and in the others all but numbers is."""
    whole = [row for row in rows if any(cell.text for cell in row)]
    if not whole or len(whole[0]) < 2 or not all(cell.is_quoted for cell in whole[0]):
        return False
    return all(cell.is_quoted or _is_number(cell.text) for row in whole for cell in row)


def _is_number(text: str) -> bool:
    try:
        decimal(text)
    except ValueError:
        return False
    return True


def all_numbers(texts: Iterable[str]) -> bool:
    """True if every text is a number."""
    return all(map(_is_number, texts))


@dataclass(frozen=True)
class Table:
    """Rows of a file.

    Args:
        rows: (line number, {column: value}) of each.
        quoted: It is a ``.tsv`` file with a CSV writer's quotes.
        form: How its quotes are read, for the dry run; "" where there is nothing to say.
    """

    rows: Iterator[tuple[int, dict[str, Any]]]
    quoted: bool = False
    form: str = ""


def open_table(path: Path, stream: TextIO, columns: list[str] | None = None) -> Table:
    """Return the rows of a file that is open for reading with ``newline=""``.

    Args:
        path: The file, for its ending and for errors.
        stream: Its text.
        columns: Names of the columns of a ``.tsv`` or ``.csv`` file without a header.

    Raises:
        DataError: another ending; while the rows are read, a damaged line.
    """
    if path.suffix.lower() == ".jsonl":
        return Table(_json_rows(path, stream))
    if path.suffix.lower() == ".csv":
        return Table(_named_rows(csv.reader(stream, strict=True), path, columns))
    if path.suffix.lower() != ".tsv":
        raise DataError(f"'{path.suffix}' is not a format", where=str(path), expected=".tsv, .csv or .jsonl")
    text = stream.read()
    quoted = has_csv_quotes(text, path)
    reader = csv.reader(
        StringIO(text, newline=""),
        strict=True,
        delimiter="\t",
        quoting=csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE,
    )
    form = QUOTED if quoted else quotes_as_text(text)
    return Table(_named_rows(reader, path, columns), quoted, form)


def are_labels(texts: Collection[str]) -> bool:
    """True if few single words fill a column, each of them twice or more on average.

    >>> are_labels(["entailment", "neutral", "neutral", "entailment"])
    True
    """
    found = set(texts)
    return len(found) <= min(_MOST_LABELS, len(texts) // 2) and not any(" " in text for text in found)


def are_names(columns: Any) -> bool:
    """True for a list of distinct texts."""
    named = isinstance(columns, list) and all(isinstance(name, str) for name in columns)
    return named and len(set(columns)) == len(columns)


def _named_rows(reader: Any, path: Path, columns: list[str] | None) -> Iterator[tuple[int, dict[str, Any]]]:
    """Name the cells of a strict reader's rows; another reader's open quote swallows what follows."""
    header = columns
    for fields in _fields(reader, path):
        if not fields:
            expected = "the names of the columns" if header is None else f"a row of {', '.join(header)}"
            raise DataError("this line is empty", where=f"{path}:{reader.line_num}", expected=expected)
        if header is None:
            if not are_names(fields):
                raise DataError(f"columns {', '.join(fields)}", where=f"{path}:1", expected="distinct names")
            if (hint := other_separator(fields)) and _are_words(fields[0]):
                raise DataError(
                    "the header is one column", where=f"{path}:1", expected="a column each", hint=hint
                )
            header = fields
        elif len(fields) != len(header):
            raise DataError(
                f"{len(fields)} columns",
                where=f"{path}:{reader.line_num}",
                expected=f"{len(header)} ({', '.join(header)})",
            )
        else:
            yield reader.line_num, dict(zip(header, fields, strict=True))


def _are_words(header: str) -> bool:
    """True for names with something between them, not the first sentence of a file without a header."""
    return all(re.fullmatch(r"[\w.-]+", name.strip(' "')) for name in re.split(r"[\t;|,]", header))


def _fields(reader: Any, path: Path) -> Iterator[list[str]]:
    line = 0  # on which the last whole row ends: an open quote shows at the end of the file alone
    try:
        for fields in reader:
            line = reader.line_num
            yield fields
    except csv.Error as error:
        what = str(error)
        if "field limit" in what:
            what = f"a text of more than {csv.field_size_limit():,} characters"
        raise DataError(f"no table: {what}", where=f"{path}:{line + 1}") from error


def _json_rows(path: Path, stream: TextIO) -> Iterator[tuple[int, dict[str, Any]]]:
    for line, text in enumerate(stream, 1):
        if text.strip():
            yield line, _json_object(text, f"{path}:{line}")


def _json_object(text: str, where: str) -> dict[str, Any]:
    try:
        found = json.loads(text, object_pairs_hook=_distinct)
    except (ValueError, RecursionError) as error:
        raise DataError(f"no JSON: {error}", where=where) from error
    if not isinstance(found, dict):
        raise DataError("no JSON object", where=where, expected="{...} on every line")
    try:
        if "\\u" in text:  # an escape may be half of a character, as a text that was cut has
            json.dumps(found, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise DataError(f"this can't be written as UTF-8: {error.reason}", where=where) from error
    return found


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name is given twice")
    return found
