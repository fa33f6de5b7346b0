"""The public ``campaign.json`` of a campaign, from which all shared pages are made."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import fmean, stdev
from typing import Any

from bench.errors import DataError, printable
from bench.records.imported import describe_import
from bench.records.record import RunRecord
from bench.records.timing import start_date
from bench.render.grid import plain_text
from bench.reports.campaign import Campaign
from bench.reports.method_choice import paper_name
from bench.reports.planned_runs import campaign_plan_lines
from bench.reports.record_groups import UNREADABLE, by_method, by_profile_and_suite, finished_records
from bench.reports.tables.leaderboard import LeaderboardRow, make_leaderboard
from bench.reports.tables.method_cards import encoder_parameters
from bench.reports.tables.method_order import correlate_settings
from bench.reports.tables.sweep_tables import ablation_grids
from bench.site.board_summary import BoardSummary, summarise_board

SCHEMA = 2


@dataclass(frozen=True)
class CampaignCheck:
    """The lines of a verification, and their status.

    The status is "repeatable", "verified", "in part", "as published", "faults" or "not verified";
    ``shortfall`` tells what the required level lacks.
    """

    status: str
    said: tuple[str, ...] = ()
    shortfall: str = ""


@dataclass(frozen=True)
class LeaderboardLine:
    """A row of a leaderboard, in the metric's unit."""

    profile: str
    suite: str
    method: str
    name: str  # registered
    shown: str  # as printed
    seeds: str  # finished ones, as the table prints them
    mean: float | None
    sd: float | None  # over seeds
    rank: tuple[int, int] | None  # 95% confidence set, if tested
    of: int  # rows with a rank
    answer: str  # such as "ahead of simcse"; "-" without a baseline
    sentences: int | None  # of a run's training
    cpu_seconds: float | None  # of training, mean over seeds
    parameters: int | None  # of all towers
    source: str = ""  # note on an imported row, with where it comes from


@dataclass(frozen=True)
class SweepTable:
    """A table of texts."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class CampaignEntry:
    """The facts of a campaign."""

    campaign: str
    date: str = ""  # start of the last record
    profiles: tuple[str, ...] = ()
    backbones: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()  # files
    suites: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()
    records: int = 0  # finished ones
    failed: int = 0  # failed cells and unreadable records
    check: CampaignCheck = CampaignCheck("not verified")
    by: tuple[str, ...] = ()  # senders of bundles
    notes: tuple[str, ...] = ()  # below every table
    boards: tuple[BoardSummary, ...] = ()  # real text first, then the firmest
    lines: tuple[LeaderboardLine, ...] = ()
    sweeps: tuple[tuple[str, SweepTable], ...] = ()  # by the registered names in them
    order: tuple[tuple[str, ...], ...] = ()  # setting, published table, methods, rho, interval
    plan: tuple[str, ...] = ()  # what was planned, is missing and is beside it, or that there was no plan
    error: str = ""  # reason why it can't be shown
    schema: int = SCHEMA

    @property
    def methods(self) -> tuple[str, ...]:
        """Return the distinct ids of its rows."""
        return tuple(dict.fromkeys(line.method for line in self.lines))


def make_entry(campaign: Campaign, check: CampaignCheck) -> CampaignEntry:
    """Return the entry of a campaign."""
    records = [record for record in campaign.records if record.status != UNREADABLE]
    finished = len(finished_records(records))
    lines: list[LeaderboardLine] = []
    boards: list[BoardSummary] = []
    for group in by_profile_and_suite(records):
        table = make_leaderboard(replace(campaign, all_rows=True), group)
        names = {method: printable(paper_name(runs)) for method, runs in by_method(group).items()}
        boards.append(summarise_board(table, group, names))
        ranked = sum(row.rank is not None for row in table.rows)
        lines += [_make_line(group, row, ranked, table.baseline, names) for row in table.rows]

    def distinct(text_of: Callable[[RunRecord], str]) -> tuple[str, ...]:
        return tuple(sorted(set(map(text_of, records)) - {""}))

    return CampaignEntry(
        campaign.name,
        date=max(map(start_date, records), default=""),
        profiles=distinct(lambda r: r.profile),
        backbones=distinct(lambda r: r.backbone["name"] if r.backbone else ""),
        texts=distinct(lambda r: str(r.training.get("corpus", {}).get("name", ""))),
        suites=distinct(lambda r: r.suite),
        seeds=tuple(sorted({r.seed for r in records if r.seed is not None})),
        records=finished,
        failed=len(campaign.records) - finished,
        check=check,
        by=distinct(lambda r: str(r.timing.get("merged", {}).get("by", ""))),
        notes=tuple(dict.fromkeys(printable(note) for r in records for note in r.notes)),
        boards=tuple(sorted(boards, key=lambda board: board.sort_key)),
        lines=tuple(lines),
        sweeps=tuple(_sweep_tables(campaign)),
        order=tuple(_order_rows(campaign)),
        plan=tuple(map(printable, campaign_plan_lines(campaign.plans.get(campaign.name), records))),
    )


def _make_line(
    records: Sequence[RunRecord], row: LeaderboardRow, ranked: int, baseline: str, names: Mapping[str, str]
) -> LeaderboardLine:
    runs = [record for record in records if record.method == row.method]
    values = [value for run in finished_records(runs) if (value := run.score("avg")) is not None]
    sizes = (size for size in map(encoder_parameters, runs) if size is not None)
    return LeaderboardLine(
        runs[0].profile,
        runs[0].suite,
        row.method,
        runs[0].name,
        names[row.method],
        row.seeds,
        fmean(values) if values else None,
        stdev(values) if len(values) > 1 else None,
        row.rank,
        ranked,
        row.describe_answer(baseline),
        row.sentences,
        row.cpu_seconds,
        next(sizes, None),
        printable(describe_import(runs[0])),
    )


def _sweep_tables(campaign: Campaign) -> list[tuple[str, SweepTable]]:
    """Return each sweep's tables, once for every registered name in them."""
    names = {record.method: record.name for record in campaign.records}
    tables = []
    for manifest in campaign.sweeps:
        sweep_names = {names[method] for *_, method in manifest.points if method in names}
        for grid in ablation_grids(replace(campaign, sweeps=(manifest,), kept=campaign.kept)):
            rows = tuple(tuple(map(plain_text, row)) for row in grid.rows)
            tables += [(name, SweepTable(grid.title, grid.header, rows)) for name in sorted(sweep_names)]
    return tables


