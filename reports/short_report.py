"""The text report for a terminal or a pipe: answers first, then tables, then at most three notes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from bench.render.formats import Screen, fit_columns, render_grids, select_columns
from bench.render.grid import Grid, shorten_names
from bench.render.row_names import mark_rows
from bench.render.short_text import format_answers, format_short_text, merge_synthetic_notes
from bench.reports.campaign import Campaign
from bench.reports.merge_campaigns import append_doubts
from bench.reports.method_choice import use_short_ids
from bench.reports.record_groups import record_notes
from bench.reports.report import TableOptions
from bench.reports.sections import SECTIONS, table_grids
from bench.reports.tables.baseline_answers import describe_answers
from bench.reports.tables.leaderboard import Leaderboard, all_leaderboards, make_leaderboard_grid

LEADERBOARD = "leaderboard"
_WIDEST, _FEW, _BREAK = 160, 3, 20  # characters of a line in a file, leaderboards, lost at the end of a line
_FIRST, _LATER = (
    ("method", "seeds", "avg", "difference", "interval", "answer"),
    (("sd",), ("p",), ("rank",), ("sentences",), ("cpu s",)),
)
_OVER_TASKS = ("method", "avg", "rank", "difference", "interval", "answer")
"""Columns of a short leaderboard, and those that it has where they fit."""
_OTHERS, _SHORTEST = 60, 12
"""Characters of the first columns without the names, and the least of a name."""


def render_short_report(
    campaign: Campaign, look: TableOptions, table: str | None = None, *, details: bool = False
) -> str:
    """Return the answers of a campaign's leaderboards, their tables, and notes.

    Args:
        table: Name of the only table, see :mod:`bench.reports.sections`.
        details: True for every note and column.

    Raises:
        InputError: an unknown table or column, or an empty table.
    """
    campaign = use_short_ids(campaign)
    boards = all_leaderboards(campaign) if table in (None, LEADERBOARD) else []
    answers = _list_answers(boards, look.screen)
    grids = [make_leaderboard_grid(board, data=False) for board in boards]
    if table is None:
        for section in SECTIONS:
            grids += section.grids(campaign) if section.printed and section.name != LEADERBOARD else []
    else:
        grids = append_doubts(grids or table_grids(campaign, table), campaign, "text")
    grids = select_columns(grids, look.columns)
    if details:
        marked = [mark_rows(grid, campaign.footnotes) for grid in grids]
        return "\n".join(
            filter(None, [format_answers(answers, look.screen), _render_long(marked, look.screen)])
        )
    shown, footnotes = list(grids), dict(campaign.footnotes)
    for place, board in enumerate(() if look.columns else boards):
        names = _shorten_row_names(board, look.screen)
        footnotes |= {names[name]: note for name, note in campaign.footnotes.items() if name in names}
        shown[place] = _fit_leaderboard(grids[place], board, look.screen, names)
    columns = sum(len(grid.header) - len(fit.header) for grid, fit in zip(grids, shown, strict=True))
    marked = [mark_rows(replace(grid, notes=()), footnotes) for grid in shown]
    tables = render_grids(marked, "text", screen=look.screen)
    notes, caveats = _join_notes(grids, look.screen), record_notes(campaign.records)
    return format_short_text(answers, tables, notes, look.screen, caveats=caveats, columns=columns)


def _render_long(grids: Sequence[Grid], screen: Screen) -> str:
    whole = [replace(grid, notes=tuple(merge_synthetic_notes(grid.notes))) for grid in grids]
    return render_grids(whole, "text", screen=screen)


def _list_answers(boards: Sequence[Leaderboard], screen: Screen) -> list[str]:
    """Return an answer for every leaderboard, with its place if there are several."""
    profiles = {board.profile for board in boards}
    most = _WIDEST if screen.width is None else screen.width
    if screen.width is not None and len(boards) <= _FEW:  # two lines each
        most = 2 * screen.width - _BREAK
    answers = []
    for board in boards:
        place = board.suite if len(profiles) == 1 else f"{board.suite}, {board.profile}"
        answers.append(describe_answers(board, most, place=place if len(boards) > 1 else ""))
    return answers


def _shorten_row_names(board: Leaderboard, screen: Screen) -> dict[str, str]:
    """Return the rows' names as they fit the screen."""
    names = [row.method for row in board.rows]
    if screen.width is None:
        return {name: name for name in names}
    return shorten_names(names, max(_SHORTEST, screen.width - _OTHERS))


def _fit_leaderboard(grid: Grid, board: Leaderboard, screen: Screen, names: Mapping[str, str]) -> Grid:
    """Return the columns of a leaderboard that fit the screen, with long names and reasons shortened."""
    if screen.width is None:
        return grid
    rows = []
    for row, cells in zip(board.rows, grid.rows, strict=True):
        own = f"{row.method} has "  # the row names the method already
        later = [cell.removeprefix(own) if isinstance(cell, str) else cell for cell in cells[1:]]
        rows.append((names[row.method], *later))
    tasks = [] if len(board.tasks) == 2 else board.tasks  # the average of one task is the task
    order = [_FIRST, _LATER[0], *filter(None, [tasks]), *_LATER[1:]]
    if board.over_tasks:  # without seeds and deviations
        order = [_OVER_TASKS, *filter(None, [tasks]), ("p",)]
    return fit_columns(replace(grid, rows=tuple(rows)), screen, order)


def _join_notes(grids: Sequence[Grid], screen: Screen) -> list[str]:
    """Return the notes of all tables; one that not all of them have begins with its suite."""
    notes = []
    for grid in grids:
        suite, of_suite, _ = grid.title.partition(", profile ")
        for note in grid.notes:
            if note.startswith("Bold:") and not screen.styled:
                continue
            shared = len(grids) == 1 or all(note in other.notes for other in grids)
            notes.append(f"{suite}: {note}" if of_suite and not shared else note)
    return list(dict.fromkeys(notes))
