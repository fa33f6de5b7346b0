"""What a task holds once it is read, and the fingerprint of that."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

from bench.errors import DataError

_INVISIBLE = re.compile(
    "[ \u00ad\u034f\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufe00-\ufe0f\ufeff]+"
)
MARK = "\N{ZERO WIDTH NO-BREAK SPACE}"
"""The byte order mark that some editors put before a UTF-8 text; it is not part of it."""


@dataclass(frozen=True)
class PairSubset:
    """Sentence pairs with a gold score, in the file's order (a year's data set, or a split).

    Args:
        name: The subset's name.
        first: First sentences.
        second: Second sentences.
        gold: Gold scores, larger is more alike.
        source: File it was read from, relative to the data folder ("" if made by the program).
        last_line: Number of the last line read (0 if made by the program).
    """

    name: str
    first: tuple[str, ...]
    second: tuple[str, ...]
    gold: tuple[float, ...]
    source: str = ""
    last_line: int = 0


@dataclass(frozen=True)
class PairTask:
    """A semantic-similarity task: the subsets that are scored together.

    Args:
        id: Its name.
        subsets: Its parts.
        form: How its file was read, where that isn't as it stands; for the dry run.
    """

    id: str
    subsets: tuple[PairSubset, ...]
    form: str = field(default="", compare=False)

    @property
    def pairs(self) -> int:
        """Number of pairs of all subsets."""
        return sum(len(subset.gold) for subset in self.subsets)

    @property
    def items(self) -> int:
        """Number of scored items (the same name as for labelled tasks)."""
        return self.pairs

    @property
    def counts(self) -> dict[str, int]:
        """Items of every part, for the fingerprint."""
        return {subset.name: len(subset.gold) for subset in self.subsets}

    def all_pairs(self) -> Iterator[tuple[str, str]]:
        """Yield the pairs in the order of the predictions."""
        for subset in self.subsets:
            yield from zip(subset.first, subset.second, strict=True)

    @cached_property
    def sha256(self) -> str:
        """Fingerprint of the parsed pairs: subset, both sentences, gold score, in order."""
        return _hash_lines(
            f"{subset.name}\t{first}\t{second}\t{gold!r}\n"
            for subset in self.subsets
            for first, second, gold in zip(subset.first, subset.second, subset.gold, strict=True)
        )


@dataclass(frozen=True)
class LabelledSplit:
    """Labelled sentences (or pairs: ``second`` is then as long as ``first``, else empty)."""

    name: str
    first: tuple[str, ...]
    second: tuple[str, ...]
    labels: tuple[str, ...]
    source: str = ""
    last_line: int = 0


@dataclass(frozen=True)
class LabelledTask:
    """A classification task: train, dev and test splits, or one split that is folded."""

    id: str
    splits: tuple[LabelledSplit, ...]

    @property
    def items(self) -> int:
        """Number of labelled items of all splits."""
        return sum(len(split.labels) for split in self.splits)

    @property
    def counts(self) -> dict[str, int]:
        """Items of every part, for the fingerprint."""
        return {split.name: len(split.labels) for split in self.splits}

    @cached_property
    def sha256(self) -> str:
        """Fingerprint of the parsed items: split, label, sentence(s), in order."""
        return _hash_lines(
            "\t".join((split.name, label, *sentences)) + "\n"
            for split in self.splits
            for label, sentences in zip(split.labels, _sentence_tuples(split), strict=True)
        )


Task = PairTask | LabelledTask


@dataclass(frozen=True)
class Suite:
    """An ordered list of tasks; the suite's average is the plain mean of their unrounded scores.

    Args:
        name: Name for ``--suite``.
        summary: One line.
        tasks: Task ids, in the tables' order.
        embedded: Made by the program, needs no data folder.
        note: What every record and table of it must say, or "".
        reads: Tasks from whose files its own are made; empty where it has files of its own.
    """

    name: str
    summary: str
    tasks: tuple[str, ...]
    embedded: bool = False
    note: str = ""
    reads: tuple[str, ...] = ()


def suite_average(values: Iterable[float]) -> float:
    """Mean of the tasks' values, unrounded; raises DataError for no value."""
    numbers = list(values)
    if not numbers:
        raise DataError("a suite without a task has no average")
    return sum(numbers) / len(numbers)


def normalise_spaces(sentence: str) -> str:
    """White space as SentEval hands a sentence to an encoder: runs become one blank, none at the ends."""
    return " ".join(sentence.split())


def is_invisible(sentence: str) -> bool:
    """True for a sentence of zero-width and formatting characters alone, such as U+200B."""
    return _INVISIBLE.fullmatch(sentence) is not None


def _sentence_tuples(split: LabelledSplit) -> Iterator[tuple[str, ...]]:
    return zip(split.first, split.second, strict=True) if split.second else ((s,) for s in split.first)


def _hash_lines(lines: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for line in lines:
        digest.update(line.encode("utf-8"))
    return digest.hexdigest()