def _order_rows(campaign: Campaign) -> list[tuple[str, ...]]:
    """Return the rank correlations of the campaign's settings with published tables."""
    return [
        (one.pair.first.name, one.pair.second.name, str(one.found.n), one.rho, one.interval)
        for one in correlate_settings(campaign)[0]
        if one.pair.second.published and not one.pair.first.published
    ]


def format_entry(entry: CampaignEntry) -> str:
    """Return the entry as JSON."""
    return json.dumps(asdict(entry), indent=1, sort_keys=True, allow_nan=False) + "\n"


def parse_entry(text: str, where: str) -> CampaignEntry:
    """Parse an entry; raises DataError for other content."""
    try:
        data = json.loads(text)
        if data["schema"] != SCHEMA:
            raise DataError("an entry of another bench", where=where)
        for line in data["lines"]:
            line["rank"] = tuple(line["rank"]) if line["rank"] else None
        lists = {name: tuple(value) for name, value in data.items() if isinstance(value, list)}
        lists["lines"] = tuple(LeaderboardLine(**line) for line in data["lines"])
        lists["boards"] = tuple(map(_parse_board, data["boards"]))
        lists["sweeps"] = tuple((name, _parse_table(table)) for name, table in data["sweeps"])
        lists["order"] = tuple(map(tuple, data["order"]))
        facts = data["check"]
        check = CampaignCheck(facts["status"], tuple(facts["said"]), facts["shortfall"])
        return CampaignEntry(**(data | lists | {"check": check}))
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise DataError(f"invalid entry of a site: {error}", where=where) from error


def _parse_board(data: dict[str, Any]) -> BoardSummary:
    return BoardSummary(
        **data | {"verdict": tuple((str(answer), str(text)) for answer, text in data["verdict"])}
    )


def _parse_table(data: dict[str, list[list[str]]]) -> SweepTable:
    return SweepTable(str(data["title"]), tuple(map(str, data["header"])), tuple(map(tuple, data["rows"])))
