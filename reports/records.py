"""What every table asks of records: which belong together, what is measured, the long form."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from statistics import fmean
from typing import TYPE_CHECKING, Any

from bench.comparison.selection import group_by
from bench.errors import DataError, InputError, NotComparableError
from bench.records.fingerprint import FACTS, compute_family_key
from bench.records.record import ALL, EXTERNAL, RunRecord, is_supervised
from bench.render.grid import SCALE

if TYPE_CHECKING:
    from pandas import DataFrame

LONG_COLUMNS = (
    *("campaign", "profile", "backbone", "method", "seed", "suite"),
    *("task", "subset", "metric", "value", "n"),
    *("status", "reason", "note"),
)

SUPERVISED_GROUP = "learned from labelled pairs"
"""Heading of supervised rows, see :func:`group_of`."""
LAST_NOTE = "Scores of the last checkpoint of every training, not of the one that the dev set chose."
EXTERNAL_MODELS = (*EXTERNAL, "released")
"""Methods whose model isn't the profile's."""
_OF_MODEL = ("weights", "training text", "dev set")
_OF_TRAINING = ("arithmetic of training", "training precision")
_OF_TABLE = (*_OF_MODEL, *_OF_TRAINING, "world", "version of the evaluation", "transfer solver", "precision")
UNREADABLE = "unreadable"
"""Status of what stands in a report for a record that can't be read; no record on disk has it."""


def long_frame(records: Sequence[RunRecord], campaign: Callable[[RunRecord], str]) -> DataFrame:
    """Return one row a value, in the metric's own unit; a failed cell is one row with an empty value.

    Args:
        records: The records.
        campaign: From a record to the campaign that has it.
    """
    from pandas import DataFrame

    rows: list[dict[str, Any]] = []
    for record in records:
        backbone = record.backbone
        head = {
            "campaign": campaign(record),
            "profile": record.profile,
            "backbone": f"{backbone['name']}@{backbone['sha256'][:8]}" if backbone else None,
            "method": record.method,
            "seed": record.seed,
            "suite": record.suite,
            "status": record.status,
            "reason": record.reason,
            "note": " ".join(record.notes) or None,
        }
        rows += [head | asdict(score) for score in record.scores] or [head]
    return DataFrame(rows, columns=list(LONG_COLUMNS)).astype(
        {"seed": "Int64", "n": "Int64", "value": "float64"}
    )


def by_profile_and_suite(records: Iterable[RunRecord]) -> list[list[RunRecord]]:
    """Return what may share a table: the records of each profile and suite, in their order."""
    groups = group_by(records, lambda record: (record.profile, record.suite))
    return [groups[key] for key in sorted(groups)]


def by_method(records: Iterable[RunRecord]) -> dict[str, list[RunRecord]]:
    """Return the records of each method."""
    return group_by(records, lambda record: record.method)


def finished_records(records: Iterable[RunRecord]) -> list[RunRecord]:
    """Return the records that have scores."""
    return [record for record in records if record.status == "ok"]


def run_label(record: RunRecord) -> str:
    """Name a run within its table: method and seed."""
    return record.method if record.seed is None else f"{record.method} seed {record.seed}"


def failure_reasons(records: Iterable[RunRecord], status: str = "failed") -> tuple[str, ...]:
    """Say which runs failed, or whose records are of another status without a score, and why."""
    return tuple(f"{run_label(record)}: {record.reason}" for record in records if record.status == status)


def missing_score_notes(failed: Iterable[str], unreadable: Iterable[str]) -> list[str]:
    """Return the notes on runs without a score, see :func:`failures`."""
    return [*(f"Failed: {text}" for text in failed), *(f"Unreadable: {text}" for text in unreadable)]


def task_scores(records: Iterable[RunRecord], task: str = "avg") -> list[float]:
    """Return the records' scores on a task, of those that have one."""
    return [value for record in records if (value := record.score(task)) is not None]


def main_metric(records: Iterable[RunRecord]) -> str:
    """Return the metric of a suite's average."""
    return next((record.metric for record in records if record.score("avg") is not None), "spearman")


def task_list(records: Sequence[RunRecord]) -> tuple[str, ...]:
    """Return the tasks of a suite in its order, "avg" the last."""
    for record in finished_records(records):
        return tuple(s.task for s in record.scores if (s.subset, s.metric) == (ALL, record.metric))
    return ("avg",)


def round_averages(records: Sequence[RunRecord]) -> list[RunRecord]:
    """Replace every average by the mean of the scores as printed (x 100, two decimals), as SimCSE.

    Raises:
        DataError: an average of a metric that no task has.
    """
    found = []
    for record in records:
        metric = record.metric
        means = {}
        for each in (metric, f"{metric}_last"):
            printed = [
                round(SCALE * s.value, 2) / SCALE
                for s in record.scores
                if (s.subset, s.metric) == (ALL, each) and s.task != "avg"
            ]
            if printed:
                means[each] = fmean(printed)
        if record.scores and metric not in means:
            raise DataError(
                f"the record of {record.method} on {record.suite} has no task's {metric}, so there are "
                "no rounded scores to average",
                hint="leave out --senteval-rounding",
            )
        scores = tuple(
            replace(s, value=means[s.metric])
            if (s.task, s.subset) == ("avg", ALL) and s.metric in means
            else s
            for s in record.scores
        )
        found.append(replace(record, scores=scores))
    return found


def last_average(record: RunRecord) -> float | None:
    """Return the suite's average at the end of the training, None for a record that doesn't have it.

    A union or an ensemble trains nothing itself: it joins its members' selected checkpoints.
    """
    own = any("/" not in role for role in record.training.get("stages", {}))
    return record.score("avg", metric=f"{record.metric}_last") if own else None


