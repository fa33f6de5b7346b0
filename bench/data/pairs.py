"""A training text of labelled pairs: sentence and positive, or sentence, positive and hard negative."""

from __future__ import annotations

import csv
import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from bench.data import pins
from bench.data.corpus import Corpus, make_corpus
from bench.data.delimited import (
    QUOTED,
    all_numbers,
    are_labels,
    has_csv_quotes,
    other_separator,
    quotes_as_text,
)
from bench.data.lines import not_utf8
from bench.data.tasks import MARK, is_invisible, normalise
from bench.errors import DataError

HEADERS = (
    ("sentence", "sentence1", "sent0", "anchor", "query", "question", "premise", "text", "text1"),
    ("positive", "sentence2", "sent1", "pos", "paraphrase", "answer", "hypothesis", "document", "text2"),
    ("hard_negative", "hard_neg", "negative", "neg"),
)
"""Names of the first, second and third column, in a first row that names them."""
_SCORES = (
    *("score", "label", "similarity", "similarity_score", "relevant", "gold", "grade"),
    *("gold_label", "class", "category", "relation"),
)
"""Names of columns without sentences."""
COLUMNS = ("sentence", "positive", "hard negative")
LONGEST = 10_000
"""Characters of a sentence: a file with another separator is one long field."""
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1b\x7f]")
"""Of ASCII, without white space; those of Latin-1 stand in real texts whose encoding was guessed."""
_EXPECTED = "sentence, positive and perhaps hard negative, separated by "
_SEPARATORS = {".tsv": "tabs", ".csv": "commas, quoted as Python's csv writes them"}
_DELIMITERS = {".tsv": "\t", ".csv": ","}


def read_pairs(path: Path) -> Corpus:
    """Read a UTF-8 file of pairs or triplets, a row each, white space as in the evaluation data.

    Args:
        path: A ``.csv`` file, or a ``.tsv`` file, whose quotes are text unless a CSV writer wrote them. A
            first row of names from HEADERS is left out.

    Raises:
        DataError: another ending, missing, not what its lock file says, without a pair, a column of numbers,
            equal columns or rows, or (with the line) not UTF-8, a header with other columns, a row of another
            number of columns, an empty, invisible or endless field, a control character.
    """
    if path.suffix.lower() not in _SEPARATORS:
        raise DataError(
            "pairs are read from .tsv and .csv",
            where=str(path),
            hint="write the two or three columns to a .csv, as Python's csv module does",
        )
    separator = path.suffix.lower()
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise DataError(f"the pairs can't be read: {error.strerror}", where=str(path)) from error
    source = pins.check(path, hashlib.sha256(raw).hexdigest())
    try:
        text = raw.decode("utf-8").removeprefix(MARK)
    except UnicodeDecodeError as error:
        raise not_utf8(path) from error
    quoted = separator == ".tsv" and has_csv_quotes(text, path)
    plain = separator == ".tsv" and not quoted
    read = list(_tab_rows(text) if plain else _csv_rows(text, path))
    rows = list(_checked(iter(read), path))
    if not rows:
        raise DataError("there is no pair", where=str(path), expected=_EXPECTED + _SEPARATORS[separator])
    _check_columns(rows, str(path))
    form = [QUOTED] if quoted else [quotes_as_text(text)] if plain and '"' in text else []
    form += ["its first row is a pair too"] if len(rows) == len(read) else []
    return replace(make_pairs(path.name, rows), source=source, form=", ".join(filter(None, form)))


def make_pairs(name: str, rows: Sequence[Sequence[str]], world: dict[str, int] | None = None) -> Corpus:
    """Return rows of two or three sentences as a training text, with the fingerprint of all columns.

    >>> pairs = make_pairs("two.tsv", [("A cat sleeps.", "A cat naps."), ("It rains.", "Rain falls.")])
    >>> pairs.sentences, pairs.partners, pairs.negatives
    (('A cat sleeps.', 'It rains.'), ('A cat naps.', 'Rain falls.'), ())
    """
    sentences, partners, *negatives = zip(*rows, strict=True)
    whole = make_corpus(name, ["\t".join(row) for row in rows], world)
    return replace(whole, sentences=sentences, partners=partners, negatives=negatives[0] if negatives else ())


def _tab_rows(text: str) -> Iterator[tuple[int, list[str]]]:
    lines = text.removesuffix("\n").split("\n") if text else []
    yield from ((number, line.removesuffix("\r").split("\t")) for number, line in enumerate(lines, start=1))


