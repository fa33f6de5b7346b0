"""A result file of mteb's in its present form or that before version 1.11, by mteb's own rules."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from bench.errors import printable, suggest_name
from bench.eval.mteb_scores import RETRIEVAL, MtebEntry
from bench.imports.mteb_choice import WantedTask

NO_REVISION = "not stated"
"""The data revision of a file that states none."""
ANOTHER = "another metric"
"""What a main score is that equals none of a file's metrics."""
_UNSTATED = ("", "None", "dataset revision not available")
_NESTED = {"cos_sim": "cosine", "manhattan": "manhattan", "euclidean": "euclidean", "dot": "dot"}
_NOT_SUBSETS = {"v_measures", "max", *_NESTED}  # mteb's: other dictionaries in a split are subsets
_VERSION = re.compile(r"(\d+)\.(\d+)")
_ROUNDING = 1e-5  # files have six digits
_LONGEST = 100  # characters of a text that is kept
_FRENCH_ONLY = ("1.1.2.dev0", "1.1.3.dev0")  # versions in which MLSUM had its French part alone
_SPELLINGS = {  # names of mteb's tasks before they were renamed
    "NorwegianParliament": "NorwegianParliamentClassification",
    "CMedQAv2": "CMedQAv2-reranking",
    "CMedQAv1": "CMedQAv1-reranking",
    "8TagsClustering": "EightTagsClustering",
    "PPC": "PpcPC",
}
Parts = dict[str, list[dict[str, Any]]]


@dataclass(frozen=True)
class ResultFile:
    """A model's scores on one task.

    Args:
        path: In the folder, with slashes.
        data_revision: NO_REVISION if the file states none.
        version: mteb's, "" if the file states none.
        date: In ISO format, UTC; "" if the file states none.
        entries: One a split and subset; empty with a problem.
        problem: Why its scores can't be used, "" if they can.
        other_main: Metric of the file's main score where it isn't the task's, "" for the task's and where
            the file doesn't tell.
    """

    path: str
    sha256: str
    data_revision: str = NO_REVISION
    version: str = ""
    date: str = ""
    entries: tuple[MtebEntry, ...] = ()
    problem: str = ""
    other_main: str = ""


def parse_result_file(path: str, sha256: str, data: Any, wanted: WantedTask) -> ResultFile:
    """Parse the JSON of a file; what is wrong is the result's problem."""
    if not isinstance(data, dict):
        return ResultFile(path, sha256, problem="it isn't a result of mteb")
    revision = read_text(data.get("dataset_revision"))
    revision = NO_REVISION if revision in _UNSTATED else revision
    version, date = read_text(data.get("mteb_version")), _read_date(data.get("date"))
    entries: tuple[MtebEntry, ...] = ()
    problem, other = "", ""
    try:
        if len(revision) == _LONGEST:
            raise ValueError(f"its data revision has {_LONGEST} characters or more")
        _check_name(data, wanted)
        entries, other = _select_entries(_read_parts(data, version, wanted), wanted)
    except ValueError as error:
        problem = printable(str(error))
    return ResultFile(path, sha256, revision, version, date, entries, problem, other)


def read_text(value: Any) -> str:
    """Return a short text for terminals, "" for anything else."""
    return printable(value)[:_LONGEST] if isinstance(value, str) else ""


def _check_name(data: Mapping[str, Any], wanted: WantedTask) -> None:
    name = data.get("task_name", data.get("mteb_dataset_name"))
    task = wanted.task.asked.name
    stated = _SPELLINGS.get(name, name) if isinstance(name, str) else ""
    if stated.lower() != task.lower():
        raise ValueError(f"it states the task {read_text(name)!r}")


def _read_parts(data: dict[str, Any], version: str, wanted: WantedTask) -> Parts:
    """Return the scores by split, each with its "hf_subset"."""
    scores = data.get("scores")
    if scores is None and ("mteb_version" not in data or _is_old(version)):
        return _convert_old_form(data, version, wanted)
    if not isinstance(scores, dict):
        raise ValueError("it has no scores in a known form")
    for split in wanted.task.splits:
        entries = scores.get(split, [])
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise ValueError(f"split {split} has no list of scores")
    return scores


def _is_old(version: str) -> bool:
    match = _VERSION.match(version)
    return match is not None and (int(match[1]), int(match[2])) < (1, 11)


def _convert_old_form(data: Mapping[str, Any], version: str, wanted: WantedTask) -> Parts:
    """Convert ``{"test": {"cos_sim": {"spearman": 0.8}}}``, perhaps with subsets, as mteb does."""
    about = ("dataset_revision", "mteb_dataset_name", "mteb_version", "evaluation_phases")
    splits: dict[str, dict[str, Any]] = {}
    for name, value in data.items():
        if name in about:
            continue
        if not isinstance(value, dict):
            raise ValueError("it has no scores in a known form")
        splits[name] = {key: score for key, score in value.items() if key != "evaluation_time"}
    keys = [(key, value) for split in splits.values() for key, value in split.items()]
    if not any(isinstance(value, dict) and key not in _NOT_SUBSETS for key, value in keys):
        splits = {name: {"default": split} for name, split in splits.items()}
    _rename_old_subsets(splits, wanted.task.asked.name, version)
    parts: Parts = {}
    for name, subsets in splits.items():
        for subset, scores in subsets.items():
            if not isinstance(scores, dict):
                raise ValueError("it has no scores in a known form")
            entry = {**_flatten(scores), "hf_subset": subset}
            entry.setdefault("main_score", entry.get(wanted.main))
            parts.setdefault(name, []).append(entry)
    return parts


