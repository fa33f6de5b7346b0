"""Training texts of labelled pairs: sentence and positive, perhaps with a hard negative."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from io import StringIO
from itertools import combinations
from pathlib import Path
from typing import Any

from bench.data import lock_files
from bench.data.corpus import Corpus, make_corpus
from bench.data.delimited import (
    JOINED,
    QUOTED,
    LongCells,
    are_labels,
    check_byte_order_mark,
    check_last_name,
    check_repeated_header,
    check_separator_line,
    count_quoted_cells,
    csv_rows,
    has_csv_quotes,
    number_kind,
    open_table,
    row_names_hint,
    separator_hint,
)
from bench.data.label_origin import read_label_model
from bench.data.tasks import MARK, is_invisible, normalise_spaces
from bench.data.text_lines import LONGEST_MAGIC, check_returns, check_text_kind, encoding_error
from bench.errors import DataError

HEADERS = (
    ("sentence", "sentence1", "sent0", "anchor", "query", "question", "premise", "text", "text1"),
    ("positive", "sentence2", "sent1", "pos", "paraphrase", "answer", "hypothesis", "document", "text2"),
    ("hard_negative", "hard_neg", "negative", "neg"),
)
"""Names of the first, second and third column in a header."""
_COLUMN_OF = {name: column for column, names in enumerate(HEADERS) for name in names}
_RANKED = "list_sent"
"""Column of RankingSentenceGeneration's files: a list of sentences, each rewritten from the one before."""
_SCORES = (
    *("score", "label", "similarity", "similarity_score", "relevant", "gold", "grade"),
    *("gold_label", "class", "category", "relation"),
)
_SCORED = "scored pairs are for --dev local:FILE"
_EXAMPLE = '{"sent0": "...", "sent1": "...", "hard_neg": "..."}'
COLUMNS = ("sentence", "positive", "hard negative")
LONGEST = 10_000  # characters of a sentence: a file with another separator is one long field
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1b\x7f]")  # ASCII only: real texts have those of Latin-1
_EXPECTED = "sentence, positive and perhaps hard negative, separated by "
_SEPARATORS = {".tsv": "tabs", ".csv": "commas, quoted as Python's csv writes them"}
_OBJECTS = ".jsonl"
_DELIMITERS = {".tsv": "\t", ".csv": ","}


def read_pairs(path: Path) -> Corpus:
    """Read a UTF-8 file of pairs or triplets, a row each, white space as in the evaluation data.

    The quotes of a ``.tsv`` file are text, or a CSV writer's. A first row of names from HEADERS
    is left out. Objects of ``.jsonl`` have such names, in any order. The language model that wrote the
    labels is read from a file beside it. Raises DataError, with the line of a damaged row.
    """
    ending = path.suffix.lower()
    if ending not in (*_SEPARATORS, _OBJECTS):
        hint = "write the two or three columns to a .csv, as Python's csv module does"
        raise DataError("pairs are read from .tsv, .csv and .jsonl", where=str(path), hint=hint)
    label_model = read_label_model(path)
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise DataError(f"the pairs can't be read: {error.strerror}", where=str(path)) from error
    source = lock_files.check_pin(path, hashlib.sha256(raw).hexdigest())
    check_text_kind(raw[:LONGEST_MAGIC], path)
    try:
        text = raw.decode("utf-8").removeprefix(MARK)
    except UnicodeDecodeError as error:
        raise encoding_error(path) from error
    rows, form = _read_objects(text, path) if ending == _OBJECTS else _read_table(text, ending, path)
    return replace(make_pairs(path.name, rows), source=source, label_model=label_model, form=form)


