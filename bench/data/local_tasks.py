"""Local suites: tasks of mteb's kinds, from files that a small TOML file names.

::

    [[task]]
    name = "my-sts"
    type = "sts"               # a key of KINDS
    language = "eng-Latn"      # default
    split = "test"             # default
    parallel = "my-pairs"      # tasks of one name have the same items in other languages, row by row
    file = "pairs.tsv"         # next to the TOML file; .tsv, .csv or .jsonl

A file has a header with the columns of :data:`KINDS`, or ``columns = [...]`` names them.
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
"""The files of each type of task, by their name in the TOML file, and their columns."""
_NUMBERS = ("score", "relevant")
_NOT_TEXTS = ("score", "relevant", "label", "id")
_LABELLED = ("classification", "clustering", "pair-classification")
_SETTINGS = {"name", "type", "language", "split", "columns", "parallel"}
_NAME = (re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,79}"), "letters, digits, _ . -")
_LANGUAGE = (re.compile(r"[a-z]{3}-[A-Z][a-z]{3}"), "such as eng-Latn (ISO 639-3 and ISO 15924)")
_FORMS = {"name": _NAME, "split": _NAME, "language": _LANGUAGE, "parallel": _NAME}
_PARALLEL = ("sts", "bitext", "classification", "pair-classification")


@dataclass(frozen=True)
class LocalTask:
    """A task read from files."""

    name: str
    type: str  # a key of KINDS
    language: str  # ISO 639-3 and ISO 15924 codes, "eng-Latn"
    split: str  # the split that is evaluated
    tables: tuple[tuple[str, tuple[Row, ...]], ...]  # rows of each file, in the order of KINDS' columns
    forms: tuple[str, ...] = field(default=(), compare=False)  # notes on quotes and long cells, by file
    parallel: str = ""  # name of the items that the rows translate, "" if they are this task's only

    def table(self, name: str) -> tuple[Row, ...]:
        """Return the rows of one file."""
        return dict(self.tables)[name]

    def described(self) -> str:
        """Return the numbers of rows and classes, and oddities."""
        parts, labels, oddities = [], set(), Counter[str]()
        for name, rows in self.tables:
            parts.append(f"{name.replace('file', 'rows')}: {len(rows):,}")
            labels |= {row[-1] for row in rows}
            oddities["repeated rows"] += len(rows) - len(set(rows))
        if self.type in _LABELLED:
            parts.append(f"classes: {len(labels):,}")
        if self.type == "bitext":
            targets = Counter(row[1] for row in self.table("file"))
            oddities["rows that share a sentence2"] = sum(n for n in targets.values() if n > 1)
        for text in self._texts():
            empty = not normalise_spaces(text)
            oddities["empty texts"] += empty
            oddities["texts of invisible characters alone"] += is_invisible(text) and not empty
        parts += [f"{what}: {count:,}" for what, count in oddities.items() if count]
        return ", ".join([*parts, *self.forms])

    def _texts(self) -> Iterator[str]:
        for name, rows in self.tables:
            places = [at for at, column in enumerate(KINDS[self.type][name]) if column not in _NOT_TEXTS]
            yield from (row[at] for row in rows for at in places)

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
    path: Path
    rows: tuple[Row, ...]
    lines: tuple[int, ...]  # line of each row
    form: str  # notes on quotes and long cells


def read_local_suite(path: Path, root: Path | None = None) -> list[LocalTask]:
    """Read the tasks of a TOML file, with files below ``root``; raises InputError and DataError."""
    try:
        contents = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError as error:
        expected = "a TOML file with a [[task]] a task"
        raise InputError("no such file", where=f"local:{path}", expected=expected) from error
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"this is not a TOML file: {error}", where=str(path)) from error
    entries = contents.get("task")
    if set(contents) != {"task"} or not isinstance(entries, list) or not entries:
        what = f"it has {', '.join(contents) or 'nothing'}"
        raise InputError(what, where=str(path), expected="[[task]] only")
    tasks: dict[str, LocalTask] = {}
    for number, entry in enumerate(entries, 1):
        task = _read_task(entry, root or path.parent, f"{path}, task {number}")
        if tasks.setdefault(task.name, task) is not task:
            raise InputError(f"two tasks are called '{task.name}'", where=str(path))
    _check_parallel(tasks.values(), path)
    return list(tasks.values())


def read_local_pairs(path: Path) -> tuple[str, tuple[Row, ...], str]:
    """Read name, scored pairs and notes of a data file, or of a TOML file with one sts task."""
    if path.exists() and not path.is_file():
        raise DataError("this is not a regular file", where=str(path))
    if path.suffix != ".toml":
        file = _read_rows(path, KINDS["sts"]["file"], None)
        for _, what, expected in _CHECKS["sts"](LocalTask("", "sts", "", "", (("file", file.rows),)), {}):
            raise DataError(what, where=str(path), expected=expected)
        return path.stem, _check_distinguishable(file.rows, path), file.form
    tasks = read_local_suite(path)
    kinds = [task.type for task in tasks]
    if kinds != ["sts"]:
        what = f"its tasks are of the types {', '.join(kinds)}"
        raise InputError(what, where=str(path), expected="one task of type sts")
    return tasks[0].name, _check_distinguishable(tasks[0].table("file"), path), ", ".join(tasks[0].forms)


def _check_distinguishable(rows: tuple[Row, ...], path: Path) -> tuple[Row, ...]:
    """Return the rows; raises DataError if all must get the same cosine."""
    pairs = {frozenset(row[:2]) for row in rows}
    unequal = {pair for pair in pairs if len(pair) > 1}
    if len(unequal) + (len(unequal) < len(pairs)) < 2:
        what = f"all {len(rows)} pairs are {'the same' if unequal else 'of equal sentences'}"
        raise DataError(what, where=str(path), expected="pairs that an encoder can tell apart")
    return rows


def _read_task(entry: Any, root: Path, where: str) -> LocalTask:
    kind, texts, columns = _parse_entry(entry, where)
    files = KINDS[kind]
    if kind == "classification" and texts["split"] == "train":
        raise InputError("split = 'train'", where=where, expected="the name of another split")
    if columns is not None and not (len(files) == 1 and are_names(columns)):
        expected = "a list, for a task of one file, of distinct names"
        raise InputError(f"columns = {columns!r}", where=where, expected=expected)
    read = {key: _read_rows(root / texts[key], needed, columns) for key, needed in files.items()}
    _check_names(kind, read)
    tables = tuple((key, file.rows) for key, file in read.items())
    forms = tuple(f"{file.path.name}: {file.form}" for file in read.values() if file.form)
    parallel = texts.get("parallel", "")
    task = LocalTask(texts["name"], kind, texts["language"], texts["split"], tables, forms, parallel)
    for key, what, expected in _CHECKS[kind](task, texts):
        raise DataError(what, where=str(root / texts[key]), expected=expected)
    return task


def _parse_entry(entry: Any, where: str) -> tuple[str, dict[str, str], Any]:
    """Return type, texts and columns of a [[task]]; raises InputError."""
    if not isinstance(entry, dict):
        expected = "[[task]] with name, type and files"
        raise InputError(f"{entry!r} is not a table", where=where, expected=expected)
    kind = entry.get("type")
    if not isinstance(kind, str) or kind not in KINDS:
        raise not_one_of(f"type = {kind!r}", str(kind), KINDS, where=where)
    files = KINDS[kind]
    texts = {"language": "eng-Latn", "split": "test", **entry}
    columns = texts.pop("columns", None)
    for key in ("name", *files):
        if key not in entry:
            raise InputError(f"{key} is missing", where=where, expected=f"name, type, {', '.join(files)}")
    known = _SETTINGS | set(files)
    for key, value in texts.items():
        if key not in known or not isinstance(value, str):
            expected = f"texts for {', '.join(sorted(known))}"
            raise InputError(f"{key} = {value!r}", where=where, expected=expected)
    if "parallel" in texts and kind not in _PARALLEL:
        raise InputError(f"parallel for type {kind}", where=where, expected=f"types {', '.join(_PARALLEL)}")
    for key, (form, expected) in _FORMS.items():
        if key in texts and not form.fullmatch(texts[key]):
            raise InputError(f"{key} = {texts[key]!r}", where=where, expected=expected)
    return kind, texts, columns


def _check_parallel(tasks: Iterable[LocalTask], path: Path) -> None:
    """Raise DataError for tasks of one ``parallel`` with different types or gold columns."""
    first: dict[str, tuple[LocalTask, list[str]]] = {}
    for task in tasks:
        if not task.parallel:
            continue
        rows = task.tables[-1][1]
        gold = [_label_form(row[-1]) if task.type != "bitext" else "" for row in rows]
        other, expected = first.setdefault(task.parallel, (task, gold))
        if (task.type, gold) != (other.type, expected):
            what = f"'{task.name}' and '{other.name}' are parallel = '{task.parallel}', with other items"
            raise DataError(what, where=str(path), expected="one type, and the same gold in every row")


def _read_rows(path: Path, needed: Row, columns: list[str] | None) -> _File:
    """Read the needed columns of each row, with numbers checked; raises DataError."""
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
    except (OSError, ValueError) as error:  # such as a NUL in the name
        raise DataError(f"this file can't be read: {error}", where=str(path)) from error
    return _File(path, tuple(rows), tuple(lines), table.form)


def _check_header(names: Sequence[str], needed: Row, path: Path) -> None:
    missing = [name for name in needed if name not in names]
    if missing:
        shown = (name if name == normalise_spaces(name) else _escape_blanks(repr(name)) for name in names)
        what = f"no column is named {missing[0]}; the header is {', '.join(shown)}"
        hint = "rename the columns; docs/mteb.md says how to name those of a file without a header"
        raise DataError(what, where=f"{path}:1", expected=f"columns {', '.join(needed)}", hint=hint)


def _parse_row(values: dict[str, Any], needed: Row, where: str) -> Row:
    """Return the needed columns as texts, also of JSON numbers; raises DataError."""
    texts = {name: str(value) if type(value) in (int, float) else value for name, value in values.items()}
    for name in needed:
        if not isinstance(texts.get(name), str):
            what = f"column {name} is missing; there are {', '.join(map(str, values))}"
            if name in values:
                what = f"{name} is {json.dumps(values[name])}, neither text nor number"
            raise DataError(what, where=where, expected=f"columns {', '.join(needed)}")
    for name in needed:
        if name in _NUMBERS:
            _check_number(name, texts[name], where)
        if name in ("label", "id"):
            _check_name(name, texts[name], where)
        if "\0" in texts[name]:
            raise DataError(f"{name} has the control character U+0000", where=where, expected="text")
    return tuple(texts[name] for name in needed)


def _check_names(kind: str, files: dict[str, _File]) -> None:
    """Check the labels of one task, each a row's last cell, and the ids of each file."""
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
    """Return one form for equal numbers, and for equal texts as of ids."""
    try:
        return repr(parse_decimal(text) + 0.0)  # -0 is 0
    except ValueError:
        return _id_form(text)


