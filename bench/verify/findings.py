"""Findings of verification, and notes on unchecked facts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

CHECKS = {
    "shape": "readable, and every field of its type",
    "seal": "no byte of the file changed since it was written",
    "unsealed": "it has a seal, and is of the present schema",
    "key": "the key is that of everything that the record says",
    "place": "the record is in its own method's, seed's and suite's folder",
    "method": "the method, its version, options and their values are known, and so is the evaluation; the "
    "row's name says the same of them; a seed stands where one is drawn from",
    "notes": "it says whether it learned from labels, and what tables must say of it",
    "tasks": "every task of the suite has a score, and as many items as it says",
    "average": "averages are those of the scores they are made of",
    "data": "the data are those that everybody else has, or those at hand",
    "predictions": "the predictions are whole, those the record was written with, and alone in their file",
    "score": "every score is what predictions and gold scores give",
    "weights": "an encoder that is kept next to its record is the one that the record is of",
    "stages": "the keys of the training stages are those of its options, text and seed",
    "training": "each stage chose the best step of its dev curve, and has the steps, sentences and dev "
    "evaluations that its options and text give",
    "copy": "no result of a method stands twice, such as under two seeds",
    "grid": "a sweep's grid is in its own place, and its cells are those that the sweep has",
    "stray": "nothing lies in the folder that no record names",
    "rerun": "trained again, the result is the same to the last digit, on other hardware within bounds",
}
"""Passed checks, by the name in findings."""
Problem = tuple[str, str, str]
"""Check, fault, remedy."""
MAKE_READABLE = "give yourself the right to read it"
REPORT_BUG = "keep it: it may be whole, and the fault bench's; please report this"


@dataclass(frozen=True)
class RecordFinding:
    """A failed check.

    Args:
        where: The file, relative to the verified folder.
        check: One of ``CHECKS``.
        what: The fault.
        hint: The remedy, or "".
    """

    where: str
    check: str
    what: str
    hint: str = ""


@dataclass
class Verification:
    """Results of a verification, in the order of the paths.

    Args:
        records: Verified files.
        scores: Number of scores computed again from predictions.
        findings: Failed checks.
        unchecked: Unchecked facts, each with its number of records or scores.
        sealed: Newly sealed files.
        repeated: Files of repeated cells.
        drawn: Number of cells drawn for repetition.
    """

    records: list[str] = field(default_factory=list)
    scores: int = 0
    findings: list[RecordFinding] = field(default_factory=list)
    unchecked: Counter[str] = field(default_factory=Counter)
    sealed: list[str] = field(default_factory=list)
    repeated: list[str] = field(default_factory=list)
    drawn: int = 0

    @property
    def exit_code(self) -> int:
        """1 with findings, else 0."""
        return int(bool(self.findings))

    def of(self, record: str) -> list[RecordFinding]:
        """Return the findings on one file."""
        return [finding for finding in self.findings if finding.where == record]

    def add(self, where: str, problems: Iterable[Problem]) -> None:
        """Add findings on one file."""
        self.findings += [RecordFinding(where, *problem) for problem in problems]