def _rename_old_subsets(splits: Mapping[str, dict[str, Any]], task: str, version: str) -> None:
    test = splits.get("test", {})
    if task in ("MLSUMClusteringP2P", "MLSUMClusteringS2S") and version in _FRENCH_ONLY and "default" in test:
        test["fr"] = test.pop("default")
    if task == "XPQARetrieval" and "fr" in test:
        test["fra-fra"] = test.pop("fr")


def _flatten(scores: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested scores under joined names: ``cos_sim: {spearman}`` is ``cosine_spearman``."""
    flat: dict[str, Any] = {}
    for name, value in scores.items():
        if isinstance(value, dict):
            flat |= {f"{_NESTED.get(name, name)}_{key}": score for key, score in value.items()}
        else:
            flat[name] = value
    return flat


def _select_entries(parts: Parts, wanted: WantedTask) -> tuple[tuple[MtebEntry, ...], str]:
    """Return the wanted splits and subsets, and a differing value of the main score's metric."""
    entries, missing, other = [], [], ""
    for split in wanted.task.splits:
        rows: dict[str, list[dict[str, Any]]] = {}
        for row in parts.get(split, []):
            rows.setdefault(str(row.get("hf_subset")), []).append(row)
        for subset in wanted.subsets:
            of_subset = rows.get(subset, [])
            if not of_subset:
                missing.append(f"{split}/{subset}")
                continue
            if len(of_subset) > 1:
                raise ValueError(f"{split}/{subset} occurs {len(of_subset)} times")
            entry, differing = _read_entry(split, subset, of_subset[0], wanted)
            entries.append(entry)
            other = other or differing
    if missing:
        number = len(wanted.task.splits) * len(wanted.subsets)
        count = f"{len(missing)} of {number} parts: " if number > 1 else ""
        raise ValueError(f"it lacks {count}{describe_names(missing)}")
    return tuple(entries), other


def _read_entry(split: str, subset: str, row: Mapping[str, Any], wanted: WantedTask) -> tuple[MtebEntry, str]:
    flat, score = _flatten(row), wanted.task.score
    named = "main_score" if wanted.is_main else score
    value = _read_number(flat.get(named))
    if value is None:
        raise ValueError(f"{named} of {split}/{subset} is {_describe(flat, named)}")
    scores = {name: number for name in RETRIEVAL if (number := _read_number(flat.get(name))) is not None}
    other = _find_other_main(value, flat, wanted.main) if wanted.is_main else ""
    return MtebEntry(split, subset, {**scores, score: value}, 0), other


def _find_other_main(value: float, scores: Mapping[str, Any], metric: str) -> str:
    """Return the metric that a main score is if it isn't the named one, "" if nothing contradicts that.

    A file without the metric may have it rounded to another rank: equal scores of its kind prove nothing.
    """
    own = _read_number(scores.get(metric))
    if own is not None and abs(own - value) <= _ROUNDING:
        return ""
    kind = metric.partition("_at_")[0]
    equal = []
    for name, other in scores.items():
        number = _read_number(other)
        if name == "main_score" or number is None or abs(number - value) > _ROUNDING:
            continue
        if own is not None or name.partition("_at_")[0] != kind or "_at_" not in name:
            equal.append(name)
    if equal:
        return printable(min(equal, key=len))[:_LONGEST]
    return "" if own is None else ANOTHER


def _read_number(value: Any) -> float | None:
    """Return a score from -1 (of a correlation) to 1, None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if -1 <= value <= 1 else None


def _describe(scores: Mapping[str, Any], name: str) -> str:
    value = scores.get(name)
    if value is None:
        near = suggest_name(name, scores) if name != "main_score" else None
        return f"missing ({near})" if near else "missing"
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number:
        return f"not a number but {type(value).__name__}"
    text = f"{value:g}" if isinstance(value, float) or abs(value) < 1e9 else "huge"
    return f"{text}, not from -1 to 1"


def count_things(number: int, noun: str) -> str:
    """Return a number with its noun: "1 row", "3 rows"."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def describe_names(rows: Sequence[str], most: int = 3) -> str:
    """Return the first names of a list."""
    return ", ".join(rows[:most]) + (", ..." if len(rows) > most else "")


def _read_date(value: Any) -> str:
    """Return a time stamp or an ISO date in ISO format, "" for anything else."""
    try:
        if isinstance(value, str):
            date = datetime.fromisoformat(value)
        elif isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
            date = datetime.fromtimestamp(value, UTC)
        else:
            return ""
        return (date if date.tzinfo else date.replace(tzinfo=UTC)).astimezone(UTC).isoformat()
    except (ValueError, OverflowError, OSError):
        return ""