def _check_spelling(
    files: Iterable[_File], column: int, name: str, form: Callable[[str], str], ways: str
) -> None:
    """Raise DataError for two different cells of a column with the same form, with both places."""
    first: dict[str, tuple[str, str]] = {}
    for file in files:
        for row, line in zip(file.rows, file.lines, strict=True):
            text = row[column]
            other, place = first.setdefault(form(text), (text, f"{file.path.name}:{line}"))
            if other != text:
                shown, original = _escape_blanks(ascii(text)), _escape_blanks(ascii(other))
                what = f"{name} {shown} differs from {original} of {place} in {ways} only"
                raise DataError(what, where=f"{file.path}:{line}", expected=f"one spelling of each {name}")


def _escape_blanks(quoted: str) -> str:
    r"""Escape repeated blanks, which errors shorten, in the output of repr or ascii.

    >>> print(_escape_blanks(repr("a  b")))
    'a\x20\x20b'
    """
    return re.sub(r" (?= )|(?<= ) ", r"\\x20", quoted)


def _check_name(column: str, text: str, where: str) -> None:
    if not normalise_spaces(text) or is_invisible(text):
        raise DataError(f"the {column} is empty", where=where, expected=f"a {column} in every row")
    if column == "label" and text.strip().casefold() == "nan":
        what = f"the label is {text!r}, a missing value"
        raise DataError(what, where=where, expected="a label in every row")


