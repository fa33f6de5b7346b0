"""The gate's verdict in words, as a table, markdown, JSON and JUnit XML; values scaled and rounded."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any
from xml.etree import ElementTree

from bench.gate.verdict import BAD, POWER, CellVerdict, Drop, Gate, Question, Status, cell_name
from bench.render.formats import FILE, Screen, fit_columns, markdown_escape, render_markdown, render_text
from bench.render.grid import DASH, SCALE, Grid, format_difference, format_interval, format_score, no_width
from bench.render.short_text import format_answers, format_short_text
from bench.stats.difference_test import PAIRED, WELCH

WORDS = {status: status.upper() if status in BAD else str(status) for status in Status}
WORDS[Status.DIFFERENT] = "NOT COMPARABLE"
ACCEPT = "bench check --update --why TEXT accepts it"
PIN = "install the reference's versions, or accept others with --allow-versions"
FORMAT = 2
"""Of the JSON; 1 had no questions."""
_WITHOUT = {Status.FAILED: "failed", Status.MISSING: "is missing", Status.DIFFERENT: "isn't the reference's"}
_SHOWN = (Status.NEW, Status.UNCLEAR, *BAD, Status.DIFFERENT)
_BLIND = 0.05
"""A cell that detects only larger drops is named: points / 100."""
_WITH_TASKS = (Status.REGRESSION, Status.UNCLEAR, Status.IMPROVED, Status.CHANGED)
_COLUMNS = (
    *(("verdict", "method", "drop"), ("suite",), ("reference", "new"), ("interval",), ("question",)),
    *(("seeds",), ("sees",), ("profile",), ("test",)),
)
"""Columns of a short table, the most needed first."""
_TESTS = {
    PAIRED: "paired t over the seeds that both sides have",
    WELCH: "Welch's where most seeds are other ones",
}


def replace_unprintable(text: str) -> str:
    """Replace unprintable characters: a record may hold any text, and no log or terminal must obey it."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


def format_headline(gate: Gate) -> str:
    """Return the verdict in a few words, without those of the cells: "FAILED, 1 of 4 cells"."""
    cells = f"{len(gate.cells)} cell{'s' * (len(gate.cells) != 1)}"
    different = sum(cell.status is Status.DIFFERENT for cell in gate.cells)
    bad = sum(cell.status in BAD for cell in gate.cells)
    all_bad = gate.having(*BAD)
    if gate.having(Status.DIFFERENT):
        failed = f"; FAILED too, {len(all_bad)}" if all_bad else ""
        return f"NOT COMPARABLE, {different} of {cells}{failed}"
    if all_bad:
        has_average = gate.overall is not None and gate.overall.status in BAD
        if not bad and not gate.wrong_values:
            return f"FAILED, the average alone; none of {cells} by itself"
        wrong = f" and {len(gate.wrong_values)} of {gate.known_values} known values" * bool(gate.wrong_values)
        word = "FAILED"
        if all(cell.status is Status.UNVERIFIED for cell in all_bad):
            word = "UNVERIFIED"
        return f"{word}, {bad} of {cells}{' and the average' * has_average}{wrong}"
    counts = Counter(WORDS[cell.status] for cell in gate.cells)
    parts = ", ".join(f"{count} {word}" for word, count in counts.items())
    return f"PASSED, {cells}" + (f": {parts}" if parts else "")


def select_headline_cells(gate: Gate) -> tuple[CellVerdict, ...]:
    """Return the verdicts that the sentence names: incomparable and failed ones, otherwise unclear ones."""
    return (*gate.having(Status.DIFFERENT), *gate.having(*BAD)) or gate.having(Status.UNCLEAR)


