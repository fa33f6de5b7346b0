"""Records to tables: the long frame (one row a value) and the leaderboard (one row a method)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean, stdev
from typing import Any

import pandas as pd

from bench.errors import NotComparableError
from bench.record import ALL, RunRecord

LONG_COLUMNS = (
    "campaign",
    "profile",
    "backbone",
    "method",
    "seed",
    "suite",
    "task",
    "subset",
    "metric",
    "value",
    "n",
    "status",
    "reason",
    "note",
)
SCALE = 100.0  # tables print Spearman x 100; records and csv hold the metric's own unit


@dataclass(frozen=True)
class Cell:
    """One method on one task over its seeds, in the metric's unit.

    Args:
        mean: Mean over the seeds that finished, None if none did.
        sd: Sample standard deviation (divisor n - 1), None for fewer than two.
        n: Seeds behind it.
    """

    mean: float | None
    sd: float | None
    n: int


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
    """

    method: str
    cells: dict[str, Cell]
    failed: int
    sentences: int | None = None
    cpu_seconds: float | None = None
    reasons: tuple[str, ...] = ()
    ranked: bool = True

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
    """

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[Cell | str, ...], ...]
    notes: tuple[str, ...]


def summarise(values: Sequence[float | None]) -> Cell:
    """Mean and standard deviation of the values that are there."""
    there = [value for value in values if value is not None]
    return Cell(fmean(there) if there else None, stdev(there) if len(there) > 1 else None, len(there))


def long_frame(records: Sequence[RunRecord], campaign: str) -> pd.DataFrame:
    """Return one row a value, in the metric's own unit; a failed cell is one row with an empty value."""
    rows: list[dict[str, Any]] = []
    for record in records:
        backbone = record.backbone
        head = {
            "campaign": campaign,
            "profile": record.profile,
            "backbone": f"{backbone['name']}@{backbone['sha256'][:8]}" if backbone else None,
            "method": record.method,
            "seed": record.seed,
            "suite": record.suite,
            "status": record.status,
            "reason": record.reason,
            "note": " ".join(record.notes) or None,
        }
        rows += [
            {
                **head,
                "task": score.task,
                "subset": score.subset,
                "metric": score.metric,
                "value": score.value,
                "n": score.n,
            }
            for score in record.scores
        ] or [head]
    frame = pd.DataFrame(rows, columns=list(LONG_COLUMNS))
    return frame.astype({"seed": "Int64", "n": "Int64", "value": "float64"})


def leaderboards(records: Sequence[RunRecord], campaign: str) -> list[Table]:
    """Return a table for every profile and suite, best average first.

    Raises:
        NotComparableError: rows of one table were measured on different data.
    """
    groups: dict[tuple[str, str], list[RunRecord]] = {}
    for record in records:
        groups.setdefault((record.profile, record.suite), []).append(record)
    return [_leaderboard(groups[key], campaign) for key in sorted(groups)]


def _leaderboard(records: Sequence[RunRecord], campaign: str) -> Table:
    profile, suite = records[0].profile, records[0].suite
    check_comparable(records, campaign)
    done = [record for record in records if record.status == "ok"]
    tasks = (
        tuple(s.task for s in done[0].scores if (s.subset, s.metric) == (ALL, "spearman"))
        if done
        else ("avg",)
    )
    by_method: dict[str, list[RunRecord]] = {}
    for record in records:
        by_method.setdefault(record.method, []).append(record)
    rows = [_row(method, group, tasks) for method, group in by_method.items()]
    rows.sort(key=lambda row: (not row.ranked, -row.average, row.method))
    return Table(campaign, profile, suite, tasks, tuple(rows), _notes(records, rows))


def _row(method: str, records: Sequence[RunRecord], tasks: Sequence[str]) -> Row:
    failed = [record for record in records if record.status == "failed"]
    cells = {task: summarise([record.score(task) for record in records]) for task in tasks}
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
        all(map(_is_ranked, records)),
    )


def _is_ranked(record: RunRecord) -> bool:
    """False where the mini grammar's own paraphrases were positives in training."""
    stages = record.training.get("stages", {}).values()
    return record.world is None or not any(stage.get("text", {}).get("paired") for stage in stages)


def check_comparable(records: Sequence[RunRecord], campaign: str) -> None:
    """Check that records of one suite may stand in one table.

    Raises:
        NotComparableError: measured on different data, or a method's seeds under different specifications.
    """
    data = {
        tuple(sorted((task, facts["sha256"]) for task, facts in record.tasks.items())) for record in records
    }
    if len(data) > 1:
        names = sorted({record.method for record in records})
        raise NotComparableError(
            f"the records of suite {records[0].suite} were measured on {len(data)} versions of the data",
            where=f"campaign {campaign}, {', '.join(names)}",
            hint="run one version in a campaign of its own",
        )
    families: dict[str, set[str]] = {}
    for record in records:
        if record.status == "ok":
            families.setdefault(record.method, set()).add(record.family)
    for method, found in families.items():
        if len(found) > 1:
            raise NotComparableError(
                f"the seeds of {method} were measured under different specifications",
                where=f"campaign {campaign}, suite {records[0].suite}",
                hint="run one specification in a campaign of its own",
            )


def _notes(records: Sequence[RunRecord], rows: Sequence[Row]) -> tuple[str, ...]:
    notes = [
        "Spearman x 100, all pairs of a task in one correlation; avg is the mean of the unrounded scores."
    ]
    counts = sorted({cell.n for row in rows for cell in row.cells.values() if cell.n > 1})
    if counts:
        notes.append(f"Mean and standard deviation over {'/'.join(map(str, counts))} seeds.")
    odd = sorted({task for r in records for task, facts in r.tasks.items() if not facts["reference"]})
    if odd:
        notes.append(f"Not the reference data: {', '.join(odd)}.")
    notes += dict.fromkeys(note for record in records for note in record.notes)
    notes += [f"Failed: {reason}" for row in rows for reason in row.reasons]
    return tuple(notes)
