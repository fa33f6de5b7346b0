"""A suite as the papers print it: a block a backbone, in it groups of encoders."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bench.comparison.selection import group_by
from bench.render.grid import Grid, ScoreCell, Value
from bench.render.row_names import join_names
from bench.reports.campaign import Campaign
from bench.reports.record_groups import MADE_ELSEWHERE, SUPERVISED_GROUP, by_profile_and_suite
from bench.reports.tables.leaderboard import OF_COLUMNS, Leaderboard, LeaderboardRow, make_leaderboard
from bench.reports.tables.published_figures import paper_backbone

GROUPS = (
    "without training",
    "checkpoints as they are",
    "one encoder",
    "several encoders",
    "distilled into one encoder",
    SUPERVISED_GROUP,
    "distilled into static vectors",
    MADE_ELSEWHERE,
)
TASK_NAMES = {"STSB": "STS-B", "SICKR": "SICK-R", "avg": "Avg.", "SST2": "SST"}


def task_headings(tasks: Iterable[str]) -> list[str]:
    """Return the tasks' names as the papers print them."""
    return [TASK_NAMES.get(task, task) for task in tasks]


def sts7_grids(campaign: Campaign) -> list[Grid]:
    """Return the table of the seven STS tasks."""
    return _suite_grids(campaign, "sts7")


def transfer_grids(campaign: Campaign) -> list[Grid]:
    """Return the table of the transfer tasks."""
    return _suite_grids(campaign, "transfer7")


def group_rows(rows: Sequence[LeaderboardRow], prefix: str = "") -> list[tuple[str, list[LeaderboardRow]]]:
    """Return the groups of encoders that have rows: heading and rows, in the papers' order."""
    groups = group_by(rows, lambda row: row.group)
    return [(f"{prefix}{group}", groups[group]) for group in GROUPS if group in groups]


def _suite_grids(campaign: Campaign, suite: str) -> list[Grid]:
    places = by_profile_and_suite(record for record in campaign.records if record.suite == suite)
    tables = [make_leaderboard(campaign, records) for records in places]
    if not tables:
        return []
    tasks, empty = tables[0].tasks, ScoreCell(None, None, 0)
    rows: list[tuple[Value, ...]] = []
    groups: list[tuple[int, str]] = []
    for table, records in zip(tables, places, strict=True):
        backbone = next(filter(None, map(paper_backbone, records)), "no backbone")
        for heading, members in group_rows(table.rows, f"{backbone} ({table.profile}): "):
            groups.append((len(rows), heading))
            for row in members:
                rows.append((campaign.shown(row.method), *(row.cells.get(task, empty) for task in tasks)))
    header = ("method", *task_headings(tasks))
    notes = _block_notes(campaign, tables)
    return [Grid(f"{suite}, campaign {campaign.name}", header, tuple(rows), notes, tuple(groups))]


def _block_notes(campaign: Campaign, tables: Sequence[Leaderboard]) -> tuple[str, ...]:
    """The notes of the blocks: on scores, on bold, then the others."""
    first, single, others = [], [], []
    for table in tables:
        first.append(table.notes[:1])
        names = join_names(campaign.shown(row.method) for row in table.rows if row.finished == 1)
        single.append([f"One run, so no standard deviation: {names}."] * bool(names))
        others.append([note for note in table.notes[1:] if not note.startswith(OF_COLUMNS)])
    captions = group_by(tables, lambda table: table.bold)
    bold = []  # "Bold" stays the first word, by which formats without bold leave such lines out
    for caption, group in captions.items():
        where = "" if len(captions) == 1 else f": {_profile_list(group)}"
        bold += [f"{caption} Ranked within a backbone{where}."] * bool(caption)
    return (
        *_notes_by_profile(tables, first),
        *bold,
        *_notes_by_profile(tables, single),
        *_notes_by_profile(tables, others),
    )


def _notes_by_profile(tables: Sequence[Leaderboard], notes: Sequence[Sequence[str]]) -> list[str]:
    """The tables' notes, each once; those of only some tables begin with their profiles."""
    sources: dict[str, list[Leaderboard]] = {}
    for table, own in zip(tables, notes, strict=True):
        for note in dict.fromkeys(own):
            sources.setdefault(note, []).append(table)
    lines = []
    for note, of in sources.items():
        lines.append(note if len(of) == len(tables) else f"{_profile_list(of)}: {note}")
    return lines


def _profile_list(tables: Sequence[Leaderboard]) -> str:
    return f"profile {', '.join(table.profile for table in tables)}"
