"""The short text of a command: its answer, its tables, at most three notes, and a count of the others."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

from bench.errors import printable
from bench.render.formats import FILE, Screen, style_words

MOST_NOTES = 3
SYNTHETIC = "Synthetic data: not a benchmark."
_OF_SYNTHETIC_DATA = re.compile(r"its figures are no benchmark of the methods\.$")
_REQUIRED = (
    "Failed",
    "Unreadable: ",
    "Planned, but missing: ",
    "Planned, but made without the plan",
    "Made under another plan",
    "Not as planned",
    "Beside the plan: ",
    "Not the planned analysis",
    "Not the reference data",
    "As recorded, under no seal",
    "All rows are imported",
    r"\d+ of \d+ runs are imported",
    "Items: left out: ",
    "Scores not recomputed: ",
    "Different code of method ",
    "Labels by a language model",
    r"\S+ has no \S+",
)
"""Beginnings of notes on failures, integrity of records and origin of labels: in every short text."""
_MOST_USEFUL = (
    "Unit of the tests",
    "The test is of this pair alone",
    "Measured on different data revisions",
    "Synthetic data",
    "Evaluated in ",
    "Neither equality nor a claim",
    ".* can't be the baseline",
    "Collapsed seeds",
    "Far from the others: ",
    ".*: no ranking of like with like",
    "Supervised, so not ranked",
    "Checkpoints were chosen on what is evaluated",
    "Scores of the last checkpoint",
)
"""Beginnings of other notes without which a reader is misled, the most needed first."""
_USEFUL = (
    ".* by the tests of all pairs",
    "Hardly guarded",
    "Other versions",
    "Unequal budgets",
    "Different (?!software)",
    "The specifications differ",
    "Other training text",
    "Rough over items",
    "Plan: ",
    "Two of these intervals",
    "Set aside: ",
    "No plan precedes",
)
"""Beginnings of notes that help a reader, the most needed first."""
_WHERE = r"(?:.{1,300}?: )?"  # a campaign, a suite such as mteb:TASK, or a comparison
_LINES = 2  # of a note on a screen, unless it has to be whole
_OF_MERGED, _OF_ONE = 60, 160  # characters of one of many merged kinds, and of one failure
_NAMED = 6  # failures that a note names; it counts the others


def merge_synthetic_notes(notes: Iterable[str]) -> list[str]:
    """Return the distinct notes, with one on synthetic data in place of several.

    >>> merge_synthetic_notes(["It is made up: its figures are no benchmark of the methods."])
    ['Synthetic data: not a benchmark.']
    """
    texts = (SYNTHETIC if _OF_SYNTHETIC_DATA.search(note) else note for note in notes)
    return list(dict.fromkeys(texts))


def choose_notes(
    notes: Iterable[str], caveats: Iterable[str] = (), *, most: int | None = None
) -> tuple[list[str], int]:
    """Return at most three notes, and the number of those that are left out.

    Notes on failures and integrity come first. More than three kinds of them share one line. ``caveats`` are
    notes of the records, such as those of a profile; they follow on the most needed of the others. A failure
    is cut after ``most`` characters.

    >>> choose_notes(["Failed: a seed 1: no luck", "rank: ...", "Failed: a seed 2: no luck"])
    (['Failed: a seed 1: no luck; a seed 2: no luck'], 1)
    """
    distinct = merge_synthetic_notes(notes)
    required, rest = _group_required(distinct, most)
    if len(required) > MOST_NOTES:
        required = [" ".join(_cut_line(line, _OF_MERGED) for line in required)]
    useful = []
    begins = "|".join(map(re.escape, caveats)) or "(?!)"
    for pattern in (*_MOST_USEFUL, f"(?:{begins})$", *_USEFUL):
        useful += [note for note in rest if re.match(_WHERE + pattern, note) and note not in useful]
    chosen = [*required, *useful][:MOST_NOTES]
    return chosen, len(rest) - (len(chosen) - len(required))


def _group_required(notes: Sequence[str], most: int | None) -> tuple[list[str], list[str]]:
    """Return a line for each kind of required note, and the other notes."""
    kinds: dict[str, list[str]] = {}
    rest = []
    for note in notes:
        begin = next((found[0] for kind in _REQUIRED if (found := re.match(_WHERE + kind, note))), None)
        if begin is None:
            rest.append(note)
        else:
            kinds.setdefault(begin, []).append(note)
    lines = []
    for begin, (first, *others) in kinds.items():
        more = [note.removeprefix(begin).removeprefix(": ") for note in others[: _NAMED - 1]]
        count = len(others) - len(more)
        cut = [note if most is None else _cut_line(note, most) for note in (first, *more)]
        lines.append("; ".join([*cut, *[f"and {count} more"] * bool(count)]))
    return lines, rest


def _cut_line(line: str, most: int) -> str:
    return line if len(line) <= most else f"{line[: most - 4]} ..."


def is_required(note: str) -> bool:
    """Return True for a note on a failure, on the integrity of records or on the origin of labels."""
    return any(re.match(_WHERE + kind, note) for kind in _REQUIRED)


def format_short_text(
    answers: Sequence[str],
    tables: str,
    notes: Iterable[str],
    screen: Screen = FILE,
    *,
    caveats: Iterable[str] = (),
    columns: int = 0,
    further: int = 0,
) -> str:
    """Return answers, tables, at most three notes, and a count of what ``--details`` adds.

    Where the text is higher than the screen, the answers are repeated last, in two lines each at most.

    Args:
        caveats: Notes of the records.
        columns: Number of columns that the tables left out.
        further: Number of further tables.
    """
    chosen, others = choose_notes(notes, caveats, most=None if screen.width is None else _OF_ONE)
    counts = {"note": others, "column": columns, "table": further}
    left_out = [f"{count} more {what}{'s' * (count > 1)}" for what, count in counts.items() if count]
    below = []
    for note in chosen:
        below += _wrap_text(note, screen, None if is_required(note) else _LINES)
    below += [f"{', '.join(left_out)}: --details"] if left_out else []
    top = format_answers(answers, screen)
    text = top + "\n" * bool(top) + tables.rstrip("\n") + "\n"
    if below:
        text += "\n" + "\n".join(below) + "\n"
    lines = text.count("\n")
    if top and screen.height is not None and lines >= screen.height:
        text += "\n" + format_answers(answers, screen, most=_LINES)
    return text


def format_answers(answers: Sequence[str], screen: Screen = FILE, *, most: int | None = None) -> str:
    """Return answers, on a screen in ``most`` lines each; on a terminal with coloured words."""
    lines = [line for answer in answers for line in _wrap_text(answer, screen, most, indent="  ")]
    return "".join(f"{style_words(line, screen)}\n" for line in lines)


def _wrap_text(text: str, screen: Screen, most: int | None, *, indent: str = "") -> list[str]:
    """Return the lines of a text, on a screen cut after ``most``."""
    flat = printable(" ".join(text.split("\n")))
    if screen.width is None:
        return [flat]
    shape: dict[str, Any] = {"subsequent_indent": indent, "break_on_hyphens": False, "placeholder": " ..."}
    return textwrap.wrap(flat, screen.width, max_lines=most, **shape)
