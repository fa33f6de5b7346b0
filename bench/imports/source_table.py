"""Tables of results made elsewhere: rows with their lines, numbers, names and seeds, each checked."""

from __future__ import annotations

import csv
import hashlib
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from bench.data.delimited import open_table
from bench.data.imported_names import find_name_fault
from bench.data.text_lines import encoding_error, open_text
from bench.errors import DataError, InputError, printable
from bench.records.look_alikes import write_in_latin
from bench.schema import LARGEST, parse_decimal

METHOD, SEED, TASK, METRIC = "method", "seed", "task", "metric"
_DELIMITERS = {",": "commas", "\t": "tabs", ";": "';'"}
_SEED = re.compile(r"([0-9]{1,15})(?:\.0+)?")  # pandas writes 1.0 in a column with empty cells
_DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+")
_BETWEEN_DIGITS = re.compile(r"(?<=\d)[\s_-]+(?=\d)")
_SEPARATORS = re.compile(r"(?<!\d)[\s_-]+|[\s_-]+(?!\d)")
_LONGEST_QUOTE = 40
_READ_BYTES = 2**20
_LACKS = "no score of "
_NEAR = 0.8  # of two equal words it is 1
_MEANINGS = {METHOD, SEED, TASK, METRIC, "score", "item", "gold", "prediction", "group"}
_USUAL_NAMES = {
    METHOD: ("model", "name", "run", "system", "encoder", "model_name"),
    TASK: ("dataset", "benchmark", "task_name"),
    "score": ("value", "result", "spearman", "pearson", "accuracy", "acc"),
    "item": ("id", "index", "idx", "doc_id", "example"),
    "gold": ("label", "target", "truth", "reference", "gold_score"),
    "prediction": ("pred", "predicted", "output", "answer", "filtered_resps", "similarity"),
}
"""Names that other programs give these columns."""


class Run(NamedTuple):
    """A method with a seed, None without one."""

    method: str
    seed: int | None

    @property
    def label(self) -> str:
        """Its name in messages."""
        return self.method if self.seed is None else f"{self.method} seed {self.seed}"


@dataclass(frozen=True)
class TableRow:
    """Cells of a row by column, without blanks at their ends, and where the row begins."""

    cells: dict[str, str]
    file: Path
    line: int

    @property
    def where(self) -> str:
        """File and line."""
        return f"{self.file}:{self.line}"


def describe_source(kind: str, file: Path) -> dict[str, str]:
    """Return kind, file name and sha256 of the content; raises InputError for a file that can't be read."""
    digest = hashlib.sha256()
    try:
        if not file.is_file():
            what = "this is not a file" if file.exists() else "no such file"
            raise InputError(what, where=str(file), expected="a table (.csv, .tsv or .jsonl)")
        with file.open("rb") as stream:
            while block := stream.read(_READ_BYTES):
                digest.update(block)
    except (OSError, ValueError) as error:  # such as a NUL in the name
        raise InputError(f"this file can't be read: {error}", where=str(file)) from error
    return {"kind": kind, "label": printable(file.name), "sha256": digest.hexdigest()}


def read_rows(file: Path, notes: list[str]) -> Iterator[TableRow]:
    """Yield the rows of a ``.jsonl`` file, or of a table with commas, tabs or ``;`` by its header.

    Column names of :mod:`bench.imports` are read in any case. ``notes`` gets a line for the separator ``;``.
    Raises DataError with file and line for a damaged row.
    """
    with _reading(file):
        delimiter = "" if file.suffix.lower() == ".jsonl" else _find_delimiter(file)
        if delimiter == ";":
            notes.append(f"{printable(file.name)}: columns are separated by ';'")
        with open_text(file) as stream:
            table = open_table(file, stream, delimiter=delimiter)
            first: tuple[str, ...] = ()
            for line, values in table.rows:
                row = TableRow(_read_cells(values, f"{file}:{line}"), file, line)
                first = first or tuple(row.cells)
                if others := [name for name in row.cells if name not in first]:
                    expected = f"the columns of the first row: {', '.join(first)}"
                    raise DataError(f"a column '{others[0]}'", where=row.where, expected=expected)
                yield row
    if not first:
        raise DataError("the table has no row", where=str(file), expected="a header and rows")


