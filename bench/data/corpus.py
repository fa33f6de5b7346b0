"""Training texts and their fingerprints."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from bench.data import lock_files
from bench.data.delimited import are_labels, number_kind
from bench.data.text_columns import OPTION, is_table, open_column
from bench.data.text_lines import LONGEST_MAGIC, check_text_kind, number_sentences
from bench.errors import DataError, InputError


@dataclass(frozen=True)
class Corpus:
    """A training text."""

    name: str  # file name, for records
    sentences: tuple[str, ...]
    sha256: str  # of the sentences; part of every key built on it
    world: dict[str, int] | None = None  # {"generator", "split", "seed"} of the mini world
    source: str = ""  # origin of the file, see bench.data.lock_files.check_pin; "" if unknown
    partners: tuple[str, ...] = ()  # the positive of each sentence, of a file of pairs
    negatives: tuple[str, ...] = ()  # the hard negative of each, of a file of triplets
    label_model: str = ""  # language model that wrote the labels of pairs, see bench.data.label_origin
    form: str = field(default="", compare=False)  # notes on an unusual file, for the dry run
    empty: int = field(default=0, compare=False)  # ignored empty lines or cells
    first_empty: str = field(default="", compare=False)  # place of the first, such as "text.txt:3"


def make_corpus(name: str, sentences: Sequence[str], world: dict[str, int] | None = None) -> Corpus:
    """Return a training text with its fingerprint; raises InputError for an unprintable name."""
    if not name.isprintable():
        raise InputError(f"the name {name!a} can't be printed", where="training text", hint="rename the file")
    kept, digest = tuple(sentences), hashlib.sha256()
    for number, sentence in enumerate(kept):
        digest.update((f"\n{sentence}" if number else sentence).encode())
    return Corpus(name, kept, digest.hexdigest(), world)


def read_corpus(path: Path, exclude: tuple[int, int] | None = None, column: str | None = None) -> Corpus:
    """Read a UTF-8 text, a sentence a line, or a column of a table; empty lines and cells are left out.

    ``path`` may be the folder of a saved data set, ``column`` is one of a table: see
    :mod:`bench.data.text_columns`. ``exclude`` holds the first and last line (from 1) to leave out of other
    texts. Raises InputError for an unknown column or a missing library, and DataError for a text that is
    missing, changed, damaged (with the line), empty, or of equal sentences, numbers or labels only.
    """
    with ExitStack() as stack:
        if is_table(path):
            try:
                source = "" if path.is_dir() else lock_files.check_pin(path, lock_files.hash_file(path))
            except OSError as error:
                raise _read_error(path, error) from error
            table = open_column(path, column, stack)
            corpus = _collect_sentences(path, table.texts, table.where)
            return replace(corpus, source=source, form=table.form)
        if column is not None:
            what = f"{path.name} has no columns: it is read as a sentence a line"
            expected = "a .jsonl, .csv, .tsv or .parquet file, or a saved data set"
            raise InputError(what, where=f"{OPTION} {column}", expected=expected)
        lines = _HashedLines(path, stack)
        excluded = range(exclude[0], exclude[1] + 1) if exclude else range(0)
        kept = (line * (number not in excluded) for number, line in enumerate(lines, start=1))
        rows = (row for row in number_sentences(kept, str(path)) if row[0] not in excluded)
        try:
            corpus = _collect_sentences(path, rows, f"{path}:")
        finally:  # a changed file is reported before its damaged lines
            source = lock_files.check_pin(path, lines.sha256())
        return replace(corpus, source=source)


def _collect_sentences(path: Path, rows: Iterable[tuple[int, str]], where: str) -> Corpus:
    """Make a text of numbered sentences, some of them empty; ``where`` is the prefix of a number."""
    sentences, empty, first_empty = list[str](), 0, ""
    for number, sentence in rows:
        if sentence:
            sentences.append(sentence)
        else:
            empty, first_empty = empty + 1, first_empty or f"{where}{number}"
    if not sentences:
        raise DataError("the training text is empty", where=str(path))
    if len(sentences) > 1 and all(sentence == sentences[0] for sentence in sentences):
        what = f"all {len(sentences):,} sentences are the same: {sentences[0][:40]}"
        raise DataError(what, where=str(path), expected="sentences that differ")
    kind = "one of a few words" if are_labels(sentences) else number_kind(sentences)
    if kind:
        shown = ", ".join(map(repr, sorted(set(sentences))[:4]))
        what = f"every sentence is {kind}, such as {shown}"
        hint = f"name the column of sentences with {OPTION}" if is_table(path) else None
        raise DataError(what, where=str(path), expected="sentences", hint=hint)
    name = path.name or path.resolve().name  # of the folder "."
    return replace(make_corpus(name, sentences), empty=empty, first_empty=first_empty)


class _HashedLines:
    """Lines of a file that are hashed as they are read, to save memory; raises DataError."""

    def __init__(self, path: Path, stack: ExitStack) -> None:
        self._path, self._digest = path, hashlib.sha256()
        try:
            self._stream = stack.enter_context(path.open("rb"))
            check_text_kind(self._stream.peek(LONGEST_MAGIC), path)
        except OSError as error:
            raise _read_error(path, error) from error

    def __iter__(self) -> Iterator[bytes]:
        try:
            for line in self._stream:
                self._digest.update(line)
                yield line
        except OSError as error:
            raise _read_error(self._path, error) from error

    def sha256(self) -> str:
        """Read the rest of the file, and return the hash of the whole."""
        for _ in self:
            pass
        return self._digest.hexdigest()


def _read_error(path: Path, error: OSError) -> DataError:
    return DataError(f"the training text can't be read: {error.strerror}", where=str(path))