def _read_table(text: str, separator: str, path: Path) -> tuple[list[list[str]], str]:
    """Return the rows of a table below its header, and the notes on its form."""
    quoted = separator == ".tsv" and has_csv_quotes(text, path)
    plain = separator == ".tsv" and not quoted
    cells = LongCells()
    lines = text.removesuffix("\n").split("\n") if text else []
    if plain:
        read = [(number, line.rstrip("\r").split("\t")) for number, line in enumerate(lines, start=1)]
        for number, line in enumerate(lines, start=1):
            check_returns(line, f"{path}:{number}")
    else:
        read = list(csv_rows((f"{line}\n" for line in lines), path, cells, _DELIMITERS[separator]))
    while read and "".join(read[-1][1]) == "":
        read.pop()
    rows = list(_check_rows(iter(read), path))
    if not rows:
        raise DataError("there is no pair", where=str(path), expected=_EXPECTED + _SEPARATORS[separator])
    _check_columns(rows, str(path))
    if len(rows) == len(read) > 2:  # an unknown header may hide a column of numbers
        _check_columns(rows[1:], str(path), " but the first")
    form = [count_quoted_cells(text) if plain else QUOTED * quoted, cells.note]
    form += ["its first row is a pair too"] if len(rows) == len(read) else []
    return rows, ", ".join(filter(None, form))


def _read_objects(text: str, path: Path) -> tuple[list[list[str]], str]:
    """Return the rows of JSON objects, a line each, and the note on their names."""
    rows, names, last = list[list[str]](), "", 0
    for number, values in open_table(path, StringIO(text)).rows:
        if number > last + 1:
            where, expected = f"{path}:{last + 1}", "a pair or triplet a line"
            raise DataError("this line is empty", where=where, expected=expected)
        last, where = number, f"{path}:{number}"
        row = _order_fields(values, where)
        _check_width(row, len(rows[0]) if rows else 0, path, where, header=False)
        rows.append([_check_field(text, name, where) for name, text in zip(COLUMNS, row, strict=False)])
        names = names or "fields " + ", ".join(sorted(values, key=lambda name: _COLUMN_OF[_fold_name(name)]))
    if not rows:
        expected = "an object a line, such as " + _EXAMPLE
        raise DataError("there is no pair", where=str(path), expected=expected)
    _check_columns(rows, str(path))
    return rows, names


def _order_fields(values: Mapping[str, Any], where: str) -> list[str]:
    """Return the texts of an object in the order of COLUMNS; raises DataError for others."""
    columns = [_COLUMN_OF.get(_fold_name(name), len(COLUMNS)) for name in values]
    if sorted(columns) not in ([0, 1], [0, 1, 2]):
        what = f"the fields are {', '.join(values)[:80] or 'missing'}"
        hint = None if {*map(_fold_name, values)}.isdisjoint(_SCORES) else _SCORED
        raise DataError(what, where=where, expected=f"a pair or triplet, such as {_EXAMPLE}", hint=hint)
    for name, value in values.items():
        if not isinstance(value, str):
            raise DataError(f"{name} is {str(value)[:40]}, which is not text", where=where, expected="a text")
    return [text for _, text in sorted(zip(columns, values.values(), strict=True))]


def make_pairs(name: str, rows: Sequence[Sequence[str]], world: dict[str, int] | None = None) -> Corpus:
    """Return rows of two or three sentences as a training text, with the fingerprint of all columns.

    >>> pairs = make_pairs("two.tsv", [("A cat sleeps.", "A cat naps."), ("It rains.", "Rain falls.")])
    >>> pairs.sentences, pairs.partners, pairs.negatives
    (('A cat sleeps.', 'It rains.'), ('A cat naps.', 'Rain falls.'), ())
    """
    sentences, partners, *negatives = zip(*rows, strict=True)
    whole = make_corpus(name, ["\t".join(row) for row in rows], world)
    return replace(whole, sentences=sentences, partners=partners, negatives=negatives[0] if negatives else ())


def _check_rows(rows: Iterator[tuple[int, list[str]]], path: Path) -> Iterator[list[str]]:
    """Yield rows of one width below the header; raises DataError with the line."""
    width, names = 0, list[str]()
    for number, row in rows:
        where = f"{path}:{number}"
        if not any(row):
            raise DataError("this line is empty", where=where, expected="a pair or triplet a line")
        check_byte_order_mark(row, where)
        if not width:
            check_separator_line(row, where)
        if names:
            check_repeated_header(row, names, where, JOINED)
        _check_width(row, width, path, where, header=number == 2 and bool(names))
        first, width = not width, len(row)
        if first and _is_header(row, where):
            names = row
            continue
        yield [_check_field(text, name, where) for name, text in zip(COLUMNS, row, strict=False)]


