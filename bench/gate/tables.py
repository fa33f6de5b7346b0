"""The gate's verdict in words, as a table, as markdown and as JSON; values scaled and rounded only here."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from bench.gate.verdict import BAD, POWER, CellVerdict, Drop, Gate, Question, Seeds, Status, cell_name
from bench.render.formats import markdown_escape, render_markdown
from bench.render.formats import render_text as plain_text
from bench.render.grid import DASH, SCALE, Grid, format_difference, format_interval, format_score, no_width
from bench.stats.pair_test import PAIRED, WELCH

WORDS = {status: status.upper() if status in BAD else str(status) for status in Status}
WORDS[Status.DIFFERENT] = "NOT COMPARABLE"
ACCEPT = "bench check --update --why TEXT accepts it"
FORMAT = 2
"""Of the JSON; 1 was that of bench without questions."""
_WITHOUT = {
    Status.FAILED: "failed",
    Status.MISSING: "is missing",
    Status.DIFFERENT: "isn't the reference's",
}
_SHOWN = (
    Status.NEW,
    Status.UNCLEAR,
    Status.CHANGED,
    Status.REGRESSION,
    Status.FAILED,
    Status.MISSING,
    Status.DIFFERENT,
)
_BLIND = 0.05
"""A cell of which only larger drops are seen is named: points / 100."""
_WITH_TASKS = (Status.REGRESSION, Status.UNCLEAR, Status.IMPROVED, Status.CHANGED)
_TESTS = {
    PAIRED: "paired t over the seeds that both sides have",
    WELCH: "Welch's where most seeds are other ones",
}


def replace_unprintable(text: str) -> str:
    """Replace what can't be printed: a record may hold any text, and a log or terminal must not obey it."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


def format_headline(gate: Gate) -> str:
    """The verdict in a few words, without the cells' own: "FAILED, 1 of 4 cells"."""
    different, bad = ([c for c in gate.cells if c.status in which] for which in ((Status.DIFFERENT,), BAD))
    if gate.having(Status.DIFFERENT):
        failed = f"; FAILED too, {len(gate.having(*BAD))}" if gate.having(*BAD) else ""
        return f"NOT COMPARABLE, {len(different)} of {_count_cells(len(gate.cells))}{failed}"
    if gate.having(*BAD):
        average = gate.overall is not None and gate.overall.status in BAD
        if not bad:
            return f"FAILED, the average alone; none of {_count_cells(len(gate.cells))} by itself"
        return f"FAILED, {len(bad)} of {_count_cells(len(gate.cells))}" + (
            " and the average" if average else ""
        )
    counts = Counter(WORDS[cell.status] for cell in gate.cells)
    parts = ", ".join(f"{count} {word}" for word, count in counts.items())
    return f"PASSED, {_count_cells(len(gate.cells))}" + (f": {parts}" if parts else "")


def select_headline_cells(gate: Gate) -> tuple[CellVerdict, ...]:
    """The verdicts that the sentence names: those that don't compare and failed, else are unclear."""
    return (*gate.having(Status.DIFFERENT), *gate.having(*BAD)) or gate.having(Status.UNCLEAR)


def describe_gate(gate: Gate) -> str:
    """The verdict in one line; it counts cells, and names the average over them where that failed."""
    head, cells = format_headline(gate), select_headline_cells(gate)
    if not cells:
        return head
    if cells[0].status is Status.DIFFERENT:
        different, bad = (
            "; ".join(map(describe_cell_verdict, gate.having(*of))) for of in ((Status.DIFFERENT,), BAD)
        )
        return f"NOT COMPARABLE: {different}" + (f"; FAILED too: {bad}" if bad else "")
    if cells[0].status is Status.UNCLEAR:
        return "; ".join((head, *map(describe_cell_verdict, cells)))
    changed = [cell for cell in cells if cell.status is Status.CHANGED]
    said = "; ".join(_describe_cell(cell, hint=len(changed) == 1) for cell in cells)
    several = "; if the changes are meant, bench check --update --why TEXT accepts them"
    return f"{head}: {said}" + (several if len(changed) > 1 else "")


def _count_cells(number_of: int) -> str:
    return f"{number_of} cell{'s' * (number_of != 1)}"


def describe_cell_verdict(cell: CellVerdict) -> str:
    """One cell's verdict in words."""
    return _describe_cell(cell, hint=True)


