"""Findings of verification, and its results as text, JSON and JUnit XML."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from xml.etree import ElementTree

from bench.errors import printable
from bench.gate.verdict_tables import format_xml, replace_invalid_xml

CHECKS = {
    "shape": "readable, and every field of its type",
    "seal": "no byte of the file changed since it was written",
    "unsealed": "it has a seal, and is of the present schema",
    "key": "the key is that of everything that the record says",
    "place": "the record is in its own method's, seed's and suite's folder",
    "method": "the method, its version, options and their values are known, and so is the evaluation; the "
    "row's name says the same of them; a seed stands where one is drawn from; no name "
    "poses as another by letters of another alphabet",
    "timing": "its seconds are possible: none is negative, none beyond what its cores give, and its start is "
    "past, and not before there was a bench",
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
    "result": "rows of one key have one result, whatever they are called, and in all campaigns on equal "
    "versions and CPU; on other hardware the averages agree within 0.006 points",
    "grid": "a sweep's grid is in its own place, and its cells are those that the sweep has",
    "manifest": "the campaign's manifest is whole, and each file of another command that it names is the one "
    "that it sealed; a file with a hash of its own is whole",
    "plan": "the campaign's sealed plan is unchanged, of a possible date, and the one that its records name",
    "stray": "nothing lies in the folder that no record names",
    "rerun": "trained again, the result is the same to the last digit, on other hardware within bounds",
    "shift": "trained again on another CPU with equal versions, a row's averages move on average by no more "
    "than CPUs differ",
}
"""Passed checks, by the name in findings."""
Problem = tuple[str, str, str]
"""Check, fault, remedy."""
MAKE_READABLE = "give yourself the right to read it"
REPORT_BUG = "keep it: it may be whole, and the fault bench's; please report this"


@dataclass(frozen=True)
class RecordFinding:
    """A failed check (of ``CHECKS``) of a file, relative to the verified folder; ``hint`` is the remedy."""

    where: str
    check: str
    what: str
    hint: str = ""


@dataclass
class Verification:
    """Results of a verification, in the order of the paths.

    Args:
        scores: Number of scores computed again from predictions.
        unchecked: Unchecked facts, each with its number of records or scores.
        unscored: Files of finished records without any recomputed score, each with the reason.
        as_recorded: Facts that no check can confirm, such as costs, with their numbers likewise.
        recomputed: Files of records whose ranked scores were all computed again.
        repeatable: Files of records that a rerun on this machine can show.
        unrepeatable: Files of those that it can't, each with the reason.
        repeated: Files of cells whose repetition confirmed them.
        unrepeated: Reasons why the repetition of the other drawn cells shows nothing, by file.
        drawn: Number of cells drawn for repetition.
        plans: By campaign what was planned, what is missing and what is beside the plan, or that none was
            sealed.
    """

    records: list[str] = field(default_factory=list)
    scores: int = 0
    findings: list[RecordFinding] = field(default_factory=list)
    unchecked: Counter[str] = field(default_factory=Counter)
    unscored: dict[str, str] = field(default_factory=dict)
    as_recorded: Counter[str] = field(default_factory=Counter)
    recomputed: list[str] = field(default_factory=list)
    repeatable: list[str] = field(default_factory=list)
    unrepeatable: dict[str, str] = field(default_factory=dict)
    sealed: list[str] = field(default_factory=list)
    repeated: list[str] = field(default_factory=list)
    unrepeated: dict[str, str] = field(default_factory=dict)
    drawn: int = 0
    plans: dict[str, list[str]] = field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        """1 with findings, 3 if repetitions left a drawn cell open, otherwise 0."""
        if self.findings:
            return 1
        return 3 if self.open_cells else 0

    @property
    def open_cells(self) -> int:
        """Number of drawn cells that no repetition confirmed."""
        return self.drawn - len(self.repeated)

    @property
    def verified(self) -> list[str]:
        """Files of records whose ranked scores were computed again, without a finding."""
        failed = {finding.where for finding in self.findings}
        return [where for where in self.recomputed if where not in failed]

    def of(self, record: str) -> list[RecordFinding]:
        """Return the findings on one file."""
        return [finding for finding in self.findings if finding.where == record]

    def add(self, where: str, problems: Iterable[Problem]) -> None:
        """Add findings on one file."""
        self.findings += [RecordFinding(where, *problem) for problem in problems]


def verification_text(verified: Verification, *, here: bool = True) -> str:
    """Return findings by file, unchecked facts, and a summary in the last line.

    ``here`` adds what a rerun on this machine can show.
    """
    lines = []
    for finding in verified.findings:
        hint = f"; {finding.hint}" if finding.hint else ""
        lines.append(f"{finding.where}: {finding.check}: {finding.what}{hint}")
    lines += [f"{where}: sealed" for where in verified.sealed]
    lines += _open_lines(verified)
    lines += _plan_lines(verified)
    lines += [f"not repeatable here: {where}: {why}" for where, why in verified.unrepeated.items()]
    lines.append(f"verified: {len(verified.verified):,} of {len(verified.records):,} records")
    if here:
        lines.append(f"repeatable here: {len(verified.repeatable):,} of {len(verified.records):,} records")
        lines += _unrepeatable_lines(verified)
    by_check = Counter(finding.check for finding in verified.findings)
    failed = ", ".join(f"{count} {check}" for check, count in by_check.items())
    count = len(verified.records)
    summary = f"{count:,} record{'s' * (count != 1)}, "
    summary += f"{verified.scores:,} scores computed again from predictions"
    if verified.drawn:
        summary += f", {len(verified.repeated)} of {verified.drawn} cells repeated"
    outcome = f"FAILED, {failed}" if failed else _describe_success(verified)
    lines.append(f"{summary}: {outcome}")
    return "\n".join(map(printable, lines))


def _plan_lines(verified: Verification) -> list[str]:
    """Return the lines on plans; campaigns of the same line, such as those without a plan, share it."""
    campaigns: dict[str, list[str]] = {}
    for campaign, lines in verified.plans.items():
        for line in lines:
            campaigns.setdefault(line, []).append(campaign)
    return [f"plan of {', '.join(names)}: {line}" for line, names in campaigns.items()]


def _describe_success(verified: Verification) -> str:
    """Return "nothing wrong", for the records whose scores were recomputed alone."""
    opened, nothing = "", "nothing wrong"
    if verified.open_cells:
        opened, nothing = f"{verified.open_cells} cells not repeatable here, ", "nothing found wrong"
    if not verified.unscored:
        return f"{opened}{nothing}"
    by_reason = Counter(verified.unscored.values())
    reasons = ", ".join(f"{reason} ({count:,})" for reason, count in by_reason.items())
    recomputed = len(verified.records) - len(verified.unscored)
    found = f"{nothing} in {recomputed:,} record{'s' * (recomputed != 1)}" if recomputed else "no findings"
    return f"{opened}{found}; not recomputed: {reasons}"


def _open_lines(verified: Verification) -> list[str]:
    lines = _count_lines("not checked", verified.unchecked)
    return lines + _count_lines("as recorded", verified.as_recorded)


def _unrepeatable_lines(verified: Verification) -> list[str]:
    return _count_lines("not repeatable here", Counter(verified.unrepeatable.values()))


def _count_lines(word: str, facts: Mapping[str, int]) -> list[str]:
    lines = []
    for fact, count in facts.items():
        lines.append(f"{word}: {fact} ({count:,})" if count > 1 else f"{word}: {fact}")
    return lines


def verification_json(verified: Verification) -> str:
    """Return all results, with the meaning of each check."""
    facts = asdict(verified) | {"checks": CHECKS, "verified": verified.verified}
    facts |= {"unchecked": dict(verified.unchecked), "as_recorded": dict(verified.as_recorded)}
    return json.dumps(facts, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def verification_junit(verified: Verification) -> str:
    """Return JUnit XML: a record is a test case, its findings one failure."""
    root = ElementTree.Element("testsuites")
    failures: dict[str, list[str]] = {name: [] for name in verified.records}
    for finding in verified.findings:
        failures.setdefault(finding.where, []).append(f"{finding.check}: {finding.what}")
    counts = {"tests": len(failures), "failures": len(list(filter(None, failures.values()))), "errors": 0}
    skipped = {name: reason for name, reason in verified.unscored.items() if not failures.get(name)}
    attributes = {name: str(count) for name, count in (counts | {"skipped": len(skipped)}).items()}
    suite = ElementTree.SubElement(root, "testsuite", {"name": "bench verify"} | attributes)
    for name, texts in failures.items():
        folder, _, file = map(replace_invalid_xml, name.rpartition("/"))
        case = ElementTree.SubElement(suite, "testcase", classname=folder, name=file)
        if texts:
            text = replace_invalid_xml("\n".join(texts))
            ElementTree.SubElement(case, "failure", type="finding", message=text).text = text
        elif name in skipped:
            ElementTree.SubElement(case, "skipped", message=f"not recomputed: {skipped[name]}")
    lines = _open_lines(verified) + _unrepeatable_lines(verified)
    lines += [f"not repeatable here: {where}: {why}" for where, why in verified.unrepeated.items()]
    lines += _plan_lines(verified)
    ElementTree.SubElement(suite, "system-out").text = replace_invalid_xml("\n".join(lines))
    return format_xml(root)
