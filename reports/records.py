"""What every table asks of records: which belong together, what is measured, the long form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

import pandas as pd

from bench.errors import DataError, NotComparableError
from bench.records.record import ALL, RunRecord

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
SCALE = 100.0  # tables print scores x 100; records and csv hold the metric's own unit


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


def by_profile_and_suite(records: Sequence[RunRecord]) -> list[list[RunRecord]]:
    """Return what may share a table: the records of each profile and suite, in their order."""
    groups: dict[tuple[str, str], list[RunRecord]] = {}
    for record in records:
        groups.setdefault((record.profile, record.suite), []).append(record)
    return [groups[key] for key in sorted(groups)]


def by_method(records: Sequence[RunRecord]) -> dict[str, list[RunRecord]]:
    """Return the records of each method."""
    found: dict[str, list[RunRecord]] = {}
    for record in records:
        found.setdefault(record.method, []).append(record)
    return found


def main_metric(records: Sequence[RunRecord]) -> str:
    """Return the metric of a suite's average."""
    for record in records:
        for score in record.scores:
            if (score.task, score.subset) == ("avg", ALL) and not score.metric.endswith("_last"):
                return score.metric
    return "spearman"


def task_list(records: Sequence[RunRecord]) -> tuple[str, ...]:
    """Return the tasks of a suite in its order, "avg" the last."""
    metric = main_metric(records)
    for record in records:
        if record.status == "ok":
            return tuple(s.task for s in record.scores if (s.subset, s.metric) == (ALL, metric))
    return ("avg",)


def senteval_rounding(records: Sequence[RunRecord]) -> list[RunRecord]:
    """Replace every average by the mean of the scores as printed (x 100, two decimals), as SimCSE.

    Raises:
        DataError: an average of a metric that no task has.
    """
    found = []
    for record in records:
        metric = main_metric([record])
        printed = [
            round(SCALE * s.value, 2) / SCALE
            for s in record.scores
            if (s.subset, s.metric) == (ALL, metric) and s.task != "avg"
        ]
        if record.scores and not printed:
            raise DataError(
                f"the record of {record.method} on {record.suite} has no task's {metric}, so its average "
                "can't be that of rounded scores",
                hint="without --senteval-rounding",
            )
        scores = tuple(
            replace(s, value=fmean(printed)) if (s.task, s.subset, s.metric) == ("avg", ALL, metric) else s
            for s in record.scores
        )
        found.append(replace(record, scores=scores))
    return found


def group_of(record: RunRecord) -> str:
    """Say what kind of encoder a method makes, for the groups of a table."""
    if record.name in ("hf", "st", "vectors", "released"):
        return "checkpoints as they are"
    stages = record.training.get("stages", {})
    if not stages:
        return "without training"
    if record.name == "distill" or record.name.endswith("_d"):
        return "distilled into one encoder"
    parts = record.provenance.get("encoder", {}).get("parts", 1)
    return "several encoders" if parts > 1 else "one encoder"


def is_ranked(record: RunRecord) -> bool:
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
