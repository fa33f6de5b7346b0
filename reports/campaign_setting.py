"""The title of a leaderboard, and its setting in words: backbone, text, seeds, machine, dates and scores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import date

from bench.config.profiles import load_profile, profile_names
from bench.data.imported_names import IMPORTED
from bench.data.suites import SUITES
from bench.records.imported import describe_source, is_imported, is_published
from bench.records.record import NOT_RECOMPUTED, RunRecord
from bench.records.timing import start_date
from bench.reports.record_groups import (
    by_method,
    finished_records,
    metric_title,
    readable_records,
    task_list,
)

SUITE_TITLES = {
    "sts7": "STS",
    "transfer7": "Transfer tasks",
    "transfer8": "Transfer tasks with SST5",
    "stsb-dev": "STS-B dev",
    "sickr-dev": "SICK-R trial",
    "mini": "Synthetic STS",
    "cased": "Synthetic cased STS",
    "cased-transfer": "Synthetic cased transfer",
}
"""Titles of suites; others are called by their name."""
PROFILE_TITLES = {
    "minilm-lm": "MiniLM language model",
    "minilm": "MiniLM sentence encoder",
    "mini": "small BERT",
    "mini-equal": "small BERT, equal budgets",
    "cased": "tiny cased BERT",
}
"""Titles of profiles beyond the backbone that a paper's table prints."""


def describe_title(records: Sequence[RunRecord]) -> str:
    """Return a human title for the records of one profile and suite.

    >>> describe_title([])
    'No records'
    """
    if not records:
        return "No records"
    profile, suite = records[0].profile, records[0].suite
    name, _, checkpoint = profile.partition("@")
    setting = profile
    if name in profile_names():
        title = PROFILE_TITLES.get(name) or load_profile(name).title
        # a profile with another backbone than its own names the start of that backbone's hash
        setting = f"{_name_backbone(name, title, records)}, checkpoint {checkpoint}" if checkpoint else title
    return f"{describe_suite(suite)} leaderboard: {setting}"


def _name_backbone(profile: str, title: str, records: Sequence[RunRecord]) -> str:
    """Return a profile's title if its backbone has the records' name, otherwise theirs and the profile."""
    names = _backbone_names(records)
    if not names or load_profile(profile).backbone["name"] in names:
        return title
    return f"{_join_few('', 'backbones', names)} in profile {profile}"


def describe_suite(suite: str) -> str:
    """Return the title of a suite.

    >>> describe_suite("sts7"), describe_suite("mine")
    ('STS', 'mine')
    """
    return SUITE_TITLES.get(suite, suite.removeprefix(IMPORTED))


def describe_setting(records: Sequence[RunRecord]) -> str:
    """Return the setting of the records of one profile and suite as one line of short facts."""
    readable = readable_records(records)
    facts = [
        _describe_tasks(readable),
        _describe_backbones(readable),
        _describe_texts(readable),
        _describe_seeds(readable),
        _describe_machines(readable),
        _describe_dates([record for record in readable if not is_imported(record)]),
        describe_recomputation(readable),
        _describe_sources(readable),
    ]
    return " · ".join(filter(None, facts))


def is_synthetic(records: Iterable[RunRecord]) -> bool:
    """Return True if the tasks of all records are the program's own."""
    embedded = {name for name in SUITES.names() if SUITES.get(name).embedded}
    return all(record.suite in embedded for record in records)


def describe_recomputation(records: Sequence[RunRecord]) -> str:
    """Say whether a report computed the scores again from the stored predictions."""
    if records and all(is_published(record) for record in records):
        return "scores as published elsewhere"
    doubtful = sum(any(note.startswith(NOT_RECOMPUTED) for note in record.notes) for record in records)
    if not doubtful:
        return "scores recomputed from predictions"
    return "scores as recorded" if doubtful == len(records) else f"{doubtful} scores as recorded"


def _describe_tasks(records: Sequence[RunRecord]) -> str:
    tasks = [task for task in task_list(records) if task != "avg"]
    if not tasks:
        return ""
    names = f"{len(tasks)} tasks" if len(tasks) > 1 else tasks[0]
    return f"{names}, {metric_title(records)} x 100"


def _describe_backbones(records: Sequence[RunRecord]) -> str:
    return _join_few("backbone", "backbones", _backbone_names(records))


def _backbone_names(records: Sequence[RunRecord]) -> set[str]:
    return {str(record.backbone["name"]) for record in records if record.backbone}


def _describe_texts(records: Sequence[RunRecord]) -> str:
    """Name the training text, and the sentences that a stage reads if all stages read as many."""
    names: set[str] = set()
    for record in records:
        if name := record.training.get("corpus", {}).get("name"):
            names.add(str(name))
    texts = _join_few("text", "texts", names)
    read = Counter(
        stage.get("sentences_seen")
        for record in records
        for stage in record.training.get("stages", {}).values()
    )
    if not texts or not read:
        return texts
    (usual, count), *_ = read.most_common(1)
    share = count / read.total()
    if usual is None or share < 0.5:
        return texts
    mostly = "" if share == 1 else "mostly "
    return f"{texts}, {mostly}{usual:,} sentences a training stage"


def _describe_seeds(records: Sequence[RunRecord]) -> str:
    counts = []
    for runs in by_method(finished_records(records)).values():
        seeds = {run.seed for run in runs} - {None}
        if seeds:
            counts.append(len(seeds))
    if not counts:
        return ""
    (usual, _), *_ = Counter(counts).most_common(1)
    usually = "1 seed" if usual == 1 else f"{usual} seeds"
    if min(counts) == max(counts):
        return f"{usually} a row"
    return f"{usually} for most rows ({min(counts)} to {max(counts)})"


def _describe_machines(records: Sequence[RunRecord]) -> str:
    devices = {str(record.provenance.get("device", "")).removeprefix("cuda ") for record in records} - {""}
    if len(devices) > 1:
        devices.discard("cuda")  # of records that name no GPU
    return _join_few("", "devices", {"CPU" if device == "cpu" else device for device in devices})


def _describe_dates(records: Sequence[RunRecord]) -> str:
    """Name the days on which records were made, or imported."""
    days = sorted({start_date(record)[:10] for record in records} - {""})
    if not days:
        return ""
    first, last = (date.fromisoformat(day) for day in (days[0], days[-1]))
    if first == last:
        return f"{last.day} {last:%b %Y}"
    if first.year != last.year:
        return f"{first.day} {first:%b %Y} to {last.day} {last:%b %Y}"
    month = "" if first.month == last.month else f" {first:%b}"
    return f"{first.day}{month} to {last.day} {last:%b %Y}"


def _describe_sources(records: Sequence[RunRecord]) -> str:
    """Name where imported rows come from, and when they were imported."""
    imported = [record for record in records if is_imported(record)]
    days = _describe_dates(imported)
    when = f"imported {days}" if days else "imported"
    return _join_few(f"{when} from", f"sources of rows {when}", set(map(describe_source, imported)))


def _join_few(one: str, several: str, names: set[str]) -> str:
    if not names:
        return ""
    if len(names) > 3:
        return f"{len(names)} {several}"
    return f"{one if len(names) == 1 else several} {', '.join(sorted(names))}".strip()
