"""The gate's verdict as JUnit XML, which CI systems show as tests: a cell is a test case."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from bench.gate.tables import WORDS, describe_cell_verdict, describe_gate
from bench.gate.verdict import CellVerdict, Gate, Status

_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters outside XML 1.0."""
_FELL = (Status.REGRESSION, Status.CHANGED)
_BROKEN = (Status.FAILED, Status.MISSING, Status.DIFFERENT)


def format_junit(gate: Gate) -> str:
    """Return the file.

    A regression and changed numbers are failures; a failed, missing or different cell is an error; an unclear
    one is skipped, as it is no pass. The average over cells is a test case, "average".
    """
    root = ElementTree.Element("testsuites")
    suite = ElementTree.SubElement(
        root,
        "testsuite",
        name="bench check",
        tests=str(len(gate.verdicts)),
        failures=str(len(gate.having(*_FELL))),
        errors=str(len(gate.having(*_BROKEN))),
        skipped=str(len(gate.having(Status.UNCLEAR))),
    )
    for cell in gate.cells:
        profile, method, on = cell.key
        _add_test_case(suite, cell, f"{profile}.{on}", method)
    if gate.overall is not None:
        _add_test_case(suite, gate.overall, "all cells", "average")
    lines = [describe_gate(gate), *(f"warning: {text}" for text in gate.warnings)]
    ElementTree.SubElement(suite, "system-out").text = replace_invalid_xml("\n".join(lines))
    return format_xml(root)


def _add_test_case(suite: ElementTree.Element, cell: CellVerdict, classname: str, name: str) -> None:
    case = ElementTree.SubElement(
        suite, "testcase", classname=replace_invalid_xml(classname), name=replace_invalid_xml(name)
    )
    text = replace_invalid_xml(describe_cell_verdict(cell))
    if cell.status in _FELL or cell.status in _BROKEN:
        kind = "failure" if cell.status in _FELL else "error"
        ElementTree.SubElement(case, kind, type=WORDS[cell.status], message=text).text = text
    elif cell.status is Status.UNCLEAR:
        ElementTree.SubElement(case, "skipped", message=text)
    else:
        ElementTree.SubElement(case, "system-out").text = text


def format_xml(root: ElementTree.Element) -> str:
    """Return an element as a file."""
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def replace_invalid_xml(text: str) -> str:
    """Replace characters outside XML 1.0."""
    return _FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", text)
