"""What verification found, as text, JSON and JUnit XML."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict
from xml.etree import ElementTree

from bench.errors import printable
from bench.gate.junit import format_xml, replace_invalid_xml
from bench.verify.findings import CHECKS, Verification


def verification_text(verified: Verification) -> str:
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


def verification_json(verified: Verification) -> str:
    """Return everything, with what each check means."""
    facts = asdict(verified) | {"checks": CHECKS, "unchecked": dict(verified.unchecked)}
    return json.dumps(facts, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def verification_junit(verified: Verification) -> str:
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
        case = ElementTree.SubElement(
            suite, "testcase", classname=replace_invalid_xml(folder), name=replace_invalid_xml(file)
        )
        if name in wrong:
            text = replace_invalid_xml("\n".join(f"{f.check}: {f.what}" for f in verified.of(name)))
            ElementTree.SubElement(case, "failure", type="finding", message=text).text = text
    lines = [f"not checked: {what} ({count})" for what, count in verified.unchecked.items()]
    ElementTree.SubElement(suite, "system-out").text = replace_invalid_xml("\n".join(lines))
    return format_xml(root)