def describe_gate(gate: Gate) -> str:
    """Return the verdict in one line; it counts cells, and names a failed average over them."""
    head, cells = format_headline(gate), select_headline_cells(gate)
    unseen = describe_unseen(gate)
    if not cells:
        return "; ".join(filter(None, (head, unseen)))
    if cells[0].status is Status.DIFFERENT:
        different = "; ".join(map(describe_cell_verdict, gate.having(Status.DIFFERENT)))
        bad = "; ".join(map(describe_cell_verdict, gate.having(*BAD)))
        return f"NOT COMPARABLE: {different}" + (f"; FAILED too: {bad}" if bad else "")
    if cells[0].status is Status.UNCLEAR:
        return "; ".join(filter(None, (head, *map(describe_cell_verdict, cells), unseen)))
    changed = sum(cell.status is Status.CHANGED for cell in cells)
    named = [cell for cell in cells if cell.status is not Status.UNVERIFIED]
    verdicts = [describe_cell_verdict(cell, hint=changed == 1) for cell in named]
    several = ["if the changes are meant, bench check --update --why TEXT accepts them"] * (changed > 1)
    versions = [unseen] if unseen else []
    return f"{head}: {'; '.join((*verdicts, *several, *versions))}"


def describe_unseen(gate: Gate) -> str:
    """Return what the gate can't see with other versions, in one line; "" where it sees everything."""
    cells = [cell for cell in gate.cells if cell.versions]
    if not cells:
        return ""
    versions = "; ".join(dict.fromkeys(line for cell in cells for line in cell.versions))
    names = ", ".join(cell_name(cell.key) for cell in cells)
    text = f"other versions ({versions}), so only averages of trained cells were compared: in {names} "
    text += f"a change that costs less than {_describe_sight(cells)} would not show"
    if any(cell.status is Status.UNVERIFIED for cell in cells):
        text += f"; {PIN}"
    return replace_unprintable(text)


def _describe_sight(cells: Sequence[CellVerdict]) -> str:
    """Return the smallest drops that cells of other versions show, from the best guarded to the worst."""
    seen = sorted({format_score(cell.sees) for cell in cells if cell.sees is not None}, key=float)
    if not seen:
        return "the tolerance"
    return f"{seen[0]} points" if len(seen) == 1 else f"{seen[0]} to {seen[-1]} points"


def describe_cell_verdict(cell: CellVerdict, *, hint: bool = True) -> str:
    """Return one cell's verdict in words, with the command that accepts a change as a hint."""
    name, average, why = cell_name(cell.key), cell.average, "; ".join(cell.reasons)
    if cell.status is Status.CHANGED:
        return replace_unprintable(_describe_change(cell) + (f": {ACCEPT}" if hint else ""))
    if average is None:
        text = f"{name} {_WITHOUT.get(cell.status, f'is {WORDS[cell.status]}')}"
        return replace_unprintable(f"{text}: {why}" if why else text)
    scores = f"from {format_score(average.reference)} to {format_score(average.new)}"
    if cell.status in _WITHOUT:
        return replace_unprintable(f"{name} {_WITHOUT[cell.status]}: {why}, {scores}")
    if cell.status is Status.UNVERIFIED:
        text = f"{name} isn't verified: {'; '.join(cell.versions)}, {scores}"
        return replace_unprintable(f"{text}: {PIN}" if hint else text)
    if cell.status is Status.EQUAL:
        text = f"equal: {why}" if why else "equal to the last bit"
        return replace_unprintable(f"{name} is {text}, {format_score(average.reference)}")
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
    """Name the change, its first stage and its direction; reasons that repeat the stage are left out."""
    text, reasons = f"{cell_name(cell.key)}: numbers changed", cell.reasons
    if cell.stage:
        first = f"first in {cell.stage}"
        text, reasons = f"{text}: {first}", tuple(reason for reason in reasons if first not in reason)
    if (average := cell.average) is not None:
        points = format_score(abs(average.drop))
        if average.drop == 0:
            text += "; the average is as it was"
        elif points == format_score(0.0):
            text += "; the average moved by less than 0.01 points"
        else:
            text += f"; for the {'worse' if average.drop > 0 else 'better'} by {points} points"
        text += f", from {format_score(average.reference)} to {format_score(average.new)}"
    return f"{text} ({'; '.join(reasons)})" if reasons else text


