"""``local:`` suites: tasks of mteb's kinds, from files that a small TOML file names.

::

    [[task]]
    name = "my-sts"
    type = "sts"               # a key of KINDS
    language = "eng-Latn"      # default
    split = "test"             # default
    file = "pairs.tsv"         # next to the TOML file; .tsv, .csv or .jsonl

Every file has a header with the columns of :data:`KINDS`; ``columns = [...]`` says them for one without.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import tomllib
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from bench.data.delimited import are_names, open_table
from bench.data.tasks import is_invisible, normalise_spaces
from bench.data.text_lines import encoding_error, open_text
from bench.errors import DataError, InputError, not_one_of
from bench.schema import parse_decimal

Row = tuple[str, ...]

KINDS: dict[str, dict[str, Row]] = {
    "sts": {"file": ("sentence1", "sentence2", "score")},
    "bitext": {"file": ("sentence1", "sentence2")},
    "classification": {"train": ("text", "label"), "test": ("text", "label")},
    "reranking": {"file": ("query", "document", "relevant")},
    "retrieval": {
        "corpus": ("id", "text"),
        "queries": ("id", "text"),
        "qrels": ("query", "document", "relevant"),
    },
    "clustering": {"file": ("text", "label")},
    "pair-classification": {"file": ("sentence1", "sentence2", "label")},
    "summarisation": {"references": ("text", "summary"), "summaries": ("text", "summary", "score")},
}
"""The files of each type of task, by the name they have in the TOML file, and their columns."""
_NUMBERS = ("score", "relevant")
_NOT_TEXTS = ("score", "relevant", "label", "id")
_LABELLED = ("classification", "clustering", "pair-classification")
_SETTINGS = {"name", "type", "language", "split", "columns"}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,79}")
_LANGUAGE = re.compile(r"[a-z]{3}-[A-Z][a-z]{3}")


@dataclass(frozen=True)
class LocalTask:
    """A task read from files.

    Args:
        name: Its name.
        type: A key of :data:`KINDS`.
        language: ISO 639-3 and ISO 15924 codes, "eng-Latn".
        split: Name of the split that is evaluated.
        tables: Rows of each file, in the order of the columns in :data:`KINDS`.
        forms: How each file was read (quotes, cells of several lines), with its name, where there is
            something to say.
    """

    name: str
    type: str
    language: str
    split: str
    tables: tuple[tuple[str, tuple[Row, ...]], ...]
    forms: tuple[str, ...] = field(default=(), compare=False)

    def table(self, name: str) -> tuple[Row, ...]:
        """Rows of one file."""
        return dict(self.tables)[name]

    def described(self) -> str:
        """Return how many rows each file has, how many classes there are, and what is odd about them."""
        parts = [f"{name if name != 'file' else 'rows'}: {len(rows):,}" for name, rows in self.tables]
        columns = KINDS[self.type]
        if self.type in _LABELLED:
            parts.append(f"classes: {len({row[-1] for _, rows in self.tables for row in rows}):,}")
        texts = [
            text
            for name, rows in self.tables
            for row in rows
            for column, text in zip(columns[name], row, strict=True)
            if column not in _NOT_TEXTS
        ]
        targets = [row[1] for row in self.table("file")] if self.type == "bitext" else []
        again = sum(len(rows) - len(set(rows)) for _, rows in self.tables)
        invisible = sum(is_invisible(text) for text in texts if normalise_spaces(text))
        for count, what in (
            (again, "repeated rows"),
            (sum(count for count in Counter(targets).values() if count > 1), "rows that share a sentence2"),
            (sum(not normalise_spaces(text) for text in texts), "empty texts"),
            (invisible, "texts of invisible characters alone"),
        ):
            parts += [f"{what}: {count:,}"] if count else []
        return ", ".join([*parts, *self.forms])

    @cached_property
    def sha256(self) -> str:
        """Fingerprint of type, language, split and every row."""
        digest = hashlib.sha256(json.dumps([self.type, self.language, self.split]).encode())
        for name, rows in self.tables:
            for row in rows:
                digest.update(json.dumps([name, *row]).encode())
        return digest.hexdigest()


@dataclass(frozen=True)
class _File:
    """Rows of a file, the line of each, and how the quotes of a ``.tsv`` file are read."""

    path: Path
    rows: tuple[Row, ...]
    lines: tuple[int, ...]
    form: str


def read_local_suite(path: Path, root: Path | None = None) -> list[LocalTask]:
    """Read the tasks that a TOML file names.

    Args:
        path: The TOML file.
        root: Folder of the data files, by default the TOML file's.

    Raises:
        InputError: no such file, not TOML, or an entry that is not a task.
        DataError: a data file that is missing or damaged (file and line).
    """
    try:
        entries = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError as error:
        raise InputError(
            "no such file", where=f"local:{path}", expected="a TOML file with a [[task]] a task"
        ) from error
    except (OSError, ValueError, RecursionError) as error:  # no UTF-8 and no TOML among them
        raise InputError(f"this is not a TOML file: {error}", where=str(path)) from error
    tasks = entries.get("task")
    if set(entries) != {"task"} or not isinstance(tasks, list) or not tasks:
        raise InputError(
            f"it has {', '.join(entries) or 'nothing'}", where=str(path), expected="[[task]] alone"
        )
    read = [_read_task(entry, root or path.parent, f"{path}, task {n}") for n, entry in enumerate(tasks, 1)]
    for n, task in enumerate(read):
        if task.name in {other.name for other in read[:n]}:
            raise InputError(f"two tasks are called '{task.name}'", where=str(path))
    return read


def read_local_pairs(path: Path) -> tuple[str, tuple[Row, ...], str]:
    """Read scored pairs: the file itself, or the one sts task of a TOML file.

    Args:
        path: A .tsv, .csv or .jsonl file with the columns sentence1, sentence2 and score, or a .toml file.

    Returns:
        Its name, (sentence1, sentence2, score) of each pair, and how the quotes of a ``.tsv`` file are read.

    Raises:
        InputError: a TOML file with another task, or with several.
        DataError: a file that is missing or damaged (file and line), or without two scores.
    """
    if path.exists() and not path.is_file():
        raise DataError("this is no regular file", where=str(path))
    if path.suffix != ".toml":
        file = _read_rows(path, KINDS["sts"]["file"], None)
        for _, what, expected in _CHECKS["sts"](LocalTask("", "sts", "", "", (("file", file.rows),)), {}):
            raise DataError(what, where=str(path), expected=expected)
        return path.stem, _check_distinguishable(file.rows, path), file.form
    tasks = read_local_suite(path)
    kinds = [task.type for task in tasks]
    if kinds != ["sts"]:
        raise InputError(
            f"its tasks are of the types {', '.join(kinds)}", where=str(path), expected="one task of type sts"
        )
    return tasks[0].name, _check_distinguishable(tasks[0].table("file"), path), ", ".join(tasks[0].forms)


def _check_distinguishable(rows: tuple[Row, ...], path: Path) -> tuple[Row, ...]:
    """The rows; raises DataError unless an encoder can give two of them different cosines."""
    pairs = {frozenset(row[:2]) if row[0] != row[1] else frozenset() for row in rows}
    if len(pairs) < 2:
        raise DataError(
            f"all {len(rows)} pairs are {'of equal sentences' if frozenset() in pairs else 'the same'}",
            where=str(path),
            expected="pairs that an encoder can tell apart",
        )
    return rows


def _check_type(entry: Any, where: str) -> str:
    if not isinstance(entry, dict):
        raise InputError(
            f"{entry!r} is not a table", where=where, expected="[[task]] with name, type and files"
        )
    kind = entry.get("type")
    if not isinstance(kind, str) or kind not in KINDS:
        raise not_one_of(f"type = {kind!r}", str(kind), KINDS, where=where)
    return kind


def _read_task(entry: Any, root: Path, where: str) -> LocalTask:
    kind = _check_type(entry, where)
    files = KINDS[kind]
    texts = {"language": "eng-Latn", "split": "test", **{k: v for k, v in entry.items() if k != "columns"}}
    for key in ("name", *files):
        if key not in entry:
            raise InputError(f"{key} is missing", where=where, expected=f"name, type, {', '.join(files)}")
    for key, value in texts.items():
        if key not in _SETTINGS | set(files) or not isinstance(value, str):
            known = ", ".join(sorted(_SETTINGS | set(files)))
            raise InputError(f"{key} = {value!r}", where=where, expected=f"texts for {known}")
    for key, form, what in (
        ("name", _NAME, "letters, digits, _ . -"),
        ("split", _NAME, "letters, digits, _ . -"),
        ("language", _LANGUAGE, "such as eng-Latn (ISO 639-3 and ISO 15924)"),
    ):
        if not form.fullmatch(texts[key]):
            raise InputError(f"{key} = {texts[key]!r}", where=where, expected=what)
    if kind == "classification" and texts["split"] == "train":
        raise InputError("split = 'train'", where=where, expected="the name of another split")
    columns = entry.get("columns")
    if columns is not None and not (len(files) == 1 and are_names(columns)):
        raise InputError(
            f"columns = {columns!r}",
            where=where,
            expected="a list, for a task of one file, of distinct names",
        )
    read = {key: _read_rows(root / texts[key], needed, columns) for key, needed in files.items()}
    _check_names(kind, read)
    tables = tuple((key, file.rows) for key, file in read.items())
    forms = tuple(f"{file.path.name}: {file.form}" for file in read.values() if file.form)
    task = LocalTask(texts["name"], kind, texts["language"], texts["split"], tables, forms)
    for key, what, expected in _CHECKS[kind](task, texts):
        raise DataError(what, where=str(root / texts[key]), expected=expected)
    return task


def _read_rows(path: Path, needed: Row, columns: list[str] | None) -> _File:
    """Read the needed columns of each row; numbers are checked.

    Raises:
        DataError: the file is missing, or a line isn't as it should be.
    """
    lines, rows = list[int](), list[Row]()
    try:
        with open_text(path) as stream:
            table = open_table(path, stream, columns)
            for line, values in table.rows:
                if path.suffix.lower() != ".jsonl" and columns is None and not rows:
                    _check_header(list(values), needed, path)
                rows.append(_parse_row(values, needed, f"{path}:{line}"))
                lines.append(line)
    except UnicodeDecodeError as error:
        raise encoding_error(path) from error
    except (OSError, ValueError) as error:  # a NUL in the name among them
        raise DataError(f"this file can't be read: {error}", where=str(path)) from error
    return _File(path, tuple(rows), tuple(lines), table.form)


def _check_header(names: Sequence[str], needed: Row, path: Path) -> None:
    """Raise DataError with the names that the header has if a needed one is missing."""
    if missing := [name for name in needed if name not in names]:
        shown = (name if name == normalise_spaces(name) else _escape_blanks(repr(name)) for name in names)
        raise DataError(
            f"no column is named {missing[0]}; the header is {', '.join(shown)}",
            where=f"{path}:1",
            expected=f"columns {', '.join(needed)}",
            hint="rename the columns; docs/mteb.md says how to name those of a file without a header",
        )


def _parse_row(values: dict[str, Any], needed: Row, where: str) -> Row:
    """The needed columns as texts, of JSON numbers too; raises DataError."""
    texts = {name: str(value) if type(value) in (int, float) else value for name, value in values.items()}
    missing = [name for name in needed if not isinstance(texts.get(name), str)]
    if missing:
        there = missing[0] in values
        raise DataError(
            f"{missing[0]} is {json.dumps(values[missing[0]])}, neither text nor number"
            if there
            else f"column {missing[0]} is missing; there are {', '.join(map(str, values))}",
            where=where,
            expected=f"columns {', '.join(needed)}",
        )
    for name in needed:
        if name in _NUMBERS:
            _check_number(name, texts[name], where)
        if name in ("label", "id"):
            _check_name(name, texts[name], where)
        if "\0" in texts[name]:
            raise DataError(f"{name} has the control character U+0000", where=where, expected="text")
    return tuple(texts[name] for name in needed)


def _check_names(kind: str, files: dict[str, _File]) -> None:
    """Check the labels of one task, which are a row's last cell, and the ids of each file."""
    if kind in _LABELLED:
        ways = "case, blanks, Unicode form or as a number is written"
        _check_spelling(files.values(), -1, "label", _label_form, ways)
    for key, columns in KINDS[kind].items():
        if "id" in columns:
            ways = "case, blanks or Unicode form"
            _check_spelling([files[key]], columns.index("id"), "id", _id_form, ways)


