"""Results of verification as text, JSON and JUnit XML."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict
from xml.etree import ElementTree

from bench.errors import printable
from bench.gate.tables import format_xml, replace_invalid_xml
from bench.verify.findings import CHECKS, Verification


def verification_text(verified: Verification) -> str:
    """Return findings by file, unchecked facts, and a summary in the last line."""
    lines = []
    for finding in verified.findings:
        hint = f"; {finding.hint}" if finding.hint else ""
        lines.append(f"{finding.where}: {finding.check}: {finding.what}{hint}")
    lines += [f"{where}: sealed" for where in verified.sealed]
    for fact, count in verified.unchecked.items():
        lines.append(f"not checked: {fact} ({count:,})" if count > 1 else f"not checked: {fact}")
    by_check = Counter(finding.check for finding in verified.findings)
    failed = ", ".join(f"{count} {check}" for check, count in by_check.items())
    summary = f"{len(verified.records):,} records, {verified.scores:,} scores computed again from predictions"
    if verified.drawn:
        summary += f", {len(verified.repeated)} of {verified.drawn} cells repeated"
    lines.append(f"{summary}: {'FAILED, ' + failed if failed else 'nothing wrong'}")
    return "\n".join(map(printable, lines))


def verification_json(verified: Verification) -> str:
    """Return all results, with the meaning of each check."""
    facts = asdict(verified) | {"checks": CHECKS, "unchecked": dict(verified.unchecked)}
    return json.dumps(facts, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def verification_junit(verified: Verification) -> str:
    """Return JUnit XML: a record is a test case, its findings one failure."""
    root = ElementTree.Element("testsuites")
    failures: dict[str, list[str]] = {name: [] for name in verified.records}
    for finding in verified.findings:
        failures.setdefault(finding.where, []).append(f"{finding.check}: {finding.what}")
    counts = {"tests": len(failures), "failures": len(list(filter(None, failures.values()))), "errors": 0}
    attributes = {name: str(count) for name, count in (counts | {"skipped": 0}).items()}
    suite = ElementTree.SubElement(root, "testsuite", {"name": "bench verify"} | attributes)
    for name, texts in failures.items():
        folder, _, file = map(replace_invalid_xml, name.rpartition("/"))
        case = ElementTree.SubElement(suite, "testcase", classname=folder, name=file)
        if texts:
            text = replace_invalid_xml("\n".join(texts))
            ElementTree.SubElement(case, "failure", type="finding", message=text).text = text
    lines = [f"not checked: {what} ({count})" for what, count in verified.unchecked.items()]
    ElementTree.SubElement(suite, "system-out").text = replace_invalid_xml("\n".join(lines))
    return format_xml(root)
