"""Keep sentences of evaluation data out of bundles, and out of repositories that merge them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.data.mteb_names import is_mteb
from bench.errors import BenchError, DataError
from bench.eval.rescoring import load_record_tasks
from bench.eval.suite_measures import measure_of
from bench.records.record import RunRecord

LEAST_WORDS = 6
"""Shorter sentences occur in all kinds of text."""
_WORD = re.compile(r"\w+")


def check_sentences(
    files: Mapping[str, bytes], records: Sequence[RunRecord], data: Path | None, where: str
) -> None:
    """Refuse files (but .npz) that quote a sentence of the records' suites, as far as their data are here.

    Raises DataError for one, and for text in another encoding than UTF-8.
    """
    known = _suite_sentences(records, data)
    for name, content in files.items():
        if name.endswith(".npz"):
            continue
        try:
            text = content.decode("utf-8")
        except UnicodeDecodeError as error:
            raise DataError(f"'{name}' is no UTF-8 text", where=where) from error
        matches = list(_WORD.finditer(text))
        words = [match[0].lower() for match in matches]
        for first in range(len(words) - LEAST_WORDS + 1):
            for sentence in known.get(tuple(words[first : first + LEAST_WORDS]), ()):
                if words[first : first + len(sentence)] == sentence:
                    line = text.count("\n", 0, matches[first].start()) + 1
                    what, expected = f"'{name}' quotes a test sentence in line {line}", "text without any"
                    raise DataError(what, where=where, expected=expected)


def _suite_sentences(
    records: Sequence[RunRecord], data: Path | None
) -> dict[tuple[str, ...], list[list[str]]]:
    """Words of the sentences of all suites, by their first words."""
    suites: dict[object, RunRecord] = {}
    for record in records:
        if not is_mteb(record.suite):  # whose sentences bench doesn't read
            suites[record.suite, tuple(sorted((record.world or {}).items()))] = record
    sentences: dict[tuple[str, ...], list[list[str]]] = {}
    for record in suites.values():
        try:
            tasks = load_record_tasks(record, data)
        except BenchError:  # verification lists missing data as unchecked
            continue
        for sentence in dict.fromkeys(measure_of(record.suite).sentences(list(tasks.values()))):
            words = [word.lower() for word in _WORD.findall(sentence)]
            if len(words) >= LEAST_WORDS:
                sentences.setdefault(tuple(words[:LEAST_WORDS]), []).append(words)
    return sentences
