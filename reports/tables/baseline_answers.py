"""One line for a leaderboard: which rows are ahead of its baseline, equal, behind or open."""

from __future__ import annotations

from collections.abc import Sequence

from bench.render.grid import BEST, SCALE, format_score
from bench.render.method_names import printed_name
from bench.render.row_names import join_names
from bench.reports.tables.baseline_family import AHEAD, BEHIND, EQUAL, OPEN
from bench.reports.tables.leaderboard import Leaderboard


def name_rows_by_answer(board: Leaderboard) -> dict[str, list[str]]:
    """Return the printed names of the tested rows by their answer."""
    names: dict[str, list[str]] = {AHEAD: [], EQUAL: [], BEHIND: [], OPEN: []}
    for row in board.rows:
        if row.against is not None and row.against.p is not None:
            names[row.against.answer].append(printed_name(row.method))
    return names


def describe_answers(board: Leaderboard, most: int, *, place: str = "") -> str:
    """Return the answer of a leaderboard in one sentence, with names as far as ``most`` characters allow.

    ``place`` is written before it, such as the suite.
    """
    start = f"{place}: " if place else ""
    if not board.baseline:
        return start + _describe_best(board, most - len(start))
    names = name_rows_by_answer(board)
    counts = {answer: f"{len(rows)} {answer}" for answer, rows in names.items()}
    counts[EQUAL] += f" within {SCALE * board.margin:g}"
    start += f"Against {printed_name(board.baseline)}: "
    room = most - len(start + ", ".join(counts.values()))
    for answer in (AHEAD, EQUAL, BEHIND, OPEN):
        listed = _fit_names(names[answer], room - len(" ()"))
        if listed:
            counts[answer] += f" ({listed})"
            room -= len(f" ({listed})")
    return start + ", ".join(counts.values())


def _describe_best(board: Leaderboard, width: int) -> str:
    """Return the rows that may be the best, or the highest average where nothing is tested."""
    best = [row for row in board.rows if row.cells["avg"].mark == BEST]
    if board.tests and best:
        start = "No baseline; may be the best: "
        return start + _fit_names([printed_name(row.method) for row in best], width - len(start))
    finished = [row for row in board.rows if row.average is not None and row.ranked]
    if not finished:
        unranked = any(row.average is not None for row in board.rows)
        return "No ranked row" if unranked else "No finished run"
    top = max(finished, key=lambda row: row.average or 0.0)
    if board.over_tasks:
        return f"Highest average: {printed_name(top.method)} {format_score(top.average)}"
    seeds = f"{top.finished} seed{'s' * (top.finished != 1)}" if top.has_seeds else "no seeds"
    rows = f"{len(finished)} rows" if len(finished) > 1 else "one row"
    return (
        f"Highest average: {printed_name(top.method)} {format_score(top.average)} ({seeds}); {rows}, no test"
    )


def _fit_names(names: Sequence[str], room: int) -> str:
    """Return as many names as fit, with the number of the others; "" if fewer than two of several fit."""
    for count in range(len(names), min(2, len(names)) - 1, -1):
        rest = f" and {len(names) - count} more" if count < len(names) else ""
        if len(listed := join_names(names[:count]) + rest) <= room:
            return listed
    return ""
