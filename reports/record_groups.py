"""Group and check records for tables, and turn them into the long form."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from statistics import fmean
from typing import TYPE_CHECKING, Any

from bench.comparison.selection import group_by
from bench.errors import DataError, InputError, NotComparableError
from bench.records.fingerprint import FACTS, compute_family_key
from bench.records.imported import describe_import, is_imported
from bench.records.record import ALL, AVERAGE, EXTERNAL, NOT_RECOMPUTED, RunRecord, is_supervised
from bench.render.grid import SCALE, ScoreCell, summarise_values

if TYPE_CHECKING:
    from pandas import DataFrame

LONG_COLUMNS = (
    *("campaign", "profile", "backbone", "method", "seed", "suite"),
    *("task", "subset", "metric", "value", "n"),
    *("status", "reason", "note"),
)

MADE_ELSEWHERE = "made elsewhere, as published"
"""Heading of imported rows."""
SUPERVISED_GROUP = "learned from labelled pairs"
"""Heading of supervised rows, see :func:`encoder_group`."""
LAST_NOTE = (
    "Scores of the last checkpoint of every training, not of the one that the dev set chose. As recorded: no "
    "predictions of it are kept."
)
EXTERNAL_MODELS = (*EXTERNAL, "released")
"""Methods with a model other than the profile's."""
_OF_MODEL = ("weights", "training text", "dev set")
_OF_TRAINING = ("arithmetic of training", "training precision")
_OF_TABLE = (*_OF_MODEL, *_OF_TRAINING, "world", "version of the evaluation", "transfer solver", "precision")
UNREADABLE = "unreadable"
"""Status in a report of an unreadable record's stand-in."""


def long_frame(records: Sequence[RunRecord], campaign: Callable[[RunRecord], str]) -> DataFrame:
    """Return one row a value, in the metric's own unit; a failed cell is one row with an empty value."""
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
            "note": " ".join(filter(None, [describe_import(record), *record.notes])) or None,
        }
        values = [head | asdict(score) | {"n": score.n or None} for score in record.scores]
        rows += values or [head]
    types = {"seed": "Int64", "n": "Int64", "value": "float64"}
    return DataFrame(rows, columns=list(LONG_COLUMNS)).astype(types)


def by_profile_and_suite(records: Iterable[RunRecord]) -> list[list[RunRecord]]:
    """Return the records of each profile and suite, which may share a table."""
    groups = group_by(records, lambda record: (record.profile, record.suite))
    return [groups[key] for key in sorted(groups)]


def by_method(records: Iterable[RunRecord]) -> dict[str, list[RunRecord]]:
    """Return the records of each method."""
    return group_by(records, lambda record: record.method)


def finished_records(records: Iterable[RunRecord]) -> list[RunRecord]:
    """Return the records that have scores."""
    return [record for record in records if record.status == "ok"]


def readable_records(records: Iterable[RunRecord]) -> list[RunRecord]:
    """Return the records that could be read."""
    return [record for record in records if record.status != UNREADABLE]


def measured_by_mteb(records: Iterable[RunRecord]) -> bool:
    """Return True if mteb computed a record's scores."""
    return any("mteb" in record.provenance for record in records)


def run_label(record: RunRecord) -> str:
    """Return method and seed."""
    return record.method if record.seed is None else f"{record.method} seed {record.seed}"


def failure_reasons(records: Iterable[RunRecord], status: str = "failed") -> tuple[str, ...]:
    """Return runs and their reasons, of runs that failed or are unreadable."""
    return tuple(f"{run_label(record)}: {record.reason}" for record in records if record.status == status)


def label_lines(label: str, texts: Iterable[str]) -> list[str]:
    """Return the texts as lines that begin with a label."""
    return [f"{label}: {text}" for text in texts]


def record_notes(records: Sequence[RunRecord], *, failures: bool = False) -> list[str]:
    """Return the distinct notes of records; with ``failures`` also the reasons of missing scores."""
    notes = list(dict.fromkeys(note for record in records for note in record.notes))
    if failures:
        notes += label_lines("Failed", failure_reasons(records))
        notes += label_lines("Unreadable", failure_reasons(records, UNREADABLE))
    return notes


def task_scores(records: Iterable[RunRecord], task: str = "avg") -> list[float]:
    """Return the records' scores on a task, of those that have one."""
    return [value for record in records if (value := record.score(task)) is not None]


def summarise_scores(
    records: Iterable[RunRecord], task: str = AVERAGE, subset: str = ALL, metric: str | None = None
) -> ScoreCell:
    """Return the mean of the records' scores on a task, of those that have one."""
    return summarise_values([record.score(task, subset, metric=metric) for record in records])


def main_metric(records: Iterable[RunRecord]) -> str:
    """Return the metric of a suite's average."""
    return next((record.metric for record in records if record.score("avg") is not None), "spearman")


def metric_title(records: Iterable[RunRecord]) -> str:
    """Return the metric of a suite's average in words, such as "Main score"."""
    words = main_metric(records).replace("_", " ")
    return f"{words[:1].upper()}{words[1:]}"


def task_list(records: Sequence[RunRecord]) -> tuple[str, ...]:
    """Return the tasks of a suite in its order, "avg" the last."""
    for record in finished_records(records):
        return tuple(s.task for s in record.scores if (s.subset, s.metric) == (ALL, record.metric))
    return ("avg",)


