"""The gate's verdict as JUnit XML, which CI systems show as tests: a cell is a test case."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from bench.gate.verdict import Gate, Status
from bench.reports.tables.gate import WORDS, describe, sentence

_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 can't hold at all."""
_BROKEN = (Status.FAILED, Status.MISSING, Status.DIFFERENT)


def junit(gate: Gate) -> str:
    """Return the file: a regression is a failure; a failed, missing or other cell an error."""
    root = ElementTree.Element("testsuites")
    suite = ElementTree.SubElement(
        root,
        "testsuite",
        name="bench check",
        tests=str(len(gate.cells)),
        failures=str(len(gate.having(Status.REGRESSION))),
        errors=str(len(gate.having(*_BROKEN))),
        skipped="0",
    )
    for cell in gate.cells:
        profile, method, on = cell.key
        case = ElementTree.SubElement(
            suite, "testcase", classname=valid(f"{profile}.{on}"), name=valid(method)
        )
        text = valid(describe(cell))
        if cell.status == Status.REGRESSION or cell.status in _BROKEN:
            kind = "failure" if cell.status == Status.REGRESSION else "error"
            ElementTree.SubElement(case, kind, type=WORDS[cell.status], message=text).text = text
        else:
            ElementTree.SubElement(case, "system-out").text = text
    lines = [sentence(gate), *(f"warning: {text}" for text in gate.warnings)]
    ElementTree.SubElement(suite, "system-out").text = valid("\n".join(lines))
    return document(root)


def document(root: ElementTree.Element) -> str:
    """Return an element as a file."""
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def valid(text: str) -> str:
    """Return a text with what XML can't hold replaced."""
    return _FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", text)