def _describe_cell(cell: CellVerdict, *, hint: bool) -> str:
    name, average, why = cell_name(cell.key), cell.average, "; ".join(cell.reasons)
    if cell.status is Status.CHANGED:
        return replace_unprintable(_describe_change(cell) + (f": {ACCEPT}" if hint else ""))
    if average is None:
        said = f"{name} {_WITHOUT.get(cell.status, f'is {WORDS[cell.status]}')}"
        return replace_unprintable(f"{said}: {why}" if why else said)
    scores = f"from {format_score(average.reference)} to {format_score(average.new)}"
    if cell.status in _WITHOUT:
        return replace_unprintable(f"{name} {_WITHOUT[cell.status]}: {why}, {scores}")
    if cell.status is Status.EQUAL:
        said = f"equal: {why}" if why else "equal to the last bit"
        return replace_unprintable(f"{name} is {said}, {format_score(average.reference)}")
    text = f"{name} {'fell' if average.drop > 0 else 'rose'} by {format_score(abs(average.drop))} points"
    if average.low is not None and average.high is not None and no_width(average.low, average.high):
        text += f" on every seed, {cell.error_term}"
    elif average.low is not None:
        text += f" {format_interval(average.low, average.high)}, {cell.error_term}"
    if cell.limit is not None and cell.status in (Status.REGRESSION, Status.UNCLEAR):
        text += f", where the reference's own spread explains up to {format_score(cell.limit)}"
    text += f", {scores}"
    if cell.worst and len(cell.drops) > 2:
        task, drop = cell.worst
        text += f", most on {task}: {SCALE * drop.drop:.2f}"
    return replace_unprintable(f"{text} ({why})" if why else text)


def _describe_change(cell: CellVerdict) -> str:
    """What changed, where first, and for better or worse; a reason that names the stage too is left out."""
    said = f"{cell_name(cell.key)}: numbers changed"
    if cell.stage:
        said += f": first in {cell.stage}"
    if (average := cell.average) is not None:
        by = format_score(abs(average.drop))
        if average.drop == 0:
            said += "; the average is as it was"
        elif by == format_score(0.0):
            said += "; the average moved by less than 0.01 points"
        else:
            said += f"; for the {'worse' if average.drop > 0 else 'better'} by {by} points"
        said += f", from {format_score(average.reference)} to {format_score(average.new)}"
    reasons = [reason for reason in cell.reasons if not cell.stage or f"first in {cell.stage}" not in reason]
    return f"{said} ({'; '.join(reasons)})" if reasons else said


def build_gate_grid(gate: Gate) -> Grid:
    """The table: a row a cell; below one that changed visibly a row a task; the average over cells last."""
    header = ["verdict", "method", "suite", "profile", "question", "seeds", "reference", "new", "drop"]
    header += ["interval", "sees", "test"]
    rows: list[list[str]] = []
    for cell in gate.verdicts:
        profile, method, suite = (replace_unprintable(part) or DASH for part in cell.key)
        facts = [WORDS[cell.status], method, suite, profile, str(cell.question), format_seed_counts(cell)]
        sees = DASH if cell.sees is None else format_score(cell.sees)
        rows.append([*facts, *_format_drop(cell.average), sees, cell.test or DASH])
        for task, drop in _select_tasks(cell):
            p = "" if drop.adjusted_p is None else f"p {format_short_p_value(drop.adjusted_p)}"
            rows.append(["", "", replace_unprintable(task), "", "", p, *_format_drop(drop), "", ""])
    title = "Cells against the reference"
    if len(profiles := {cell.key[0] for cell in gate.cells}) == 1:
        title += f", profile {replace_unprintable(next(iter(profiles)))}"
    once = {"profile": len(profiles) < 2, "test": len({cell.test for cell in gate.verdicts} - {None}) < 2}
    kept = [
        place for place, name in enumerate(header) if not once.get(name)
    ]  # the title and the notes say it
    columns = [tuple(row[place] for place in kept) for row in (header, *rows)]
    return Grid(title, columns[0], tuple(columns[1:]), collect_gate_notes(gate))


def _select_tasks(cell: CellVerdict) -> list[tuple[str, Drop]]:
    """The tasks of a cell that changed visibly and has several."""
    return list(cell.drops.items())[:-1] if cell.status in _WITH_TASKS and len(cell.drops) > 2 else []


def format_short_p_value(p: float) -> str:
    """A p in three decimals."""
    return "<0.001" if p < 0.0005 else f"{p:.3f}"


def collect_gate_notes(gate: Gate) -> tuple[str, ...]:
    """How to read the table: what was asked, by which rules, and the cells' own reasons."""
    said = ["Scores x 100, means over seeds; drop = reference - new.", *_describe_rules(gate)]
    if any(cell.sees is not None for cell in gate.verdicts):
        said.append(
            f"sees: the smallest true drop of the average that would fail with a chance of {POWER:.0%}."
        )
    blind = [cell for cell in gate.cells if cell.sees is not None and cell.sees > _BLIND]
    if blind:
        named = "; ".join(f"{cell_name(cell.key)}, {format_score(cell.sees)} points" for cell in blind)
        by_items = all(cell.question is Question.ITEMS for cell in blind)
        helps = "More items help" if by_items else "More seeds help, or a method that spreads less over them"
        said.append(f"Hardly guarded, as smaller drops than this may pass: {named}. {helps}.")
    said += [
        f"{cell_name(cell.key)}: {'; '.join(cell.reasons)}."
        for cell in gate.verdicts
        if cell.reasons and (cell.status in _SHOWN or cell.drops)
    ]
    return tuple(map(replace_unprintable, said))


