"""The gate's verdict in words, as a table, as markdown and as JSON; values scaled and rounded only here."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict
from typing import Any

from bench.gate.verdict import BAD, CellVerdict, Drop, Gate, Seeds, Status, cell_name
from bench.reports.formats.render import markdown, markdown_escape
from bench.reports.grid import DASH, SCALE, Grid, interval, no_width, number, signed
from bench.stats.pair_test import PAIRED, WELCH

WORDS = {status: status.upper() if status in BAD else str(status) for status in Status}
WORDS[Status.DIFFERENT] = "NOT COMPARABLE"
_TESTS = {
    PAIRED: "paired t where both sides have the same seeds, as a seed decides first weights, batches and "
    "dropout of both its runs",
    WELCH: "Welch's where they have other seeds",
}


def printable(text: str) -> str:
    """Replace what can't be printed: a record may hold any text, and a log or terminal must not obey it."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


def sentence(gate: Gate) -> str:
    """The verdict in one line."""
    different = gate.having(Status.DIFFERENT)
    if different:
        return "NOT COMPARABLE: " + "; ".join(map(describe, different))
    bad = gate.having(*BAD)
    if bad:
        return f"FAILED, {len(bad)} of {_cells(len(gate.cells))}: " + "; ".join(map(describe, bad))
    counts = Counter(WORDS[cell.status] for cell in gate.cells)
    parts = ", ".join(f"{count} {word}" for word, count in counts.items())
    unclear = "".join(f"; {describe(cell)}" for cell in gate.having(Status.UNCLEAR))
    return f"PASSED, {_cells(len(gate.cells))}: {parts}{unclear}"


def _cells(number_of: int) -> str:
    return f"{number_of} cell{'s' * (number_of != 1)}"


def describe(cell: CellVerdict) -> str:
    """One cell's verdict in words."""
    name, average = cell_name(cell.key), cell.average
    why = "; ".join(cell.reasons)
    if average is None:
        texts = {
            Status.FAILED: "failed",
            Status.MISSING: "is missing",
            Status.DIFFERENT: "isn't the reference's",
        }
        return printable(f"{name} {texts[cell.status]}: {why}")
    if cell.status == Status.EQUAL:
        return printable(f"{name} is equal to the last bit")
    verb = "fell" if average.drop > 0 else "rose"
    text = f"{name} {verb} by {number(abs(average.drop))} points"
    if average.low is not None and average.high is not None and no_width(average.low, average.high):
        text += f" on every seed, {cell.error_term}"
    elif average.low is not None:
        text += f" {interval(average.low, average.high)}, {cell.error_term}"
    if cell.limit is not None and cell.status in (Status.REGRESSION, Status.UNCLEAR):
        text += f", where the reference's own spread explains up to {number(cell.limit)}"
    text += f", from {number(average.reference)} to {number(average.new)}"
    if cell.worst and len(cell.drops) > 2:
        task, drop = cell.worst
        text += f", most on {task}: {SCALE * drop.drop:.2f}"
    return printable(f"{text} ({why})" if why else text)


def grid(gate: Gate) -> Grid:
    """The table: a row a cell; below one that changed visibly a row a task."""
    header = (
        "verdict",
        "method",
        "suite",
        "profile",
        "seeds",
        "reference",
        "new",
        "drop",
        "interval",
        "test",
    )
    rows: list[tuple[str, ...]] = []
    for cell in gate.cells:
        profile, method, suite = map(printable, cell.key)
        seeds = _seeds(cell.seeds)
        if cell.new_seeds != cell.seeds:
            seeds += f" / {_seeds(cell.new_seeds)}"
        numbers = _numbers(cell.average)
        rows.append((WORDS[cell.status], method, suite, profile, seeds, *numbers, cell.test or DASH))
        if cell.status in (Status.REGRESSION, Status.UNCLEAR, Status.IMPROVED) and len(cell.drops) > 2:
            for task, drop in list(cell.drops.items())[:-1]:
                p = "" if drop.adjusted_p is None else f"p {_p_value(drop.adjusted_p)}"
                rows.append(("", "", printable(task), "", p, *_numbers(drop), ""))
    return Grid("Cells against the reference", header, tuple(rows), _notes(gate))


def _p_value(p: float) -> str:
    return "<0.001" if p < 0.0005 else f"{p:.3f}"


def _notes(gate: Gate) -> tuple[str, ...]:
    notes = [
        "Spearman x 100, means over seeds; drop = reference - new. A cell fails if its average drops by more "
        f"than {SCALE * gate.tolerance:g} points and its seeds show it: the drop's interval lies above 0, or "
        "the drop is larger than the reference's own spread over seeds explains."
    ]
    if words := [_TESTS[test] for test in _TESTS if any(cell.test == test for cell in gate.cells)]:
        notes.append(
            f"Intervals: {'; '.join(words)}. With {gate.level:.0%} confidence they hold all at once "
            f"(Bonferroni over what changed, {_cells(gate.tested)}). A single task never fails a cell: its "
            "p, corrected after Holm over all tasks of these cells, shows where the average moved."
        )
    shown = (Status.UNCLEAR, Status.REGRESSION, Status.FAILED, Status.MISSING, Status.DIFFERENT)
    notes += [
        f"{cell_name(cell.key)}: {'; '.join(cell.reasons)}."
        for cell in gate.cells
        if cell.reasons and (cell.status in shown or cell.drops)
    ]
    return tuple(map(printable, notes))


def as_markdown(gate: Gate) -> str:
    """For a step summary or a comment."""
    lines = [f"## bench check\n\n**{markdown_escape(sentence(gate))}**\n", markdown([grid(gate)])]
    if gate.warnings:
        lines.append("\n".join(f"- warning: {markdown_escape(printable(text))}" for text in gate.warnings))
    return "\n".join(lines).rstrip() + "\n"


def as_json(gate: Gate) -> str:
    """Everything, in the metric's unit at full precision, keys sorted; text as ASCII."""
    cells: list[dict[str, Any]] = []
    for cell in gate.cells:
        profile, method, suite = cell.key
        facts = asdict(cell)
        del facts["key"]
        drops = {task: {"drop": drop.drop, **asdict(drop)} for task, drop in cell.drops.items()}
        cells.append({**facts, "profile": profile, "method": method, "suite": suite, "drops": drops})
    data = {
        "sentence": sentence(gate),
        "exit_code": gate.exit_code,
        "tolerance": gate.tolerance,
        "level": gate.level,
        "tested": gate.tested,
        "repeated": gate.repeated,
        "warnings": gate.warnings,
        "cells": cells,
    }
    return json.dumps(data, indent=2, sort_keys=True, allow_nan=False) + "\n"


def _numbers(drop: Drop | None) -> tuple[str, str, str, str]:
    if drop is None:
        return (DASH, DASH, DASH, DASH)
    return (number(drop.reference), number(drop.new), signed(drop.drop), interval(drop.low, drop.high))


def _seeds(seeds: Seeds) -> str:
    """Number of seeds; none for a deterministic method."""
    return DASH if None in seeds or not seeds else str(len(seeds))
