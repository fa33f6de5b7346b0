"""No sentence of an evaluation data set travels in a bundle, nor gets into a repository with one."""

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
"""Shorter sentences stand in texts of every kind."""
_WORD = re.compile(r"\w+")


def check_sentences(
    files: Mapping[str, bytes], records: Sequence[RunRecord], data: Path | None, where: str
) -> None:
    """Check that no text file quotes a sentence of the records' suites, of those that are at hand.

    Args:
        files: Contents by name; predictions are numbers and are left out.
        records: Records, which say the suites.
        data: Evaluation data; default BENCH_DATA, then ./data.
        where: For messages.

    Raises:
        DataError: a file that quotes one, or that is no text.
    """
    known = _suite_sentences(records, data)
    for name, content in files.items():
        if name.endswith(".npz"):
            continue
        try:
            text = content.decode("utf-8")
        except UnicodeDecodeError as error:
            raise DataError(f"'{name}' is no UTF-8 text", where=where) from error
        found = list(_WORD.finditer(text))
        words = [word[0].lower() for word in found]
        for first in range(len(words) - LEAST_WORDS + 1):
            for sentence in known.get(tuple(words[first : first + LEAST_WORDS]), ()):
                if words[first : first + len(sentence)] == sentence:
                    line = text.count("\n", 0, found[first].start()) + 1
                    raise DataError(
                        f"'{name}' quotes a test sentence in line {line}",
                        where=where,
                        expected="no sentence of an evaluation data set",
                    )


def _suite_sentences(
    records: Sequence[RunRecord], data: Path | None
) -> dict[tuple[str, ...], list[list[str]]]:
    """Words of the sentences of all suites, by their first words."""
    own = (record for record in records if not is_mteb(record.suite))  # the others have none that are known
    suites = {(r.suite, tuple(sorted((r.world or {}).items()))): r for r in own}
    found: dict[tuple[str, ...], list[list[str]]] = {}
    for record in suites.values():
        try:
            tasks = load_record_tasks(record, data)
        except BenchError:  # not at hand, which verification says
            continue
        for sentence in dict.fromkeys(measure_of(record.suite).sentences(list(tasks.values()))):
            words = [word.lower() for word in _WORD.findall(sentence)]
            if len(words) >= LEAST_WORDS:
                found.setdefault(tuple(words[:LEAST_WORDS]), []).append(words)
    return found