def build_gate_grid(gate: Gate) -> Grid:
    """Return the table: a row a cell, below a visible change a row a task, the average over cells last."""
    header = ["verdict", "method", "suite", "profile", "question", "seeds", "reference", "new", "drop"]
    header += ["interval", "sees", "test"]
    rows = [header]
    for cell in gate.verdicts:
        profile, method, suite = (replace_unprintable(part) or DASH for part in cell.key)
        facts = [WORDS[cell.status], method, suite, profile, str(cell.question), format_seed_counts(cell)]
        rows.append([*facts, *format_drop(cell.average), format_score(cell.sees), cell.test or DASH])
        if cell.status not in _WITH_TASKS or len(cell.drops) <= 2:
            continue
        for task, drop in list(cell.drops.items())[:-1]:
            p = "" if drop.adjusted_p is None else f"p {format_short_p_value(drop.adjusted_p)}"
            rows.append(["", "", replace_unprintable(task), "", "", p, *format_drop(drop), "", ""])
    title, constant = "Cells against the reference", set()
    profiles = {cell.key[0] for cell in gate.cells}
    if len(profiles) == 1:
        title += f", profile {replace_unprintable(next(iter(profiles)))}"
    if len(profiles) < 2:
        constant.add(header.index("profile"))
    if len({cell.test for cell in gate.verdicts} - {None}) < 2:
        constant.add(header.index("test"))  # named in the notes
    columns = [tuple(text for place, text in enumerate(row) if place not in constant) for row in rows]
    return Grid(title, columns[0], tuple(columns[1:]), collect_gate_notes(gate))


def format_short_p_value(p: float) -> str:
    """Format a p with three decimals."""
    return "<0.001" if p < 0.0005 else f"{p:.3f}"


def collect_gate_notes(gate: Gate) -> tuple[str, ...]:
    """Return the notes of the table: the questions, their rules, and the cells' own reasons."""
    notes = ["Scores x 100, means over seeds; drop = reference - new.", *_describe_rules(gate)]
    if any(cell.sees is not None for cell in gate.verdicts):
        chance = f"a chance of {POWER:.0%}"
        notes.append(f"sees: the smallest true drop of the average that would fail with {chance}.")
    blind = [cell for cell in gate.cells if cell.sees is not None and cell.sees > _BLIND]
    if blind:
        named = "; ".join(f"{cell_name(cell.key)}, {format_score(cell.sees)} points" for cell in blind)
        advice = "More seeds help, or a method that spreads less over them"
        if all(cell.question is Question.ITEMS for cell in blind):
            advice = "More items help"
        notes.append(f"Hardly guarded, as smaller drops than this may pass: {named}. {advice}.")
    if unseen := describe_unseen(gate):
        notes.append(f"{unseen[0].upper()}{unseen[1:]}.")
    for cell in gate.verdicts:
        if cell.reasons and (cell.status in _SHOWN or cell.drops):
            notes.append(f"{cell_name(cell.key)}: {'; '.join(cell.reasons)}.")
    return tuple(map(replace_unprintable, notes))


def _describe_rules(gate: Gate) -> list[str]:
    """Return the rules of the questions of the gate, in their order."""
    asked, points = {cell.question for cell in gate.verdicts}, f"{SCALE * gate.tolerance:g} points"
    tests = {cell.test for cell in gate.verdicts}
    rules = []
    if gate.rescored or Question.RESCORE in asked:
        records = f"{gate.rescored} record{'s' * (gate.rescored != 1)} of the reference"
        rules.append(f"rescore: {records} scored again from their predictions: equal to 1e-9.")
        if Question.RESCORE in asked:
            rules.append("A cell of this question fails: today's code scores the same predictions otherwise.")
    if Question.RECOMPUTE in asked:
        rules.append(f"recompute: run again without training. A drop of more than {points} fails.")
    if Question.RETRAIN in asked:
        rules.append(
            f"retrain: trained again, seed by seed. A drop of more than {points} fails if the seeds show it: "
            "its interval lies above 0, or it is larger than the reference's own spread over seeds explains."
        )
    if Question.ITEMS in asked:
        rules.append(
            f"items: an encoder with other weights. A drop of more than {points} fails if its interval over "
            "the items, each in both, lies above 0. Items that share a sentence are drawn together."
        )
    if gate.known_values:
        rules.append(
            f"known values: {gate.known_values} results that were derived without the program, "
            f"{len(gate.wrong_values) or 'none'} of them wrong. A wrong one fails."
        )
    if gate.strict:
        rules.append(
            "strict: numbers that changed where equal ones were due fail too, also for the better. Due are "
            "equal bytes on equal versions and CPU, elsewhere numbers as close as another CPU comes. "
            "Trained cells of other versions fail without --allow-versions."
        )
    if words := [_TESTS[test] for test in _TESTS if test in tests]:
        held = f"all at once with {gate.level:.0%} confidence (Bonferroni over {gate.tested} that changed)"
        rules.append(
            f"Intervals: {'; '.join(words)}; they hold {held}. A task's p is Holm's over all tasks; a single "
            "task never fails a cell."
        )
    return rules