def last_checkpoints(records: Sequence[RunRecord]) -> list[RunRecord]:
    """Put the last checkpoint's scores in the place of the selected one's, with a note that says so.

    Predictions and probes are of the selected checkpoint, and left out but for the cost of encoding, which is
    that of both. What trains nothing stays as it is; of what joins others' selected checkpoints a note says
    that.

    Raises:
        InputError: a trained record without the last checkpoint's scores.
    """
    return [_last_checkpoint(record) for record in records]


def _last_checkpoint(record: RunRecord) -> RunRecord:
    if record.status != "ok" or not record.training.get("stages"):
        return record
    last, metric = f"{record.metric}_last", record.metric
    scores = tuple(replace(score, metric=metric) for score in record.scores if score.metric == last)
    if not scores:
        raise InputError(
            f"the record of {run_label(record)} on {record.suite} has no scores of the last checkpoint",
            where="--checkpoint last",
            hint="choose a suite of sentence pairs with --suite, or methods with --methods",
        )
    if last_average(record) is None:
        joins = f"{record.method} joins checkpoints of its members that the dev set chose."
        return replace(record, notes=(*record.notes, joins))
    probes, notes = _cost_probe(record.probes), (*record.notes, LAST_NOTE)
    return replace(record, scores=scores, predictions=None, probes=probes, notes=notes)


def _cost_probe(probes: dict[str, Any]) -> dict[str, Any]:
    """The cost of encoding; without eta, which is of the selected checkpoint's score."""
    if "cost" not in probes:
        return {}
    cost = {name: value for name, value in probes["cost"].items() if name not in ("eta", "eta_suite")}
    return {name: probes[name] for name in ("version", "data") if name in probes} | {"cost": cost}


def encoder_group(record: RunRecord) -> str:
    """Say what kind of encoder a method makes, for the groups of a table."""
    if is_supervised(record):
        return SUPERVISED_GROUP
    if record.name in EXTERNAL_MODELS:
        return "checkpoints as they are"
    stages = record.training.get("stages", {})
    if not stages:
        return "without training"
    if record.name == "distill" or record.name.endswith("_d"):
        return "distilled into one encoder"
    if record.name == "static":
        return "distilled into static vectors"
    parts = record.provenance.get("encoder", {}).get("parts", 1)
    return "several encoders" if parts > 1 else "one encoder"


def is_ranked(record: RunRecord, *, supervised: bool = False) -> bool:
    """False for a row below the ranked ones.

    It is supervised, unless ``supervised`` ranks such rows too, or the mini grammar's own paraphrases were
    positives in its training.
    """
    if is_supervised(record) and not supervised:
        return False
    stages = record.training.get("stages", {}).values()
    return record.world is None or not any(stage.get("text", {}).get("paired") for stage in stages)


def table_facts(records: Sequence[RunRecord]) -> Iterator[tuple[str, list[tuple[RunRecord, str, str]]]]:
    """Yield what all rows of a table share, as profile or suite gives it: a fact, and what records say of it.

    A record's value, and that as messages show it; records that have none are left out.
    """
    for fact in (fact for fact in FACTS if fact.name in _OF_TABLE):
        having = [
            record
            for record in records
            if not (fact.name in _OF_MODEL and record.name in EXTERNAL_MODELS)
            and not (fact.name in _OF_TRAINING and not record.training.get("stages"))
            and fact.value(record) not in (None, "", {})
        ]
        yield (
            fact.name,
            [
                (record, str(value := fact.value(record)), fact.show(record) if fact.show else str(value))
                for record in having
            ],
        )


def check_comparable(records: Sequence[RunRecord], campaign: str) -> None:
    """Check that the records of one suite may share a table.

    Raises:
        NotComparableError: measured on different data, or a method's seeds under different specifications.
    """
    data = {
        tuple(sorted((task, facts["sha256"]) for task, facts in record.tasks.items()))
        for record in records
        if record.status != UNREADABLE
    }
    if len(data) > 1:
        names = sorted({record.method for record in records})
        raise NotComparableError(
            f"the records of suite {records[0].suite} were measured on {len(data)} versions of the data",
            where=f"campaign {campaign}, {', '.join(names)}",
            hint="run one version in a campaign of its own",
        )
    for method, runs in by_method(finished_records(records)).items():
        if len(set(map(compute_family_key, runs))) > 1:
            raise NotComparableError(
                f"the seeds of {method} were measured under different specifications",
                where=f"campaign {campaign}, suite {records[0].suite}",
                hint="run one specification in a campaign of its own",
            )


def describe_provenance(records: Sequence[RunRecord], campaign: str) -> tuple[str, ...]:
    """Say from which records a figure or a page was made, and how these were."""
    records = [record for record in records if record.status != UNREADABLE]
    seeds = sorted({record.seed for record in records if record.seed is not None})
    facts: dict[str, Iterable[str]] = {
        "campaign": [campaign],
        "profile": (record.profile for record in records),
        "suite": (record.suite for record in records),
        "records": [str(len(records))],
        "seeds": [", ".join(map(str, seeds)) or "none"],
        "commit": map(_commit_text, records),
        "device": (str(record.provenance.get("device", "")) for record in records),
        "torch": (str(record.provenance.get("versions", {}).get("torch", "")) for record in records),
        "data": (f"{task} {facts['sha256'][:8]}" for r in records for task, facts in r.tasks.items()),
    }
    told = {name: sorted(set(filter(None, values))) for name, values in facts.items()}
    return tuple(f"{name}: {', '.join(values)}" for name, values in told.items() if values)


def _commit_text(record: RunRecord) -> str:
    git = record.provenance.get("git") or {}
    commit = str(git.get("commit") or "")[:10]
    return f"{commit} with changes" if commit and git.get("dirty") else commit
