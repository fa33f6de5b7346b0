"""Tasks and suites in memory, and the fingerprints of tasks."""

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
"""The byte order mark that some editors put before a UTF-8 text."""


@dataclass(frozen=True)
class PairSubset:
    """Sentence pairs with a gold score, in the file's order (a year's data set, or a split)."""

    name: str
    first: tuple[str, ...]
    second: tuple[str, ...]
    gold: tuple[float, ...]  # larger is more alike
    source: str = ""  # its file, relative to the data folder ("" if made by the program)
    last_line: int = 0  # number of the last line (0 if made by the program)


@dataclass(frozen=True)
class PairTask:
    """A semantic-similarity task: the subsets that are scored together."""

    id: str
    subsets: tuple[PairSubset, ...]
    form: str = field(default="", compare=False)  # notes on an unusual file, for the dry run

    @property
    def pairs(self) -> int:
        """Number of pairs of all subsets."""
        return sum(len(subset.gold) for subset in self.subsets)

    @property
    def items(self) -> int:
        """Number of scored items, the pairs."""
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
            "\t".join((split.name, label, split.first[i], *split.second[i : i + 1])) + "\n"
            for split in self.splits
            for i, label in enumerate(split.labels)
        )


Task = PairTask | LabelledTask


@dataclass(frozen=True)
class Suite:
    """An ordered list of tasks; the suite's average is the plain mean of their unrounded scores."""

    name: str  # for ``--suite``
    summary: str
    tasks: tuple[str, ...]  # in the tables' order
    embedded: bool = False  # made by the program
    note: str = ""  # stands in every record and table of it
    reads: tuple[str, ...] = ()  # tasks of other files from which its own are made


def suite_average(values: Iterable[float]) -> float:
    """Return the unrounded mean of the tasks' values; raises DataError for an empty list."""
    numbers = list(values)
    if not numbers:
        raise DataError("a suite without a task has no average")
    return sum(numbers) / len(numbers)


def normalise_spaces(sentence: str) -> str:
    """Normalise white space as SentEval does: runs become one blank, ends are stripped."""
    return " ".join(sentence.split())


def is_invisible(sentence: str) -> bool:
    """Check for a sentence of only zero-width and formatting characters, such as U+200B."""
    return _INVISIBLE.fullmatch(sentence) is not None


def _hash_lines(lines: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for line in lines:
        digest.update(line.encode("utf-8"))
    return digest.hexdigest()
