"""The records of a campaign that leave bench: chosen, checked, and what stays behind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.comparison.selection import group_by
from bench.data.mteb_names import split_suites
from bench.data.suites import SUITES
from bench.errors import InputError, NotComparableError
from bench.eval.recomputation import require_sound_scores
from bench.records.fingerprint import compute_family_key, identity_hash
from bench.records.record import RunRecord
from bench.records.store import ResultStore
from bench.reports.method_choice import parse_method_list

_MOST = 10


class LeftOutError(Exception):
    """A result that a layout can't hold; the message is the reason."""


@dataclass
class LeftOut:
    """What isn't exported: reasons, each with its number of runs."""

    reasons: Counter[str] = field(default_factory=Counter)

    def add(self, what: str, reason: str) -> None:
        """Count a run whose ``what`` stays behind."""
        self.reasons[f"{what}: {reason}"] += 1

    def lines(self) -> list[str]:
        """Return a line for each reason, in the order of the runs."""
        lines = []
        for reason, count in self.reasons.items():
            lines.append(f"left out: {reason} ({count} runs)" if count > 1 else f"left out: {reason}")
        return lines


@dataclass(frozen=True)
class ChosenRecords:
    """Finished records whose scores were checked, and what was left out already: failed cells."""

    store: ResultStore
    records: tuple[RunRecord, ...]
    left_out: LeftOut

    @property
    def notes(self) -> list[str]:
        """Return the distinct notes of the records."""
        return list(dict.fromkeys(note for record in self.records for note in record.notes))


def choose_records(
    store: ResultStore,
    data: Path | None,
    *,
    profile: str | None = None,
    suites: str | None = None,
    methods: str | None = None,
    one_suite: bool = False,
    progress: Callable[[int], None] = lambda _: None,
) -> ChosenRecords:
    """Choose records of a campaign, and compute their scores again from the kept predictions.

    Args:
        store: The campaign.
        data: Evaluation data, as in ``--data``.
        profile: Only this profile's.
        suites: Only these suites, comma-separated.
        methods: Only these rows, comma-separated.
        one_suite: Refuse several profiles, suites or versions of the data, which a table can't tell apart.
        progress: Called with the number of further checked records.

    Raises:
        InputError: an unknown campaign, profile, suite or method, or no finished record.
        NotComparableError: with ``one_suite``, records of other data or specifications.
        DataError: a damaged record, or one whose scores contradict its predictions.
    """
    records = store.records()
    if profile is not None:
        records = [r for r in records if r.profile == _find(profile, {r.profile for r in records}, "profile")]
    if suites is not None:
        wanted = _parse_suites(suites, records)
        records = [record for record in records if record.suite in wanted]
    if methods is not None:
        rows = parse_method_list(methods, records)
        records = sorted((r for r in records if r.method in rows), key=lambda r: rows.index(r.method))
    left_out = LeftOut()
    for record in records:
        if record.status != "ok":
            left_out.add(describe_run(record), f"failed: {record.reason}")
    finished = [record for record in records if record.status == "ok"]
    if not finished:
        raise InputError("no finished record", where=str(store.root), hint="bench run makes records")
    if one_suite:
        _require_one_suite(finished)
    return ChosenRecords(store, tuple(require_sound_scores(store, finished, data, progress)), left_out)


def describe_run(record: RunRecord) -> str:
    """Return profile, method, seed and suite of a record in words."""
    seed = "" if record.seed is None else f" seed {record.seed}"
    return f"{record.profile} {record.method}{seed} on {record.suite}"


def _require_one_suite(records: Sequence[RunRecord]) -> None:
    for noun, option in (("profile", "--profile"), ("suite", "--suite")):
        names = sorted({str(getattr(record, noun)) for record in records})
        if len(names) > 1:
            what = f"the records are of {len(names)} {noun}s, and the file has one"
            raise InputError(what, where="--layout", expected=f"{option} with one of {_list_names(names)}")
    for method, runs in group_by(records, lambda record: record.method).items():
        if len({compute_family_key(run) for run in runs}) > 1:
            what = f"the seeds of {method} were measured under different specifications"
            raise NotComparableError(what, where=f"{runs[0].profile}, suite {runs[0].suite}")
    versions: dict[str, tuple[str, str]] = {}
    for record in records:
        for task, facts in record.tasks.items():
            first, sha256 = versions.setdefault(task, (record.method, identity_hash(facts)))
            if sha256 != identity_hash(facts):
                what = f"{first} and {record.method} were measured on other versions of {task}"
                raise NotComparableError(what, where=f"suite {record.suite}", hint="choose with --methods")


def _find(name: str, known: set[str], noun: str) -> str:
    if name not in known:
        expected = f"one of {_list_names(sorted(known))}"
        raise InputError(f"the campaign has no {noun} '{name}'", where=f"--{noun}", expected=expected)
    return name


def _parse_suites(text: str, records: Sequence[RunRecord]) -> set[str]:
    """Return the recorded suites that a list names; a recorded name may have commas itself."""
    known = {record.suite for record in records}
    if text in known:
        return {text}
    return {_find(name, known, "suite") for name in split_suites(text, {*SUITES.names(), *known})}


def _list_names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
    return ", ".join(names[:_MOST]) + more
