"""Records to leaderboards (one row a method), and the grid that any table prints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, stdev

from bench.records.record import RunRecord
from bench.reports.records import (
    by_method,
    by_profile_and_suite,
    check_comparable,
    group_of,
    is_ranked,
    main_metric,
    task_list,
)
from bench.reports.tables.marks import ranks
from bench.reports.tables.significance import daggers


@dataclass(frozen=True)
class Cell:
    """One method on one task over its seeds, in the metric's unit.

    Args:
        mean: Mean over the seeds that finished, None if none did.
        sd: Sample standard deviation (divisor n - 1), None for fewer than two.
        n: Seeds behind it.
        mark: "best" or "second" of its column, or "": a tie is never a win.
        sign: What stands after it, such as a dagger.
    """

    mean: float | None
    sd: float | None
    n: int
    mark: str = ""
    sign: str = ""


@dataclass(frozen=True)
class Quoted:
    """A figure that a paper prints.

    Args:
        text: The number with its printed decimals, or what is said in its place.
        grey: True where backbone, data or training text are not ours.
        sign: Of its footnote.
    """

    text: str
    grey: bool = True
    sign: str = ""


@dataclass(frozen=True)
class Row:
    """One method: its cells by task, what its training took, and what is missing and why.

    Args:
        method: Method id.
        cells: By task, "avg" among them.
        failed: Seeds that failed.
        sentences: Training sentences seen by one run, all stages; None for a method that doesn't train.
        cpu_seconds: CPU seconds its training took, mean over the seeds.
        reasons: Why seeds failed.
        ranked: False below the ranked rows, where training saw the mini grammar's own paraphrases as pairs.
        group: What kind of encoder it is, see :func:`group_of`.
    """

    method: str
    cells: dict[str, Cell]
    failed: int
    sentences: int | None = None
    cpu_seconds: float | None = None
    reasons: tuple[str, ...] = ()
    ranked: bool = True
    group: str = ""

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
    notes: tuple[str, ...] = field(default=())


@dataclass(frozen=True)
class Grid:
    """What any table prints: cells, and texts beside them.

    Args:
        title: What it shows.
        header: Names of the columns, the first that of the rows.
        rows: A label and a cell or text for every other column.
        notes: Lines below it.
        groups: Headings of groups of rows: (number of the first row, heading).
    """

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[Cell | Quoted | str, ...], ...]
    notes: tuple[str, ...]
    groups: tuple[tuple[int, str], ...] = ()


def summarise(values: Sequence[float | None]) -> Cell:
    """Mean and standard deviation of the values that are there."""
    there = [value for value in values if value is not None]
    return Cell(fmean(there) if there else None, stdev(there) if len(there) > 1 else None, len(there))


def leaderboards(
    records: Sequence[RunRecord], campaign: str, baseline: str | None = None, *, rounded: bool = False
) -> list[Table]:
    """Return a table for every profile and suite, best average first.

    Args:
        records: The campaign's records.
        campaign: Its name.
        baseline: Method that the daggers compare with; None for simcse, where it is there.
        rounded: True if averages are those of rounded scores (:func:`senteval_rounding`).

    Raises:
        NotComparableError: rows of one table were measured on different data.
    """
    return [_leaderboard(group, campaign, baseline, rounded) for group in by_profile_and_suite(records)]


def _leaderboard(records: Sequence[RunRecord], campaign: str, baseline: str | None, rounded: bool) -> Table:
    profile, suite = records[0].profile, records[0].suite
    check_comparable(records, campaign)
    tasks = task_list(records)
    rows = [_row(method, group, tasks) for method, group in by_method(records).items()]
    rows.sort(key=lambda row: (not row.ranked, -row.average, row.method))
    signs, said = daggers(records, baseline)
    rows = [_marked(row, signs.get(row.method, ""), rows) for row in rows]
    return Table(campaign, profile, suite, tasks, tuple(rows), _notes(records, rows, said, rounded))


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
    failed = [record for record in records if record.status == "failed"]
    metric = main_metric(records)
    cells = {task: summarise([record.score(task, metric=metric) for record in records]) for task in tasks}
    reasons = tuple(
        f"{method}{'' if record.seed is None else f' seed {record.seed}'}: {record.reason}"
        for record in failed
    )
    trained = [record for record in records if record.training]
    seen = [sum(stage["sentences_seen"] for stage in r.training["stages"].values()) for r in trained]
    seconds = [sum(record.timing["training_cpu_seconds"].values()) for record in trained]
    return Row(
        method,
        cells,
        len(failed),
        round(fmean(seen)) if seen else None,
        fmean(seconds) if seconds else None,
        reasons,
        all(map(is_ranked, records)),
        group_of(next((record for record in records if record.status == "ok"), records[0])),
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
        notes.append(f"Mean and standard deviation over {'/'.join(map(str, counts))} seeds.")
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
    notes += [f"Failed: {reason}" for row in rows for reason in row.reasons]
    return tuple(notes)