def format_gate_text(gate: Gate, screen: Screen = FILE, *, details: bool = False) -> str:
    """Format for a terminal or a log: the verdict, then the table, then at most three notes or all."""
    grid, verdict = build_gate_grid(gate), describe_gate(gate)
    if details:
        return f"{format_answers([verdict], screen)}\n{render_text([grid], screen)}"
    shown = fit_columns(grid, screen, [names for names in _COLUMNS if set(names) & set(grid.header)])
    columns = len(grid.header) - len(shown.header)
    table = render_text([replace(shown, notes=())], screen)
    return format_short_text([verdict], table, grid.notes, screen, columns=columns)


def format_gate_markdown(gate: Gate) -> str:
    """Format for a step summary or a comment."""
    head = f"## bench check\n\n**{markdown_escape(describe_gate(gate))}**\n"
    warnings = [f"- warning: {markdown_escape(replace_unprintable(text))}" for text in gate.warnings]
    lines = [head, render_markdown([build_gate_grid(gate)]), *warnings]
    return "\n".join(lines).rstrip() + "\n"


def format_gate_json(gate: Gate) -> str:
    """Format everything, in the metric's unit at full precision, keys sorted; text as ASCII."""
    verdicts = []
    for cell in gate.verdicts:
        text = describe_cell_verdict(cell)
        verdicts.append({"cell": cell_name(cell.key), "status": cell.status, "text": text})
    names = ("exit_code", "tolerance", "level", "tested", "repeated", "strict", "rescored", "warnings")
    data = {name: getattr(gate, name) for name in names} | {
        "format": FORMAT,
        "sentence": describe_gate(gate),
        "build": dict(gate.build),
        "cells": list(map(_collect_facts, gate.cells)),
        "known_values": gate.known_values,
        "wrong_values": list(map(_collect_facts, gate.wrong_values)),
        "overall": gate.overall and _collect_facts(gate.overall),
        "verdicts": verdicts,
    }
    return json.dumps(data, indent=2, sort_keys=True, allow_nan=False) + "\n"


def _collect_facts(cell: CellVerdict) -> dict[str, Any]:
    """Return a verdict's fields with its key's parts by name and each drop's difference."""
    facts = asdict(cell)
    facts |= zip(("profile", "method", "suite"), facts.pop("key"), strict=True)
    for task, drop in cell.drops.items():
        facts["drops"][task]["drop"] = drop.drop
    return facts


def format_drop(drop: Drop | None) -> tuple[str, str, str, str]:
    """Format reference, new score, drop and interval."""
    if drop is None:
        return (DASH, DASH, DASH, DASH)
    scores = (format_score(drop.reference), format_score(drop.new))
    return (*scores, format_difference(drop.drop), format_interval(drop.low, drop.high))


def format_seed_counts(cell: CellVerdict) -> str:
    """Count the seeds of both sides, or common ones once; "-" for a deterministic method."""
    counts = [
        DASH if None in seeds or not seeds else str(len(seeds)) for seeds in (cell.seeds, cell.new_seeds)
    ]
    return counts[0] if cell.seeds == cell.new_seeds else " / ".join(counts)


_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters outside XML 1.0."""
_FELL = (Status.REGRESSION, Status.CHANGED, Status.UNVERIFIED)
_BROKEN = (Status.FAILED, Status.MISSING, Status.DIFFERENT)


def format_junit(gate: Gate) -> str:
    """Return the file; a failed, missing or different cell is an error, an unclear one is skipped."""
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
    for cell in gate.wrong_values:
        _add_test_case(suite, cell, "known values", cell.key[1])
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