def _csv_rows(text: str, path: Path) -> Iterator[tuple[int, list[str]]]:
    """Rows with the number of the line on which each begins; raises DataError where quotes are wrong."""
    lines = (f"{line}\n" for line in text.removesuffix("\n").split("\n"))
    reader = csv.reader(lines, strict=True, delimiter=_DELIMITERS[path.suffix.lower()])
    while True:
        number = reader.line_num + 1
        try:
            row = next(reader, None)
        except csv.Error as error:
            raise DataError(
                f"this row can't be read: {error}",
                where=f"{path}:{number}",
                expected=_EXPECTED + _SEPARATORS[path.suffix.lower()],
            ) from error
        if row is None:
            return
        yield number, row


def _checked(rows: Iterator[tuple[int, list[str]]], path: Path) -> Iterator[list[str]]:
    """Rows of one width, without the header; raises DataError with the line of the first that is none."""
    width = 0
    for number, row in rows:
        where = f"{path}:{number}"
        if not any(row):
            raise DataError("this line is empty", where=where, expected="a pair or triplet a line")
        if not 2 <= len(row) <= len(COLUMNS):
            raise DataError(
                f"this row has {len(row)} column{'s' * (len(row) != 1)}",
                where=where,
                expected=_EXPECTED + _SEPARATORS[path.suffix.lower()],
                hint=other_separator(row),
            )
        if width and len(row) != width:
            kinds = {2: "a pair", 3: "a triplet"}
            raise DataError(
                f"this row is {kinds[len(row)]}, and the first is {kinds[width]}",
                where=where,
                expected="pairs or triplets, not both",
            )
        first, width = not width, len(row)
        if first and _is_header(row, where):
            continue
        yield [_field(text, name, where) for name, text in zip(COLUMNS, row, strict=False)]


def _is_header(row: Sequence[str], where: str) -> bool:
    """True for a row of names from HEADERS; raises DataError for other columns or another order."""
    names = ["_".join(name.lower().split()) for name in row]
    known = {name for column in HEADERS for name in column}.union(_SCORES)
    if sum(name in known for name in names) < 2:
        return False
    if all(name in column for name, column in zip(names, HEADERS, strict=False)):
        return True
    scored = [name for name in names if name in _SCORES]
    raise DataError(
        f"the columns are {', '.join(row)}",
        where=where,
        expected="sentence, positive and perhaps hard_negative, in this order",
        hint="scored pairs are for --dev local:FILE" if scored else None,
    )


def _check_columns(rows: Sequence[Sequence[str]], where: str) -> None:
    """Raise DataError for a column of numbers or labels, equal columns, and rows that are all equal."""
    columns = list(zip(*rows, strict=True))
    for name, column in zip(COLUMNS, columns, strict=False):
        if all_numbers(column):
            raise DataError(
                f"the {name} of every row is a number, such as {column[0]}",
                where=where,
                expected="a sentence in every column",
                hint="leave out a column of scores or labels; scored pairs are for --dev local:FILE",
            )
    for number, column in enumerate(columns[1:], start=1):
        if column == columns[number - 1]:
            raise DataError(
                f"the {COLUMNS[number]} of every row equals its {COLUMNS[number - 1]}",
                where=where,
                expected="columns that differ",
            )
    if len(rows) > 1 and all(row == rows[0] for row in rows):
        raise DataError(f"all {len(rows):,} rows are the same", where=where, expected="rows that differ")
    for name, column in zip(COLUMNS, columns, strict=False):
        if are_labels(column):
            shown = ", ".join(map(repr, sorted(set(column))[:4]))
            raise DataError(
                f"the {name} of every row is one of {len(set(column))} words, such as {shown}",
                where=where,
                expected="a sentence in every column",
                hint="leave out a column of labels",
            )


def _field(text: str, column: str, where: str) -> str:
    """A field with its white space normalised; raises DataError where it can't be a sentence."""
    if len(text) > LONGEST:
        raise DataError(
            f"the {column} has {len(text):,} characters", where=where, expected=f"at most {LONGEST:,}"
        )
    if found := _CONTROL.search(text):
        raise DataError(
            f"the {column} has the control character U+{ord(found[0]):04X}", where=where, expected="text"
        )
    if not (sentence := normalise(text)):
        raise DataError(f"the {column} is empty", where=where)
    if is_invisible(sentence):
        raise DataError(f"the {column} has invisible characters alone", where=where, expected="a sentence")
    return sentence
