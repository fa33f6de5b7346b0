"""Every run of a campaign as the page lists it: its scores, its record's place, its encoder's size."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from bench.records.record import RunRecord, safe_name
from bench.render.grid import DASH
from bench.reports.campaign import Campaign
from bench.reports.records import by_method, by_profile_and_suite, task_list


@dataclass(frozen=True)
class PageRun:
    """One run.

    Args:
        seed: Its seed, a dash for a method without.
        scores: By task, "avg" among them; None without one.
        reason: Why it has none, or "".
        path: Of its record, below the campaign's folder; of several campaigns below the results folder.
        key: Of its cell.
    """

    seed: str
    scores: dict[str, float | None]
    reason: str
    path: str
    key: str

    @property
    def link(self) -> str:
        """The record's address from a page in that folder."""
        return f"./{quote(self.path)}"


@dataclass(frozen=True)
class MethodRuns:
    """The runs of a method in one profile and suite.

    Args:
        method: What it is called.
        name: Registered name.
        anchor: Of its first row on the page.
        runs: By seed.
        parameters: Of all its encoder's towers; None where no record says.
        dim: Dimension of its vectors as the record says it, a dash where none does.
    """

    method: str
    name: str
    anchor: str
    runs: tuple[PageRun, ...]
    parameters: int | None
    dim: str

    @property
    def card(self) -> str:
        """Where its card is on the page."""
        return card_anchor(self.name)

    @property
    def parameters_text(self) -> str:
        """Parameters as they are printed, in millions."""
        if self.parameters is None:
            return DASH
        millions = self.parameters / 1e6
        return f"{millions:.1f}M" if millions >= 1 else f"{millions:.2g}M"


@dataclass(frozen=True)
class RunTable:
    """All runs of one profile and suite.

    Args:
        profile: Profile.
        suite: Suite.
        tasks: Names, "avg" the last.
        methods: By what they are called, in the records' order.
    """

    profile: str
    suite: str
    tasks: tuple[str, ...]
    methods: dict[str, MethodRuns]


def card_anchor(name: str) -> str:
    """Return where the card of a registered name is on the page."""
    return f"card-{safe_name(name)}"


def run_tables(campaign: Campaign) -> dict[tuple[str, str], RunTable]:
    """Return the runs of every profile and suite, by both."""
    found = {}
    for records in by_profile_and_suite(campaign.records):
        place, tasks = (records[0].profile, records[0].suite), task_list(records)
        methods = {
            campaign.shown(method): _method_runs(campaign, method, runs, tasks)
            for method, runs in by_method(records).items()
        }
        found[place] = RunTable(*place, tasks, methods)
    return found


def _method_runs(
    campaign: Campaign, method: str, records: Sequence[RunRecord], tasks: Sequence[str]
) -> MethodRuns:
    first = records[0]
    anchor = "-".join(["runs", *map(safe_name, (first.profile, first.suite, method))])
    runs = tuple(_page_run(campaign, record, tasks) for record in sorted(records, key=_seed_order))
    size = _first(map(encoder_parameters, records))
    return MethodRuns(campaign.shown(method), first.name, anchor, runs, size, _dimension_text(records))


def _seed_order(record: RunRecord) -> int:
    return -1 if record.seed is None else record.seed


def _page_run(campaign: Campaign, record: RunRecord, tasks: Sequence[str]) -> PageRun:
    seed = DASH if record.seed is None else str(record.seed)
    home = campaign.home(record)
    path = home.path(record.place).relative_to(home.root.parent if campaign.several else home.root).as_posix()
    scores = {task: record.score(task) for task in tasks}
    return PageRun(seed, scores, record.reason or "", path, record.key)


def _first(values: Iterable[int | None]) -> int | None:
    return next((value for value in values if value is not None), None)


def encoder_parameters(record: RunRecord) -> int | None:
    """Return the parameters of a record's encoder, all towers together, or None if it doesn't say.

    The probe ``cost`` counts them; an encoder says how many each of its towers has.
    """
    counted = record.probes.get("cost", {}).get("parameters")
    if counted is not None:
        return int(counted)
    facts = record.provenance.get("encoder", {})
    said = [_parse_count(part) for part in str(facts.get("parameters", "")).split("+")]
    there = [value for value in said if value is not None]
    if len(there) != len(said):
        return None
    parts = facts.get("parts", 1)
    return there[0] * parts if len(there) == 1 else sum(there)


def _parse_count(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 16 else None


def _dimension_text(records: Iterable[RunRecord]) -> str:
    said: Iterable[Any] = (record.provenance.get("encoder", {}).get("dim") for record in records)
    return next((str(value) for value in said if value is not None), DASH)