@contextmanager
def _reading(file: Path) -> Iterator[None]:
    """Turn errors of encodings, and of the system, into DataError."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise encoding_error(file) from error
    except OSError as error:
        raise DataError(f"this file can't be read: {error.strerror}", where=str(file)) from error
    except DataError as error:
        if re.match(r"\d+ columns", error.what):
            error.hint = 'write 0.71 for 0,71, put names with commas into quotes ("a, b"), write no row names'
        raise


def _find_delimiter(file: Path) -> str:
    """Return the separator with which the header has a column "method"; a comma if there is none."""
    with open_text(file) as stream:
        header = stream.readline(_READ_BYTES)
    for delimiter in _DELIMITERS:
        try:
            names = next(csv.reader([header], delimiter=delimiter), [])
        except csv.Error:
            continue
        if len(names) > 1 and any(_fold_column(name) == METHOD for name in names):
            return delimiter
    return "\t" if file.suffix.lower() == ".tsv" else ","


def _read_cells(values: Mapping[str, object], where: str) -> dict[str, str]:
    """Return the cells as texts; raises DataError for nested or logical values, and columns of one name."""
    cells: dict[str, str] = {}
    for column, value in values.items():
        name = _fold_column(column)
        if name in cells:
            raise DataError(f"two columns '{name}'", where=where, expected="distinct names")
        if value is None:
            cells[name] = ""
        elif isinstance(value, bool) or not isinstance(value, (str, int, float)):
            raise DataError(f"'{name}' is {quote(repr(value))}", where=where, expected="a text or a number")
        else:
            cells[name] = (value if isinstance(value, str) else repr(value)).strip()
    return cells


@lru_cache(maxsize=1_000)  # the same few names in every row
def _fold_column(name: str) -> str:
    """Return a column's name: those with a meaning in lower case, a task's as it is."""
    bare = name.strip()
    return bare.lower() if bare.lower() in _MEANINGS else bare


def check_columns(row: TableRow, needed: Sequence[str], optional: Sequence[str]) -> list[str]:
    """Return the columns without a meaning; raises DataError for missing and for misspelt ones."""
    others = [name for name in row.cells if name not in needed and name not in optional]
    expected = f"columns {', '.join(needed)} (and {', '.join(optional)})"
    where = f"{row.file}:1"
    for name in needed:
        if name not in row.cells:
            twin = next((other for other in others if _resembles(other, name)), None)
            what = f"no column is named {name}; the header is {', '.join(row.cells)}"
            hint = f"rename '{twin}' to {name}" if twin else f"name a column {name}"
            raise DataError(what, where=where, expected=expected, hint=hint)
    for other in others:
        if near := get_close_matches(other.lower(), optional, 1, _NEAR):
            hint = f"rename it to {near[0]}, or delete it"
            raise DataError(f"a column '{other}'", where=where, expected=expected, hint=hint)
    return others


def _resembles(column: str, name: str) -> bool:
    """Check for a usual name of a column in other programs, and for a misspelt one."""
    bare = column.lower()
    return bare in _USUAL_NAMES.get(name, ()) or bool(get_close_matches(bare, [name], 1, _NEAR))


def quote(text: str) -> str:
    """Return a text of any length, escaped and in quotes, for a message."""
    shown = text if len(text) <= _LONGEST_QUOTE else f"{text[:_LONGEST_QUOTE]}..."
    return f"'{printable(shown)}'"


def read_number(text: str, what: str, where: str) -> float:
    """Return a finite decimal number; raises DataError that names the likely cause."""
    try:
        value = parse_decimal(text)
    except ValueError:
        value = float("inf")
    if abs(value) <= LARGEST:
        return value
    if not text:
        raise DataError(f"no {what}", where=where, expected="a number", hint="delete the row")
    raise DataError(f"{what} {quote(text)}", where=where, expected="a number", hint=_explain_number(text))


def _explain_number(text: str) -> str | None:
    if _DECIMAL_COMMA.fullmatch(text):
        return f"write a decimal point: {text.replace(',', '.')}"
    if text.endswith("%"):
        return "write it without %, and type --scale points"
    if "\u00b1" in text or "+-" in text or "(" in text:
        return "write a row a seed, without the spread"
    if text[0] in "\u2212\u2013":
        return "write the minus sign as -"
    return None


def read_seed(row: TableRow) -> int | None:
    """Return the seed of a row, None without one; raises DataError."""
    text = row.cells.get(SEED, "")
    if not text:
        return None
    match = _SEED.fullmatch(text)
    if match is None:
        raise DataError(f"seed {quote(text)}", where=row.where, expected="a whole number from 0, or nothing")
    return int(match[1])


@dataclass
class NameList:
    """Names of one kind; two that differ in case, blanks or hyphens can't be told apart by a reader."""

    kind: str
    _first: dict[str, tuple[str, int]] = field(default_factory=dict)
    _known: set[str] = field(default_factory=set)

    def check(self, name: str, where: str, line: int) -> str:
        """Return a name; raises DataError for a fault of it, and for a twin of another name."""
        if name in self._known:
            return name
        if fault := find_name_fault(name):
            raise DataError(f"{self.kind}: {fault}", where=where, expected="a name of printable characters")
        apart = _BETWEEN_DIGITS.sub(" ", write_in_latin(name))  # 1-10 and 11-0 are two
        folded = _SEPARATORS.sub("", apart).casefold()
        first, at = self._first.get(folded, ("", 0))
        if first:
            what = f"{self.kind} '{name}', and '{first}' in line {at}"
            raise DataError(what, where=where, expected="one spelling of a name")
        self._first[folded] = name, line
        self._known.add(name)
        return name