def _check_width(row: Sequence[str], width: int, path: Path, where: str, *, header: bool) -> None:
    if not 2 <= len(row) <= len(COLUMNS):
        what, expected = f"this row has {len(row)} column{'s' * (len(row) != 1)}", _EXPECTED
        hint = separator_hint(row) or (None if row[-1] else "the row ends with a separator")
        if row == [_RANKED]:
            what = "a ranked list of sentences a row, not pairs"
            hint = "write the pairs that you choose from each list (docs/data.md)"
        raise DataError(what, where=where, expected=expected + _SEPARATORS[path.suffix.lower()], hint=hint)
    if width and len(row) != width:
        kinds = {2: "a pair", 3: "a triplet"}
        what = f"this row is {kinds[len(row)]}, and the first is {kinds[width]}"
        hint = row_names_hint(len(row), width) if header else None
        raise DataError(what, where=where, expected="pairs or triplets, not both", hint=hint)


def _is_header(row: Sequence[str], where: str) -> bool:
    """Check for a row of names from HEADERS; raises DataError for other columns or another order."""
    names = [_fold_name(name) for name in row]
    known = {name for column in HEADERS for name in column}.union(_SCORES)
    if sum(name in known for name in names) < 2:
        return False
    check_last_name(row, where)
    if all(name in column for name, column in zip(names, HEADERS, strict=False)):
        return True
    expected = "sentence, positive and perhaps hard_negative, in this order"
    hint = None if set(names).isdisjoint(_SCORES) else _SCORED
    raise DataError(f"the columns are {', '.join(row)}", where=where, expected=expected, hint=hint)


def _fold_name(name: str) -> str:
    return "_".join(name.strip('"').lower().split())


def _check_columns(rows: Sequence[Sequence[str]], where: str, which: str = "") -> None:
    """Raise DataError for a column of numbers or labels, or equal columns or rows; ``which`` names them."""
    columns = dict(zip(COLUMNS, zip(*rows, strict=True), strict=False))
    expected = "a sentence in every column"
    for name, column in columns.items():
        if kind := number_kind(column):
            what = f"the {name} of every row{which} is {kind}, such as {column[0]}"
            hint = "leave out a column of scores, labels or ids; scored pairs are for --dev local:FILE"
            raise DataError(what, where=where, expected=expected, hint=hint)
    for first, second in combinations(columns, 2):
        if columns[first] == columns[second]:
            what = f"the {second} of every row{which} equals its {first}"
            raise DataError(what, where=where, expected="columns that differ")
    if len(rows) > 1 and all(row == rows[0] for row in rows):
        what = f"all {len(rows):,} rows{which} are the same"
        raise DataError(what, where=where, expected="rows that differ")
    for name, column in columns.items():
        if are_labels(column):
            shown = ", ".join(map(repr, sorted(set(column))[:4]))
            what = f"the {name} of every row{which} is one of {len(set(column))} words, such as {shown}"
            raise DataError(what, where=where, expected=expected, hint="leave out a column of labels")


def _check_field(text: str, column: str, where: str) -> str:
    """Return a field with normalised white space; raises DataError for an unfit one."""
    if len(text) > LONGEST:
        what = f"the {column} has {len(text):,} characters"
        raise DataError(what, where=where, expected=f"at most {LONGEST:,}")
    if match := _CONTROL.search(text):
        what = f"the {column} has the control character U+{ord(match[0]):04X}"
        raise DataError(what, where=where, expected="text")
    sentence = normalise_spaces(text)
    if not sentence:
        raise DataError(f"the {column} is empty", where=where)
    if is_invisible(sentence):
        raise DataError(f"the {column} has only invisible characters", where=where, expected="a sentence")
    return sentence
