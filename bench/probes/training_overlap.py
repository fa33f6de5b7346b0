"""Overlap audit: test sentences that occur in a training text, and the scores of the others.

There are three levels; each includes the one before:

- ``exact``: the same string (after SentEval's white-space normalisation);
- ``sentence_key``: the same letters and digits: equal after lower-casing and dropping all but [a-z0-9];
- ``near``: ``sentence_key``, or a run of eight words ([a-z0-9]+, lower-cased) in common.

A pair is touched if one of its sentences is.
"""

from __future__ import annotations

import lzma
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from bench.data.sentence_clusters import cluster_items
from bench.data.tasks import PairTask
from bench.data.text_lines import LONGEST_MAGIC, check_text_kind, number_sentences
from bench.encoder import FloatArray
from bench.errors import DataError
from bench.eval.sts import spearman
from bench.stats.argument_checks import MIN_PAIRS
from bench.stats.clustered_tests import count_effective
from bench.stats.item_statistics import spearman_interval
from bench.stats.item_units import LEAST_EFFECTIVE

LEVELS = ("exact", "key", "near")
RUN = 8  # words
MIN_CLEAN_PAIRS = 50
_LONGEST = 1 << 26  # bytes of a line, unpacked
_NOT_KEY = re.compile(r"[^a-z0-9]+")
_WORD = re.compile(r"[a-z0-9]+")


@dataclass(frozen=True)
class TaskOverlap:
    """Overlap of one task with one training text at one level of LEVELS."""

    task: str
    level: str  # one of LEVELS
    sentences: int  # distinct test sentences, at ``exact`` as strings, otherwise by their letters and digits
    touched_sentences: int  # touched ones among them
    pairs: int  # all pairs
    clean: NDArray[np.bool_]  # bool (pairs,), True for untouched pairs, in the order of the predictions

    @property
    def clean_pairs(self) -> int:
        """Number of untouched pairs."""
        return int(self.clean.sum())


@dataclass(frozen=True)
class CleanScore:
    """Spearman on the clean pairs of a task, with its 95% interval; all missing under 50 pairs.

    The interval takes clusters of pairs that share a sentence; it is missing if they are as good as fewer
    than 10 equal ones.
    """

    task: str
    n: int
    value: float | None
    low: float | None
    high: float | None


def sentence_key(sentence: str) -> str:
    """Return a sentence in lower case with [a-z0-9] only; may be empty."""
    return _NOT_KEY.sub("", sentence.lower())


def word_runs(sentence: str) -> Iterator[str]:
    """Yield every run of eight words, joined by blanks."""
    words = _WORD.findall(sentence.lower())
    for start in range(len(words) - RUN + 1):
        yield " ".join(words[start : start + RUN])


def read_training_lines(path: Path) -> Iterator[str]:
    """Yield the non-empty lines of a UTF-8 text; see :func:`read_training_rows`."""
    yield from (sentence for _, sentence in read_training_rows(path) if sentence)


def read_training_rows(path: Path) -> Iterator[tuple[int, str]]:
    """Yield number and sentence of every line of a UTF-8 text (``.xz`` is unpacked); raises DataError."""
    try:
        with lzma.open(path, "rb") if path.suffix == ".xz" else path.open("rb") as stream:
            check_text_kind(stream.peek(LONGEST_MAGIC), path)
            yield from number_sentences(_read_short_lines(stream, path), str(path))
    except (OSError, lzma.LZMAError, EOFError) as error:
        raise DataError(f"the training text can't be read: {error}", where=str(path)) from error


def _read_short_lines(stream: BinaryIO | lzma.LZMAFile, path: Path) -> Iterator[bytes]:
    count = 0
    while line := stream.readline(_LONGEST):
        count += 1
        if len(line) == _LONGEST:
            raise DataError("a line of more than 64 megabytes", where=f"{path}:{count}")
        yield line


def audit_overlap(training: Iterable[str], tasks: Sequence[PairTask]) -> list[TaskOverlap]:
    """Compare a streamed training text with test sets: an entry for each task and level, in that order."""
    sentences = {sentence for task in tasks for pair in task.all_pairs() for sentence in pair}
    keys = {sentence: sentence_key(sentence) for sentence in sentences}
    wanted_keys = set(keys.values()) - {""}
    by_run: defaultdict[str, set[str]] = defaultdict(set)
    for sentence in sentences:
        for run in word_runs(sentence):
            by_run[run].add(keys[sentence])
    exact, same_key, near = set[str](), set[str](), set[str]()
    for line in training:
        if line in sentences:
            exact.add(line)
        line_key = sentence_key(line)
        if line_key in wanted_keys:
            same_key.add(line_key)
        for run in word_runs(line):
            if run in by_run:
                near |= by_run[run]
    near |= same_key
    touched = {"exact": exact}  # text without letters and digits has no key
    for level, touched_keys in (("key", same_key), ("near", near)):
        touched[level] = exact | {sentence for sentence in sentences if keys[sentence] in touched_keys}
    return [_task_overlap(task, level, touched[level], keys) for task in tasks for level in LEVELS]


def clean_score(task: PairTask, overlap: TaskOverlap, predictions: FloatArray) -> CleanScore:
    """Score the clean pairs only, from a record's (pairs,) similarities."""
    clean, count = overlap.clean, overlap.clean_pairs
    if count < MIN_CLEAN_PAIRS:
        return CleanScore(task.id, count, None, None, None)
    gold = np.concatenate([np.asarray(subset.gold) for subset in task.subsets])
    value = spearman(predictions[clean], gold[clean])
    pairs = [pair for pair, is_clean in zip(task.all_pairs(), clean, strict=True) if is_clean]
    (clusters,) = cluster_items([pairs])
    sizes = np.bincount(clusters)
    if count**2 / int(sizes @ sizes) < LEAST_EFFECTIVE:
        return CleanScore(task.id, count, value, None, None)
    effective = count_effective(predictions[clean], gold[clean], clusters)
    return CleanScore(task.id, count, value, *spearman_interval(value, max(MIN_PAIRS, round(effective))))


def _task_overlap(task: PairTask, level: str, touched: set[str], keys: dict[str, str]) -> TaskOverlap:
    pairs = list(task.all_pairs())
    present = {sentence for pair in pairs for sentence in pair}
    clean = np.array([first not in touched and second not in touched for first, second in pairs], dtype=bool)
    # at "key" and "near" sentences that differ only in punctuation or case count once
    counts = []
    for part in (present, present & touched):
        counts.append(len(part if level == "exact" else {keys[sentence] for sentence in part}))
    return TaskOverlap(task.id, level, counts[0], counts[1], len(pairs), clean)