@dataclass
class MetricColumn:
    """The one metric of a table: given by the user, or in a column."""

    given: str
    name: str = ""

    def read(self, row: TableRow) -> None:
        """Check the metric of a row; raises DataError for a second one."""
        stated = row.cells.get(METRIC, "")
        known = self.name or self.given
        if stated and known and stated != known:
            hint = f"keep the rows of one metric, such as {known}"
            raise DataError(f"metric '{stated}' after '{known}'", where=row.where, expected="one", hint=hint)
        self.name = known or stated


def check_seeds(lines: Mapping[Run, int], file: Path) -> None:
    """Raise DataError for a method with seeds and without; ``lines`` are each run's first."""
    without = {run.method: line for run, line in lines.items() if run.seed is None}
    for run, line in lines.items():
        if run.seed is not None and run.method in without:
            what = f"{run.label}, and no seed in line {without[run.method]}"
            hint = "give each of its rows a seed, or name them as two methods"
            raise DataError(what, where=f"{file}:{line}", expected="seeds in all rows or none", hint=hint)


def leave_out_incomplete(
    tasks_of: Mapping[Run, Collection[str]], tasks: Sequence[str], file: Path
) -> dict[Run, str]:
    """Return the runs that lack tasks of others, each with the reason.

    Raises DataError if most runs lack one.
    """
    left_out = {}
    for run, own in tasks_of.items():
        if missing := [task for task in tasks if task not in own]:
            left_out[run] = f"{_LACKS}{', '.join(missing)}"
    if 2 * len(left_out) > len(tasks_of):
        counts = {task: sum(task in own for own in tasks_of.values()) for task in tasks}
        rarest = min(counts, key=lambda task: counts[task])
        what = f"{len(left_out)} of {len(tasks_of)} runs lack a task: {counts[rarest]} have {rarest}"
        hint = f"delete {rarest}, or import the runs with it as a suite of their own"
        raise DataError(what, where=str(file), expected="the same tasks of every run", hint=hint)
    return left_out


def count_left_out(left_out: Mapping[Run, str], runs: int) -> tuple[str, ...]:
    """Return sentences for tables that count the runs that aren't rows, by their reason; none without any."""
    lacking = sum(reason.startswith(_LACKS) for reason in left_out.values())
    others = len(left_out) - lacking
    notes = []
    if lacking:
        notes.append(f"{lacking} of {runs} runs {'lack' if lacking > 1 else 'lacks'} tasks.")
    if others:
        notes.append(f"{others} of {runs} runs {'have' if others > 1 else 'has'} no score.")
    return tuple(notes)