def _id_form(text: str) -> str:
    return normalise_spaces(unicodedata.normalize("NFC", text).casefold())


def _label_form(text: str) -> str:
    """Return one form for equal numbers, and for texts that are equal as ids are."""
    try:
        return repr(parse_decimal(text) + 0.0)  # -0 is 0
    except ValueError:
        return _id_form(text)


def _check_spelling(
    files: Iterable[_File], column: int, name: str, form: Callable[[str], str], ways: str
) -> None:
    """Raise DataError for two cells of a column that differ but have one form, with both places."""
    first: dict[str, tuple[str, str]] = {}
    for file in files:
        for row, line in zip(file.rows, file.lines, strict=True):
            text, place = row[column], f"{file.path.name}:{line}"
            other, there = first.setdefault(form(text), (text, place))
            if other != text:
                shown, original = _escape_blanks(ascii(text)), _escape_blanks(ascii(other))
                raise DataError(
                    f"{name} {shown} differs from {original} of {there} in {ways} only",
                    where=f"{file.path}:{line}",
                    expected=f"one spelling of each {name}",
                )


def _escape_blanks(quoted: str) -> str:
    r"""Return what repr or ascii made of a text, with escapes for repeated blanks, which errors shorten.

    >>> print(_escape_blanks(repr("a  b")))
    'a\x20\x20b'
    """
    return re.sub(r" (?= )|(?<= ) ", r"\\x20", quoted)


