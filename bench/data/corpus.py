"""Training text: one sentence a line, with its fingerprint."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from bench.data import pins
from bench.data.delimited import are_labels, number_kind
from bench.data.text_columns import OPTION, is_table, open_column
from bench.data.text_lines import LONGEST_MAGIC, check_text_kind, number_sentences
from bench.errors import DataError, InputError


@dataclass(frozen=True)
class Corpus:
    """A training text.

    Args:
        name: File name, for records.
        sentences: Sentences, in the file's order.
        sha256: Over the sentences, so that a changed line changes every key built on it.
        world: {"generator", "split", "seed"} if it comes from the mini world.
        source: Where the file is from, see :func:`bench.data.pins.check_pin`; "" if unknown.
        partners: The positive of each sentence, of a file of pairs.
        negatives: The hard negative of each, of a file of triplets.
        form: How the file was read, where it isn't a sentence a line or a plain table; for the dry run.
        empty: How many empty lines or cells were left out.
        first_empty: The place of the first of them, such as "text.txt:3".
    """

    name: str
    sentences: tuple[str, ...]
    sha256: str
    world: dict[str, int] | None = None
    source: str = ""
    partners: tuple[str, ...] = ()
    negatives: tuple[str, ...] = ()
    form: str = field(default="", compare=False)
    empty: int = field(default=0, compare=False)
    first_empty: str = field(default="", compare=False)


def make_corpus(name: str, sentences: Sequence[str], world: dict[str, int] | None = None) -> Corpus:
    """Return a training text with its fingerprint; raises InputError for a name that can't be printed."""
    if not name.isprintable():
        raise InputError(f"the name {name!a} can't be printed", where="training text", hint="rename the file")
    kept, digest = tuple(sentences), hashlib.sha256()
    for number, sentence in enumerate(kept):
        digest.update((f"\n{sentence}" if number else sentence).encode())
    return Corpus(name, kept, digest.hexdigest(), world)


def read_corpus(path: Path, exclude: tuple[int, int] | None = None, column: str | None = None) -> Corpus:
    """Read a UTF-8 text, a sentence a line, or a column of a table; empty lines and cells are left out.

    Args:
        path: The file, or the folder of a saved data set; see :mod:`bench.data.text_columns`.
        exclude: First and last line (from 1) to leave out, of a text of a sentence a line.
        column: Column of a table, see :func:`bench.data.text_columns.open_column`.

    Raises:
        InputError: a column that isn't there or is needed, a library that is missing.
        DataError: missing, not what its lock file says, not UTF-8 or a NUL in it (with the line), a file of
            another kind, without a sentence, several that are all equal, numbers or labels alone.
    """
    with ExitStack() as stack:
        if is_table(path):
            source = "" if path.is_dir() else pins.check_pin(path, _hash_file(path))
            opened = open_column(path, column, stack)
            found = _collect_sentences(path, opened.texts, opened.where)
            return replace(found, source=source, form=opened.form)
        if column is not None:
            raise InputError(
                f"{path.name} has no columns: it is read as a sentence a line",
                where=f"{OPTION} {column}",
                expected="a .jsonl, .csv, .tsv or .parquet file, or a saved data set",
            )
        lines = _HashedLines(path, stack)
        first, last = exclude or (0, 0)
        kept = (b"" if first <= number <= last else line for number, line in enumerate(lines, start=1))
        try:
            found = _collect_sentences(
                path,
                (row for row in number_sentences(kept, str(path)) if not first <= row[0] <= last),
                f"{path}:",
            )
        finally:  # of a file that has changed this is said first, not which line is damaged
            source = pins.check_pin(path, lines.sha256())
        return replace(found, source=source)


def _collect_sentences(path: Path, rows: Iterable[tuple[int, str]], where: str) -> Corpus:
    """Make a text of numbered sentences, some of them empty; ``where`` is what comes before a number."""
    sentences, empty, first_empty = list[str](), 0, ""
    for number, sentence in rows:
        if sentence:
            sentences.append(sentence)
        else:
            empty, first_empty = empty + 1, first_empty or f"{where}{number}"
    if not sentences:
        raise DataError("the training text is empty", where=str(path))
    if len(sentences) > 1 and all(sentence == sentences[0] for sentence in sentences):
        raise DataError(
            f"all {len(sentences):,} sentences are the same: {sentences[0][:40]}",
            where=str(path),
            expected="sentences that differ",
        )
    kind = "one of a few words" if are_labels(sentences) else number_kind(sentences)
    if kind:
        shown = ", ".join(map(repr, sorted(set(sentences))[:4]))
        raise DataError(
            f"every sentence is {kind}, such as {shown}",
            where=str(path),
            expected="sentences",
            hint=f"name the column of sentences with {OPTION}" if is_table(path) else None,
        )
    name = path.name or path.resolve().name  # of the folder "."
    return replace(make_corpus(name, sentences), empty=empty, first_empty=first_empty)


class _HashedLines:
    """The lines of a file, hashed as they are read, so that the file is never in memory as a whole.

    Raises:
        DataError: the file can't be read, or isn't a text.
    """

    def __init__(self, path: Path, stack: ExitStack) -> None:
        self._path, self._digest = path, hashlib.sha256()
        try:
            self._stream = stack.enter_context(path.open("rb"))
            check_text_kind(self._stream.peek(LONGEST_MAGIC), path)
        except OSError as error:
            raise self._unreadable(error) from error

    def __iter__(self) -> Iterator[bytes]:
        try:
            for line in self._stream:
                self._digest.update(line)
                yield line
        except OSError as error:
            raise self._unreadable(error) from error

    def sha256(self) -> str:
        """Hash of the whole file; reads the rest of it."""
        for _ in self:
            pass
        return self._digest.hexdigest()

    def _unreadable(self, error: OSError) -> DataError:
        return DataError(f"the training text can't be read: {error.strerror}", where=str(self._path))


def _hash_file(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"the training text can't be read: {error.strerror}", where=str(path)) from error
