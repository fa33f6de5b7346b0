"""The site's tables of what was measured of the procedures."""

from __future__ import annotations

import re

import evidence
import pytest

from bench.stats.coverage import find_coverage, read_coverage
from tests.support.docs_commands import TEXTS

MARK = re.compile(r"<!-- coverage: (.+?) -->")


def cells(table: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]


def shares(table: str) -> list[float]:
    """The figures of a table."""
    parts = [part for line in cells(table)[2:] for cell in line[4:] for part in cell.split(";")]
    return [float(share) for part in parts if (share := re.sub(r".*: |\*", "", part).strip())]


def test_every_row_is_on_the_page_once() -> None:
    assert set(evidence.NAMES) == {row.method for row in read_coverage()}
    tables = [evidence.table(*found.split("|")) for found in MARK.findall(TEXTS["statistics-coverage.md"])]
    shown = [share for table in tables for share in shares(table)]
    assert sorted(shown) == sorted(float(f"{100 * row.measured:.1f}") for row in read_coverage())
    for found in (found for text in TEXTS.values() for found in MARK.findall(text)):
        assert evidence.table(*found.split("|")).count("\n") > 2


def test_a_line_is_a_procedure_in_a_setting() -> None:
    head, rule, *lines = cells(evidence.table("welch; paired t", " normal ", "further seeds"))
    numbers = ["n = 2", "n = 3", "n = 5", "n = 10"]
    assert head == ["procedure", "scores", "speaks for", "promised", *numbers, "others"]
    assert rule == ["---"] * 3 + ["---:"] * 5 + ["---"]
    assert {line[0] for line in lines} == {"Welch's interval", "paired t interval"}
    assert [line[1].split(", ") for line in lines[:2]] == [["normal"], ["normal", "r = 0"]]
    assert {line[2] for line in lines} == {"further seeds"}
    first = [find_coverage("welch", n, n).measured for n in (2, 3, 5, 10)]
    assert lines[0][3:8] == ["95", *(f"{100 * share:.1f}" for share in first)]
    assert f"10: {100 * find_coverage('welch', 5, 10).measured:.1f}" in lines[0][8]


def test_bold_breaks_a_promise() -> None:
    table = evidence.table("; ".join(evidence.NAMES))
    broken = [row for row in read_coverage() if row.keeps is False]
    assert table.count("**") == 2 * len(broken) > 0
    short = find_coverage("welch", 10, 10, design="collapse")
    assert short.keeps is False
    assert f"| **{100 * short.measured:.1f}** |" in evidence.table("welch", "collapse")


@pytest.mark.parametrize(
    ("given", "kind", "name"),
    [
        (("wald",), "method", "wald"),
        (("welch", "odd; normal"), "design", "odd"),
        (("welch", "", "all"), "target", "all"),
    ],
)
def test_refusals(given: tuple[str, ...], kind: str, name: str) -> None:
    with pytest.raises(ValueError, match=rf"^coverage\.csv has no {kind} {name} "):
        evidence.table(*given)
