"""Every run of a campaign as the page lists it: its scores, its record's place, its encoder's size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote

from bench.records.record import RunRecord, safe_name
from bench.render.grid import DASH
from bench.reports.campaign import Campaign
from bench.reports.record_groups import by_method, by_profile_and_suite, task_list


@dataclass(frozen=True)
class PageRun:
    """One run.

    Args:
        seed: Its seed, a dash for a method without.
        scores: By task, "avg" among them, or None.
        reason: Why scores are missing, or "".
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
        method: Its printed name.
        name: Registered name.
        anchor: Of its first row on the page.
        runs: By seed.
        parameters: Of all its encoder's towers, if known.
        dim: Dimension of its vectors by the record, or a dash.
    """

    method: str
    name: str
    anchor: str
    runs: tuple[PageRun, ...]
    parameters: int | None
    dim: str

    @property
    def card(self) -> str:
        """Anchor of its card on the page."""
        return card_anchor(self.name)

    @property
    def parameters_text(self) -> str:
        """Printed parameters, in millions."""
        if self.parameters is None:
            return DASH
        millions = self.parameters / 1e6
        return f"{millions:.1f}M" if millions >= 1 else f"{millions:.2g}M"


@dataclass(frozen=True)
class RunTable:
    """All runs of one profile and suite: its tasks ("avg" the last), and methods by printed name."""

    profile: str
    suite: str
    tasks: tuple[str, ...]
    methods: dict[str, MethodRuns]


def card_anchor(name: str) -> str:
    """Return the anchor of a registered method's card."""
    return f"card-{safe_name(name)}"


def run_tables(campaign: Campaign) -> dict[tuple[str, str], RunTable]:
    """Return the runs of every profile and suite, by both."""
    tables = {}
    for records in by_profile_and_suite(campaign.records):
        tasks, methods = task_list(records), {}
        place = records[0].profile, records[0].suite
        for method, runs in by_method(records).items():
            methods[campaign.shown(method)] = _method_runs(campaign, method, runs, tasks)
        tables[place] = RunTable(*place, tasks, methods)
    return tables


def _method_runs(
    campaign: Campaign, method: str, records: Sequence[RunRecord], tasks: Sequence[str]
) -> MethodRuns:
    first = records[0]
    anchor = "-".join(["runs", *map(safe_name, (first.profile, first.suite, method))])
    by_seed = sorted(records, key=lambda record: -1 if record.seed is None else record.seed)
    runs = tuple(_page_run(campaign, record, tasks) for record in by_seed)
    sizes = (size for size in map(encoder_parameters, records) if size is not None)
    dims = (record.provenance.get("encoder", {}).get("dim") for record in records)
    dim = next((str(value) for value in dims if value is not None), DASH)
    return MethodRuns(campaign.shown(method), first.name, anchor, runs, next(sizes, None), dim)


def _page_run(campaign: Campaign, record: RunRecord, tasks: Sequence[str]) -> PageRun:
    seed = DASH if record.seed is None else str(record.seed)
    home = campaign.home(record)
    path = home.path(record.place).relative_to(home.root.parent if campaign.several else home.root).as_posix()
    scores = {task: record.score(task) for task in tasks}
    return PageRun(seed, scores, record.reason or "", path, record.key)


def encoder_parameters(record: RunRecord) -> int | None:
    """Return the parameters of all towers of a record's encoder, if known.

    The probe ``cost`` counts them; provenance has the number of each tower.
    """
    counted = record.probes.get("cost", {}).get("parameters")
    if counted is not None:
        return int(counted)
    facts = record.provenance.get("encoder", {})
    towers = str(facts.get("parameters", "")).split("+")
    if not all(text.isascii() and text.isdecimal() and len(text) < 16 for text in towers):
        return None
    return sum(map(int, towers)) * (facts.get("parts", 1) if len(towers) == 1 else 1)
