"""What verification found, as text, JSON and JUnit XML."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict
from xml.etree import ElementTree

from bench.errors import printable
from bench.gate.junit import document, valid
from bench.verify.findings import CHECKS, Verified


def as_text(verified: Verified) -> str:
    """Return findings by file, what couldn't be checked, and one line that sums up."""
    lines = []
    for finding in verified.findings:
        hint = f"; {finding.hint}" if finding.hint else ""
        lines.append(printable(f"{finding.where}: {finding.check}: {finding.what}{hint}"))
    lines += [printable(f"{where}: sealed") for where in verified.sealed]
    for what, count in verified.unchecked.items():
        lines.append(printable(f"not checked: {what}" + (f" ({count:,})" if count > 1 else "")))
    by_check = Counter(finding.check for finding in verified.findings)
    found = ", ".join(f"{count} {check}" for check, count in by_check.items())
    summary = f"{len(verified.records):,} records, {verified.scores:,} scores computed again from predictions"
    if verified.drawn:
        summary += f", {len(verified.repeated)} of {verified.drawn} cells repeated"
    lines.append(f"{summary}: {'FAILED, ' + found if found else 'nothing wrong'}")
    return "\n".join(lines)


def as_json(verified: Verified) -> str:
    """Return everything, with what each check means."""
    facts = asdict(verified) | {"checks": CHECKS, "unchecked": dict(verified.unchecked)}
    return json.dumps(facts, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def as_junit(verified: Verified) -> str:
    """Return JUnit XML: a record is a test case, its findings one failure."""
    root = ElementTree.Element("testsuites")
    wrong = {finding.where for finding in verified.findings}
    names = dict.fromkeys([*verified.records, *(finding.where for finding in verified.findings)])
    suite = ElementTree.SubElement(
        root, "testsuite", name="bench verify", tests=str(len(names)), failures=str(len(wrong)), errors="0",
        skipped="0",
    )  # fmt: skip
    for name in names:
        folder, _, file = name.rpartition("/")
        case = ElementTree.SubElement(suite, "testcase", classname=valid(folder), name=valid(file))
        if name in wrong:
            text = valid("\n".join(f"{f.check}: {f.what}" for f in verified.of(name)))
            ElementTree.SubElement(case, "failure", type="finding", message=text).text = text
    lines = [f"not checked: {what} ({count})" for what, count in verified.unchecked.items()]
    ElementTree.SubElement(suite, "system-out").text = valid("\n".join(lines))
    return document(root)