def _check_name(column: str, text: str, where: str) -> None:
    """Raise DataError for a label or an id that is empty or a missing value."""
    if not normalise_spaces(text) or is_invisible(text):
        raise DataError(f"the {column} is empty", where=where, expected=f"a {column} in every row")
    if column == "label" and text.strip().casefold() == "nan":
        raise DataError(
            f"the label is {text!r}, a missing value", where=where, expected="a label in every row"
        )


def _check_number(name: str, text: str, where: str) -> None:
    try:
        value = parse_decimal(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or (name == "relevant" and (value < 0 or value != int(value))):
        expected = "a number" if name == "score" else "0 for no, 1 or a higher grade for yes"
        raise DataError(f"{name} is '{text}'", where=where, expected=expected)


Faults = Iterator[tuple[str, str, str]]
"""The file that is wrong, what is wrong with it, and what was expected."""


def _check_pairs(task: LocalTask, files: dict[str, str]) -> Faults:
    rows = task.table("file")
    if len(rows) < 2:
        yield "file", f"{len(rows)} pair{'s' * (len(rows) != 1)}", "two pairs or more"
    elif task.type == "sts" and len({float(row[2]) for row in rows}) < 2:
        yield "file", "all scores are equal", "two pairs or more, of different scores"


def _check_classes(task: LocalTask, files: dict[str, str]) -> Faults:
    known = {label for _, label in task.table("train")}
    if len(known) < 2:
        yield "train", f"{len(known)} class(es)", "two or more"
    strange = sorted({label for _, label in task.table("test")} - known)
    if strange or not task.table("test"):
        where = _format_row_number(task, "test", 1, strange)
        what = f"label '{strange[0]}' doesn't occur in training{where}" if strange else "no line"
        yield "test", what, f"one of {', '.join(sorted(known)[:20])}"


def _format_row_number(task: LocalTask, table: str, column: int, values: Sequence[str]) -> str:
    """Say which row of a table is the first with the first of some values."""
    row = next((n for n, row in enumerate(task.table(table), 1) if row[column] in values[:1]), 0)
    return f" (row {row})"


def _find_repeated_pair(table: Sequence[Row]) -> str:
    """What is wrong where a query and a document have two grades, "" where none have."""
    seen = Counter(row[:2] for row in table)
    twice = next((number for number, row in enumerate(table, 1) if seen[row[:2]] > 1), 0)
    return f"query and document of row {twice} occur again" if twice else ""


def _check_candidates(task: LocalTask, files: dict[str, str]) -> Faults:
    if twice := _find_repeated_pair(task.table("file")):
        yield "file", twice, "each pair once"
    found: dict[str, set[bool]] = {}
    for query, _, relevant in task.table("file"):
        found.setdefault(query, set()).add(float(relevant) > 0)
    lacking = [number for number, kinds in enumerate(found.values(), 1) if len(kinds) < 2]
    if lacking or not found:
        what = f"query {lacking[0]} has candidates of one kind only" if lacking else "no line"
        yield "file", what, "relevant and other candidates for every query"


def _check_retrieval(task: LocalTask, files: dict[str, str]) -> Faults:
    if twice := _find_repeated_pair(task.table("qrels")):
        yield "qrels", twice, "each pair once"
    ids = {}
    for name in ("corpus", "queries"):
        found = [row[0] for row in task.table(name)]
        ids[name] = set(found)
        if len(ids[name]) < len(found) or not found:
            repeated = [text for text, count in Counter(found).items() if count > 1]
            yield (
                name,
                f"id {_escape_blanks(repr(repeated[0]))} twice" if found else "no line",
                "distinct ids",
            )
    for row, (query, document, _) in enumerate(task.table("qrels"), start=1):
        for kind, value in (("queries", query), ("corpus", document)):
            if value not in ids[kind]:
                file, shown = Path(files[kind]).name, _escape_blanks(repr(value))
                yield "qrels", f"{shown} of row {row} is not an id of {file}", "known ids"
    judged = {query for query, _, relevant in task.table("qrels") if float(relevant) > 0}
    if lacking := sorted(ids["queries"] - judged):
        yield "qrels", f"query '{lacking[0]}' has no relevant document", "one or more each"


def _check_clusters(task: LocalTask, files: dict[str, str]) -> Faults:
    if (found := len({label for _, label in task.table("file")})) < 2:
        yield "file", f"{found} label(s)", "two or more"


def _check_labels(task: LocalTask, files: dict[str, str]) -> Faults:
    if (found := {label for _, _, label in task.table("file")}) != {"0", "1"}:
        yield (
            "file",
            f"labels {', '.join(sorted(found)[:5]) or 'missing'}",
            "0 and 1, for the same",
        )


def _check_summaries(task: LocalTask, files: dict[str, str]) -> Faults:
    texts = {name: {row[0] for row in task.table(name)} for name in files if name in KINDS["summarisation"]}
    for text in sorted(texts["references"] ^ texts["summaries"]):
        lacking = "summaries" if text in texts["references"] else "references"
        yield lacking, f"nothing of the text '{text[:40]}'", "both kinds for every text"
    if len({float(row[2]) for row in task.table("summaries")}) < 2:
        yield "summaries", "all scores are equal", "different scores"


_CHECKS = {
    "sts": _check_pairs,
    "bitext": _check_pairs,
    "classification": _check_classes,
    "reranking": _check_candidates,
    "retrieval": _check_retrieval,
    "clustering": _check_clusters,
    "pair-classification": _check_labels,
    "summarisation": _check_summaries,
}
