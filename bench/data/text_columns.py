"""Sentences from a column of a ``.jsonl``, ``.csv``, ``.tsv`` or Parquet file, or of a saved data set."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any

from bench.data.delimited import ENDINGS, DelimitedTable, open_table
from bench.data.tasks import normalise_spaces
from bench.data.text_lines import encoding_error, open_text
from bench.errors import DataError, InputError, suggest_name

USUAL = ("text", "sentence")
"""Default columns."""
PARQUET = ".parquet"
OPTION = "--text-column"
_SAVED = ("state.json", "dataset_dict.json")
Rows = Iterator[tuple[int, dict[str, Any]]]
Texts = Iterator[tuple[int, str]]
Values = Callable[[str], Iterator[Any]]
"""Reader of a column by its name."""


@dataclass(frozen=True)
class TextColumn:
    """A column that is open for reading."""

    name: str
    where: str  # prefix of a row's number in errors
    texts: Texts  # each row's number and text, white space as in the evaluation data
    table: DelimitedTable | None = None  # of a text file

    @property
    def form(self) -> str:
        """Notes for the dry run, after all texts are read."""
        form = self.table.form if self.table else ""
        return f"column '{self.name}'" + (f", {form}" if form else "")


def is_table(path: Path) -> bool:
    """Check for a file or folder with sentences in a column."""
    return path.suffix.lower() in (*ENDINGS, PARQUET) or any((path / name).is_file() for name in _SAVED)


def open_column(path: Path, column: str | None, stack: ExitStack) -> TextColumn:
    """Open a table and choose a column, by default the only or usual one; raises InputError and DataError."""
    if path.is_dir():
        names, values = _open_dataset(path)
    elif path.suffix.lower() == PARQUET:
        names, values = _open_parquet(path, stack)
    else:
        return _open_text_table(path, column, stack)
    chosen = _choose_column(names, column, path)
    where = f"{path}, row "
    return TextColumn(chosen, where, _check_texts(enumerate(values(chosen), start=1), chosen, where))


def column_rows(path: Path, column: str | None) -> Texts:
    """Yield number and text of every row of a table; see :func:`open_column`."""
    with ExitStack() as stack:
        yield from open_column(path, column, stack).texts


def _open_text_table(path: Path, column: str | None, stack: ExitStack) -> TextColumn:
    try:
        stream = stack.enter_context(open_text(path))
        table = open_table(path, stream, blank_rows=True)
        rows = _read_rows(table.rows, path)
        first = next(rows, None)
    except (OSError, ValueError) as error:
        raise _read_error(path, error) from error
    if first is None:
        raise DataError("the training text is empty", where=str(path), expected="rows below a header")
    chosen = _choose_column(list(first[1]), column, path)
    texts = ((number, values.get(chosen)) for number, values in chain([first], rows))
    return TextColumn(chosen, f"{path}:", _check_texts(texts, chosen, f"{path}:"), table)


def _check_texts(values: Iterable[tuple[int, Any]], column: str, where: str) -> Texts:
    for number, value in values:
        place = f"{where}{number}"
        if not isinstance(value, str):
            what = "missing" if value is None else f"{str(value)[:40]}, which is not text"
            raise DataError(f"{column} is {what}", where=place, expected="a text")
        if "\0" in value:
            raise DataError(f"{column} has the control character U+0000", where=place, expected="text")
        yield number, normalise_spaces(value)


def _choose_column(names: Sequence[str], column: str | None, path: Path) -> str:
    shown = ", ".join(map(repr, names[:20]))
    if column is not None:
        if column not in names:
            what, near = f"{path.name} has no column '{column}'", suggest_name(column, names)
            raise InputError(what, where=f"{OPTION} {column}", expected=f"one of {shown}", hint=near)
        return column
    usual = [name for name in USUAL if name in names]
    if len(usual) == 1:
        return usual[0]
    if usual or len(names) != 1:
        expected = f"{OPTION} NAME for one of them"
        raise InputError(f"the columns are {shown}", where=str(path), expected=expected)
    if len(names[0].split()) != 1:  # the first sentence of a file without a header
        what = f"the first row is {shown}, not the name of a column"
        hint = f"rename a text of a sentence a line to .txt; or name the column with {OPTION}"
        raise InputError(what, where=str(path), expected="a header", hint=hint)
    return names[0]


def _read_rows(rows: Rows, path: Path) -> Rows:
    try:
        yield from rows
    except (OSError, ValueError) as error:
        raise _read_error(path, error) from error


def _open_parquet(path: Path, stack: ExitStack) -> tuple[list[str], Values]:
    """Return the columns of a Parquet file, and their reader."""
    parquet: Any = _import_library("pyarrow.parquet", path)
    arrow: Any = _import_library("pyarrow", path)
    try:
        file = stack.enter_context(parquet.ParquetFile(path))
    except (OSError, arrow.ArrowException) as error:
        raise _read_error(path, error) from error

    def values(column: str) -> Iterator[Any]:
        try:
            for batch in file.iter_batches(columns=[column]):
                yield from batch.column(0).to_pylist()
        except (OSError, arrow.ArrowException) as error:
            raise _read_error(path, error) from error

    return list(file.schema_arrow.names), values


def _open_dataset(path: Path) -> tuple[list[str], Values]:
    """Return the columns of a folder that ``save_to_disk`` of datasets wrote, and their reader."""
    datasets: Any = _import_library("datasets", path)
    try:
        dataset = datasets.load_from_disk(str(path))
    except Exception as error:  # of datasets, pyarrow or json
        raise _read_error(path, error) from error
    if isinstance(dataset, datasets.DatasetDict):
        what = f"this data set has the splits {', '.join(dataset)}"
        raise InputError(what, where=str(path), expected="the folder of one split")

    def values(column: str) -> Iterator[Any]:
        for block in dataset.select_columns([column]).with_format(None).iter(batch_size=1000):
            yield from block[column]

    return list(dataset.column_names), values


def _read_error(path: Path, error: Exception) -> DataError:
    if isinstance(error, UnicodeDecodeError) and path.is_file():
        return encoding_error(path)
    return DataError(f"the training text can't be read: {error}", where=str(path))


def _import_library(module: str, path: Path) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        what = f"{module.partition('.')[0]} is not installed, and this text needs it"
        hint = "pip install 'cse-bench[text]', or give the text as .txt, .jsonl or .csv"
        raise InputError(what, where=str(path), hint=hint) from error