def _check_number(name: str, text: str, where: str) -> None:
    try:
        value = parse_decimal(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or (name == "relevant" and (value < 0 or value != int(value))):
        expected = "a number" if name == "score" else "0 for no, 1 or a higher grade for yes"
        raise DataError(f"{name} is '{text}'", where=where, expected=expected)


Faults = Iterator[tuple[str, str, str]]
"""The wrong file, the fault, and what was expected."""


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
    labels = [label for _, label in task.table("test")]
    strange = sorted(set(labels) - known)
    if strange or not labels:
        what = "it has no row"
        if strange:
            what = f"label '{strange[0]}' doesn't occur in training (row {labels.index(strange[0]) + 1})"
        yield "test", what, f"one of {', '.join(sorted(known)[:20])}"


def _check_repeated_pairs(task: LocalTask, file: str) -> Faults:
    """Yield a query and a document with two grades."""
    counts = Counter(row[:2] for row in task.table(file))
    for number, row in enumerate(task.table(file), 1):
        if counts[row[:2]] > 1:
            yield file, f"query and document of row {number} occur again", "each pair once"


def _check_candidates(task: LocalTask, files: dict[str, str]) -> Faults:
    yield from _check_repeated_pairs(task, "file")
    kinds: dict[str, set[bool]] = {}
    for query, _, relevant in task.table("file"):
        kinds.setdefault(query, set()).add(float(relevant) > 0)
    lacking = [number for number, values in enumerate(kinds.values(), 1) if len(values) < 2]
    if lacking or not kinds:
        what = f"query {lacking[0]} has candidates of one kind only" if lacking else "it has no row"
        yield "file", what, "relevant and other candidates for every query"


def _check_retrieval(task: LocalTask, files: dict[str, str]) -> Faults:
    yield from _check_repeated_pairs(task, "qrels")
    ids = {}
    for name in ("corpus", "queries"):
        counts = Counter(row[0] for row in task.table(name))
        ids[name] = set(counts)
        repeated = [text for text, count in counts.items() if count > 1]
        if repeated or not counts:
            what = f"id {_escape_blanks(repr(repeated[0]))} twice" if repeated else "it has no row"
            yield name, what, "distinct ids"
    for row, (query, document, _) in enumerate(task.table("qrels"), start=1):
        for kind, value in (("queries", query), ("corpus", document)):
            if value not in ids[kind]:
                file, shown = Path(files[kind]).name, _escape_blanks(repr(value))
                yield "qrels", f"{shown} of row {row} is not an id of {file}", "known ids"
    judged = {query for query, _, relevant in task.table("qrels") if float(relevant) > 0}
    if lacking := sorted(ids["queries"] - judged):
        yield "qrels", f"query '{lacking[0]}' has no relevant document", "one or more each"


def _check_labels(task: LocalTask, files: dict[str, str]) -> Faults:
    labels = {row[-1] for row in task.table("file")}
    if task.type == "clustering" and len(labels) < 2:
        yield "file", f"{len(labels)} label(s)", "two or more"
    elif task.type != "clustering" and labels != {"0", "1"}:
        yield "file", f"labels {', '.join(sorted(labels)[:5]) or 'missing'}", "0 and 1, for the same"


def _check_summaries(task: LocalTask, files: dict[str, str]) -> Faults:
    references = {text for text, _ in task.table("references")}
    summarised = {text for text, *_ in task.table("summaries")}
    for text in sorted(references ^ summarised):
        lacking = "summaries" if text in references else "references"
        yield lacking, f"nothing of the text '{text[:40]}'", "both kinds for every text"
    if len({float(row[2]) for row in task.table("summaries")}) < 2:
        yield "summaries", "all scores are equal", "different scores"


_CHECKS = {
    "sts": _check_pairs,
    "bitext": _check_pairs,
    "classification": _check_classes,
    "reranking": _check_candidates,
    "retrieval": _check_retrieval,
    "clustering": _check_labels,
    "pair-classification": _check_labels,
    "summarisation": _check_summaries,
}