def _describe_rules(gate: Gate) -> list[str]:
    """The rules of the questions that occur, in the order in which they are asked."""
    asked, points = {cell.question for cell in gate.verdicts}, f"{SCALE * gate.tolerance:g} points"
    tests = {cell.test for cell in gate.verdicts}
    said = []
    if gate.rescored or Question.RESCORE in asked:
        records = f"{gate.rescored} record{'s' * (gate.rescored != 1)} of the reference"
        said.append(f"rescore: {records} scored again from their predictions: equal to 1e-9.")
        if Question.RESCORE in asked:
            said.append("A cell of this question fails: today's code scores the same predictions otherwise.")
    if Question.RECOMPUTE in asked:
        said.append(f"recompute: run again without training. A drop of more than {points} fails.")
    if Question.RETRAIN in asked:
        said.append(
            f"retrain: trained again, seed by seed. A drop of more than {points} fails if the seeds show it: "
            "its interval lies above 0, or it is larger than the reference's own spread over seeds explains."
        )
    if Question.ITEMS in asked:
        said.append(
            f"items: an encoder with other weights. A drop of more than {points} fails if its interval over "
            "the items, each in both, lies above 0."
        )
    if gate.strict:
        said.append(
            "strict: numbers that changed where equal ones were due fail too, also for the better. Due are "
            "equal bytes on equal versions and CPU, elsewhere numbers as close as another CPU comes."
        )
    if words := [_TESTS[test] for test in _TESTS if test in tests]:
        held = f"all at once with {gate.level:.0%} confidence (Bonferroni over {gate.tested} that changed)"
        said.append(
            f"Intervals: {'; '.join(words)}; they hold {held}. A task's p is Holm's over all tasks; a single "
            "task never fails a cell."
        )
    return said


def format_gate_text(gate: Gate) -> str:
    """For a terminal or a log: the table, then the verdict in one line."""
    return f"{plain_text([build_gate_grid(gate)])}\n{describe_gate(gate)}\n"


def format_gate_markdown(gate: Gate) -> str:
    """For a step summary or a comment."""
    lines = [
        f"## bench check\n\n**{markdown_escape(describe_gate(gate))}**\n",
        render_markdown([build_gate_grid(gate)]),
    ]
    if gate.warnings:
        lines.append(
            "\n".join(f"- warning: {markdown_escape(replace_unprintable(text))}" for text in gate.warnings)
        )
    return "\n".join(lines).rstrip() + "\n"


def format_gate_json(gate: Gate) -> str:
    """Everything, in the metric's unit at full precision, keys sorted; text as ASCII.

    ``verdicts`` has every cell and the average over them in words, ``cells`` and ``overall`` the figures.
    """
    data = {
        "format": FORMAT,
        "sentence": describe_gate(gate),
        "exit_code": gate.exit_code,
        "tolerance": gate.tolerance,
        "level": gate.level,
        "tested": gate.tested,
        "repeated": gate.repeated,
        "strict": gate.strict,
        "rescored": gate.rescored,
        "build": dict(gate.build),
        "warnings": gate.warnings,
        "cells": [_collect_facts(cell) for cell in gate.cells],
        "overall": None if gate.overall is None else _collect_facts(gate.overall),
        "verdicts": [
            {"cell": cell_name(cell.key), "status": cell.status, "text": describe_cell_verdict(cell)}
            for cell in gate.verdicts
        ],
    }
    return json.dumps(data, indent=2, sort_keys=True, allow_nan=False) + "\n"


def _collect_facts(cell: CellVerdict) -> dict[str, Any]:
    """A verdict's fields, its key's parts by name, and each drop itself beside its scores."""
    profile, method, suite = cell.key
    facts = asdict(cell)
    del facts["key"]
    drops = {task: {"drop": drop.drop, **asdict(drop)} for task, drop in cell.drops.items()}
    return {**facts, "profile": profile, "method": method, "suite": suite, "drops": drops}


def _format_drop(drop: Drop | None) -> tuple[str, str, str, str]:
    if drop is None:
        return (DASH, DASH, DASH, DASH)
    return (
        format_score(drop.reference),
        format_score(drop.new),
        format_difference(drop.drop),
        format_interval(drop.low, drop.high),
    )


def format_seed_counts(cell: CellVerdict) -> str:
    """Number of seeds, of both sides where they have others; none for a deterministic method."""
    sides: Sequence[Seeds] = (cell.seeds,) if cell.seeds == cell.new_seeds else (cell.seeds, cell.new_seeds)
    return " / ".join(DASH if None in seeds or not seeds else str(len(seeds)) for seeds in sides)
