"""A suite as the papers print it: a block a backbone, in it groups of encoders."""

from __future__ import annotations

from collections.abc import Sequence

from bench.comparison.selection import group_by
from bench.render.grid import Grid, ScoreCell, Value
from bench.reports.campaign import Campaign
from bench.reports.records import SUPERVISED_GROUP, by_profile_and_suite
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
)
TASK_NAMES = {"STSB": "STS-B", "SICKR": "SICK-R", "avg": "Avg.", "SST2": "SST"}


def sts7_grids(campaign: Campaign) -> list[Grid]:
    """Return the table of the seven STS tasks."""
    return _suite_grids(campaign, "sts7")


def transfer_grids(campaign: Campaign) -> list[Grid]:
    """Return the table of the transfer tasks."""
    return _suite_grids(campaign, "transfer7")


def group_rows(rows: Sequence[LeaderboardRow], prefix: str = "") -> list[tuple[str, list[LeaderboardRow]]]:
    """Return the groups of encoders that have rows: heading and rows, in the papers' order."""
    groups = ((group, [row for row in rows if row.group == group]) for group in GROUPS)
    return [(f"{prefix}{group}", members) for group, members in groups if members]


def _suite_grids(campaign: Campaign, suite: str) -> list[Grid]:
    places = by_profile_and_suite(record for record in campaign.records if record.suite == suite)
    tables = [make_leaderboard(campaign, records) for records in places]
    if not tables:
        return []
    tasks = tables[0].tasks
    rows: list[tuple[Value, ...]] = []
    groups: list[tuple[int, str]] = []
    for table, records in zip(tables, places, strict=True):
        backbone = next((b for record in records if (b := paper_backbone(record))), "no backbone")
        for heading, members in group_rows(table.rows, f"{backbone} ({table.profile}): "):
            groups.append((len(rows), heading))
            rows += [
                (
                    campaign.shown(row.method),
                    *(row.cells.get(task, ScoreCell(None, None, 0)) for task in tasks),
                )
                for row in members
            ]
    header = ("method", *(TASK_NAMES.get(task, task) for task in tasks))
    notes = _block_notes(campaign, tables)
    return [Grid(f"{suite}, campaign {campaign.name}", header, tuple(rows), notes, tuple(groups))]


def _block_notes(campaign: Campaign, tables: Sequence[Leaderboard]) -> tuple[str, ...]:
    """The notes of the blocks: how scores are measured, what bold means, then the others."""
    once = [
        ", ".join(campaign.shown(row.method) for row in table.rows if row.finished == 1) for table in tables
    ]
    more = [[note for note in table.notes[1:] if not note.startswith(OF_COLUMNS)] for table in tables]
    return (
        *_notes_by_profile(tables, [[table.notes[0]] for table in tables]),
        *_bold_captions(tables),
        *_notes_by_profile(
            tables, [[f"One run, so no standard deviation: {names}."] * bool(names) for names in once]
        ),
        *_notes_by_profile(tables, more),
    )


def _bold_captions(tables: Sequence[Leaderboard]) -> list[str]:
    """What bold means; "Bold" stays the first word, by which formats without bold leave such lines out."""
    found = group_by(tables, lambda table: table.caption)
    return [
        f"{caption} Ranked within a backbone{'' if len(found) == 1 else f': {_profile_list(own)}'}."
        for caption, own in found.items()
        if caption
    ]


def _notes_by_profile(tables: Sequence[Leaderboard], notes: Sequence[Sequence[str]]) -> list[str]:
    """The notes of the tables, each once; one that isn't of all begins with the profiles that it is of."""
    found: dict[str, list[Leaderboard]] = {}
    for table, own in zip(tables, notes, strict=True):
        for note in dict.fromkeys(own):
            found.setdefault(note, []).append(table)
    return [note if len(of) == len(tables) else f"{_profile_list(of)}: {note}" for note, of in found.items()]


def _profile_list(tables: Sequence[Leaderboard]) -> str:
    return f"profile {', '.join(table.profile for table in tables)}"
