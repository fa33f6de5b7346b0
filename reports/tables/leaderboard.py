"""Leaderboards: a row a method, a table a profile and suite."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from bench.records.record import RunRecord
from bench.reports.campaign import Campaign
from bench.reports.grid import CAPTION, DASH, Cell, Grid, Value, number, ranks, summarise
from bench.reports.records import (
    UNREADABLE,
    by_method,
    by_profile_and_suite,
    failures,
    finished,
    group_of,
    is_ranked,
    main_metric,
    task_list,
    without_score,
)
from bench.reports.tables.significance import daggers

OVER_SEEDS = "Mean and standard deviation over"
"""How the note on the number of seeds begins."""


@dataclass(frozen=True)
class Row:
    """One method: its cells by task, what its training took, and what is missing and why.

    Args:
        method: Method id.
        cells: By task, "avg" among them.
        failed: Seeds that failed, or whose records can't be read.
        sentences: Training sentences seen by one run, all stages; None for a method that doesn't train.
        cpu_seconds: CPU seconds its training took, mean over the seeds.
        reasons: Why seeds failed.
        ranked: False below the ranked rows, where training saw the mini grammar's own paraphrases as pairs.
        group: What kind of encoder it is, see :func:`group_of`.
        unreadable: Why records of seeds can't be read.
    """

    method: str
    cells: dict[str, Cell]
    failed: int
    sentences: int | None = None
    cpu_seconds: float | None = None
    reasons: tuple[str, ...] = ()
    ranked: bool = True
    group: str = ""
    unreadable: tuple[str, ...] = ()

    @property
    def finished(self) -> int:
        """Number of seeds that finished."""
        return max(cell.n for cell in self.cells.values())

    @property
    def seeds(self) -> str:
        """Seeds that finished, and how many were tried where some failed."""
        return f"{self.finished} of {self.finished + self.failed}" if self.failed else str(self.finished)

    @property
    def sentences_text(self) -> str:
        """Training sentences as they are printed."""
        return DASH if self.sentences is None else f"{self.sentences:,}"

    @property
    def seconds_text(self) -> str:
        """CPU seconds as they are printed."""
        return DASH if self.cpu_seconds is None else f"{self.cpu_seconds:.0f}"

    @property
    def average(self) -> float:
        """Value to sort by: the average's mean, or below everything if there is none."""
        mean = self.cells["avg"].mean
        return float("-inf") if mean is None else mean


@dataclass(frozen=True)
class Table:
    """A leaderboard of one profile and suite."""

    campaign: str
    profile: str
    suite: str
    tasks: tuple[str, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...]


def leaderboard_grids(campaign: Campaign) -> list[Grid]:
    """Return the leaderboard of every profile and suite, as it is printed."""
    return [_grid(table) for table in leaderboards(campaign)]


def leaderboards(campaign: Campaign) -> list[Table]:
    """Return a table for every profile and suite, best average first."""
    return [leaderboard(campaign, records) for records in by_profile_and_suite(campaign.records)]


def leaderboard(campaign: Campaign, records: Sequence[RunRecord]) -> Table:
    """Return the table of the records of one profile and suite, best average first."""
    tasks = task_list(records)
    rows = [_row(method, group, tasks) for method, group in by_method(records).items()]
    rows.sort(key=lambda row: (not row.ranked, -row.average, row.method))
    signs, said = daggers(records, campaign.baseline)
    rows = [_marked(row, signs.get(row.method, ""), rows) for row in rows]
    notes = _notes(records, rows, said, campaign.rounded)
    return Table(campaign.name, records[0].profile, records[0].suite, tasks, tuple(rows), notes)


def _marked(row: Row, sign: str, rows: Sequence[Row]) -> Row:
    """The row with its marks among the ranked ones."""
    if not row.ranked:
        return row
    cells = {}
    for task, cell in row.cells.items():
        marks = ranks({other.method: other.cells[task].mean for other in rows if other.ranked})
        cells[task] = replace(cell, mark=marks[row.method], sign=sign if task == "avg" else "")
    return replace(row, cells=cells)


def _row(method: str, records: Sequence[RunRecord], tasks: Sequence[str]) -> Row:
    metric = main_metric(records)
    cells = {task: summarise([record.score(task, metric=metric) for record in records]) for task in tasks}
    reasons, unreadable = failures(records), failures(records, UNREADABLE)
    trained = [record for record in records if record.training.get("stages")]
    seen = [sum(stage["sentences_seen"] for stage in r.training["stages"].values()) for r in trained]
    seconds = [sum(record.timing["training_cpu_seconds"].values()) for record in trained]
    return Row(
        method,
        cells,
        len(reasons) + len(unreadable),
        round(fmean(seen)) if seen else None,
        fmean(seconds) if seconds else None,
        reasons,
        all(map(is_ranked, records)),
        group_of(next(iter(finished(records)), records[0])),
        unreadable,
    )


def _notes(
    records: Sequence[RunRecord], rows: Sequence[Row], said: Sequence[str], rounded: bool
) -> tuple[str, ...]:
    metric = main_metric(records)
    rule = "rounded scores, as SimCSE averages" if rounded else "unrounded scores"
    said_as = f"{metric} x 100".capitalize()
    if any("mteb" in record.provenance for record in records):
        said_as += ", as mteb computes it"
    elif metric == "spearman":
        said_as += ", all pairs of a task in one correlation"
    notes = [f"{said_as}; avg is the mean of the {rule}."]
    counts = sorted({cell.n for row in rows for cell in row.cells.values() if cell.n > 1})
    if counts:
        notes.append(f"{OVER_SEEDS} {'/'.join(map(str, counts))} seeds.")
    notes += said
    notes += [
        f"{row.method} has no {', '.join(lacking)}."
        for row in rows
        if row.average > float("-inf")
        and (lacking := [task for task, cell in row.cells.items() if cell.mean is None])
    ]
    odd = sorted({task for r in records for task, facts in r.tasks.items() if not facts["reference"]})
    if odd:
        notes.append(f"Not the reference data: {', '.join(odd)}.")
    notes += dict.fromkeys(note for record in records for note in record.notes)
    notes += [line for row in rows for line in without_score(row.reasons, row.unreadable)]
    return tuple(notes)


def _grid(table: Table) -> Grid:
    """What a leaderboard prints."""
    header = ["method", "seeds", *table.tasks, "sd"]
    trains = any(row.sentences is not None for row in table.rows)
    if trains:
        header += ["sentences", "cpu s"]
    rows = []
    for row in table.rows:
        average = row.cells["avg"]
        cells: list[Value] = [row.method, row.seeds]
        cells += [row.cells[task] for task in table.tasks if task != "avg"]
        cells += [replace(average, sd=None), number(average.sd)]
        if trains:
            cells += [row.sentences_text, row.seconds_text]
        rows.append(tuple(cells))
    title = f"{table.suite}, profile {table.profile}, campaign {table.campaign}"
    marked = any(cell.mark for row in table.rows for cell in row.cells.values())
    notes = (*table.notes[:1], CAPTION, *table.notes[1:]) if marked else table.notes
    return Grid(title, tuple(header), tuple(rows), notes)