def round_averages(records: Sequence[RunRecord]) -> list[RunRecord]:
    """Replace every average by the mean of the scores as printed (x 100, two decimals), as SimCSE.

    Raises DataError for an average of a metric that all tasks lack.
    """
    rounded = []
    for record in records:
        printed: dict[str, list[float]] = {}
        for score in record.scores:
            if score.subset == ALL and score.task != "avg":
                printed.setdefault(score.metric, []).append(round(SCALE * score.value, 2) / SCALE)
        if record.scores and record.metric not in printed:
            what = f"no task of {record.method} on {record.suite} has the {record.metric} of the average"
            raise DataError(what, hint="leave out --senteval-rounding")
        scores = list(record.scores)
        for place, score in enumerate(scores):
            own = score.metric in (record.metric, f"{record.metric}_last") and score.metric in printed
            if own and (score.task, score.subset) == ("avg", ALL):
                scores[place] = replace(score, value=fmean(printed[score.metric]))
        rounded.append(replace(record, scores=tuple(scores)))
    return rounded


def last_average(record: RunRecord) -> float | None:
    """Return the suite's average at the end of the training, if any.

    Unions and ensembles join their members' selected checkpoints, so they lack it.
    """
    trains = any("/" not in role for role in record.training.get("stages", {}))
    return record.score("avg", metric=f"{record.metric}_last") if trains else None


def last_checkpoints(records: Sequence[RunRecord]) -> list[RunRecord]:
    """Replace the selected checkpoint's scores by the last one's, and note it.

    Predictions and probes belong to the selected checkpoint, so only the cost of encoding remains. Untrained
    records stay as they are; records that join others' selected checkpoints get a note.

    Raises:
        InputError: a trained record that lacks the last checkpoint's scores.
    """
    return list(map(_last_checkpoint, records))


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
    probes: dict[str, Any] = {}
    if "cost" in record.probes:  # without eta, which is of the selected checkpoint's score
        probes = {name: record.probes[name] for name in ("version", "data") if name in record.probes}
        probes["cost"] = {k: v for k, v in record.probes["cost"].items() if k not in ("eta", "eta_suite")}
    notes = (*record.notes, LAST_NOTE)
    return replace(record, scores=scores, predictions=None, probes=probes, notes=notes)


def encoder_group(record: RunRecord) -> str:
    """Return the kind of encoder that a method makes, for the groups of a table."""
    if is_supervised(record):
        return SUPERVISED_GROUP
    if is_imported(record):
        return MADE_ELSEWHERE
    if record.name in EXTERNAL_MODELS:
        return "checkpoints as they are"
    if not record.training.get("stages"):
        return "without training"
    if record.name == "distill" or record.name.endswith("_d"):
        return "distilled into one encoder"
    if record.name == "static":
        return "distilled into static vectors"
    parts = record.provenance.get("encoder", {}).get("parts", 1)
    return "several encoders" if parts > 1 else "one encoder"


def is_ranked(record: RunRecord, *, supervised: bool = False) -> bool:
    """Return False for supervised rows (unless ``supervised``), and rows trained on test paraphrases.

    Those had the mini grammar's own paraphrases as positives.
    """
    if is_supervised(record) and not supervised:
        return False
    stages = record.training.get("stages", {}).values()
    return record.world is None or not any(stage.get("text", {}).get("paired") for stage in stages)


def table_facts(records: Sequence[RunRecord]) -> Iterator[tuple[str, list[tuple[RunRecord, str, str]]]]:
    """Yield the facts that all rows of a table share, with the records that have a value.

    Each entry is a record, its value, and the value's text in messages.
    """
    for fact in FACTS:
        if fact.name not in _OF_TABLE:
            continue
        entries = []
        for record in records:
            foreign = record.name in EXTERNAL_MODELS or is_imported(record)
            external = fact.name in _OF_MODEL and foreign
            untrained = fact.name in _OF_TRAINING and not record.training.get("stages")
            value = fact.value(record)
            if not external and not untrained and value not in (None, "", {}):
                entries.append((record, str(value), fact.show(record) if fact.show else str(value)))
        yield fact.name, entries


def check_comparable(records: Sequence[RunRecord], campaign: str) -> None:
    """Raise NotComparableError for different data, and for a method's seeds of different specifications."""
    data = set(map(_data_hashes, readable_records(records)))
    if len(data) > 1:
        names = sorted(by_method(records))
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


def _data_hashes(record: RunRecord) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((task, facts["sha256"]) for task, facts in record.tasks.items()))


def describe_provenance(records: Sequence[RunRecord], campaign: str) -> tuple[str, ...]:
    """Return the sources of a figure or page: its records, and how they were made."""
    records = readable_records(records)
    seeds = sorted({record.seed for record in records if record.seed is not None})
    facts: dict[str, set[str]] = {
        "campaign": {campaign},
        "profile": set(),
        "suite": set(),
        "records": {str(len(records))},
        "seeds": {", ".join(map(str, seeds)) or "none"},
    }
    for name in ("scores", "commit", "device", "torch", "data"):
        facts[name] = set()
    for record in records:
        doubts = [note for note in record.notes if note.startswith(NOT_RECOMPUTED)]
        facts["scores"].update(note.removeprefix("Scores ").removesuffix(".") for note in doubts)
        git = record.provenance.get("git") or {}
        commit = str(git.get("commit") or "")[:10]
        facts["profile"].add(record.profile)
        facts["suite"].add(record.suite)
        facts["commit"].add(f"{commit} with changes" if commit and git.get("dirty") else commit)
        facts["device"].add(str(record.provenance.get("device", "")))
        facts["torch"].add(str(record.provenance.get("versions", {}).get("torch", "")))
        facts["data"].update(f"{task} {fact['sha256'][:8]}" for task, fact in record.tasks.items())
    lines = []
    for name, values in facts.items():
        if texts := sorted(filter(None, values)):
            lines.append(f"{name}: {', '.join(texts)}")
    return tuple(lines)
