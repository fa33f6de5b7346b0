"""What the site keeps of a campaign: its public ``campaign.json``, from which every other page is made."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import fmean, stdev

from bench.errors import DataError, printable
from bench.records.record import RunRecord
from bench.render.grid import plain_text
from bench.reports.campaign import Campaign
from bench.reports.records import UNREADABLE, by_profile_and_suite, finished_records
from bench.reports.tables.ablation import ablation_grids
from bench.reports.tables.leaderboard import LeaderboardRow, make_leaderboard
from bench.reports.tables.order import correlate_settings
from bench.reports.tables.runs import encoder_parameters

SCHEMA = 1


@dataclass(frozen=True)
class CampaignCheck:
    """What verification said of a campaign.

    Args:
        status: "verified", "in part", "faults" or "not verified".
        said: Each line of it.
    """

    status: str
    said: tuple[str, ...] = ()


@dataclass(frozen=True)
class LeaderboardLine:
    """A row of a leaderboard, in the metric's unit.

    Args:
        profile: Profile.
        suite: Suite.
        method: Method id.
        name: Registered name.
        seeds: Seeds that finished, as the table prints them.
        mean: Of the average, None without a finished run.
        sd: Its standard deviation over seeds.
        rank: The ranks that it may have, None where nothing could be tested.
        of: Number of rows that have a rank.
        group: Its letters.
        sentences: Training sentences of a run.
        cpu_seconds: Of training, mean over seeds.
        parameters: Of all towers.
    """

    profile: str
    suite: str
    method: str
    name: str
    seeds: str
    mean: float | None
    sd: float | None
    rank: tuple[int, int] | None
    of: int
    group: str
    sentences: int | None
    cpu_seconds: float | None
    parameters: int | None


@dataclass(frozen=True)
class SweepTable:
    """A table as texts."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class CampaignEntry:
    """A campaign.

    Args:
        campaign: Its name.
        date: When its last record was started, "" where none says.
        profiles: Profiles.
        backbones: Names of the weights.
        texts: Files of training text.
        suites: Suites.
        seeds: Its seeds.
        records: Finished records.
        failed: Failed cells and records that can't be read.
        check: What verification said.
        by: Who sent it, by the word of its bundles.
        notes: What every table of it must say.
        lines: Rows of its leaderboards.
        sweeps: Its sweeps' tables by the registered names in them.
        order: Its order against the papers': setting, what is published, methods, rho, interval.
        error: Why it can't be shown, or "".
        schema: Of this file.
    """

    campaign: str
    date: str = ""
    profiles: tuple[str, ...] = ()
    backbones: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    suites: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()
    records: int = 0
    failed: int = 0
    check: CampaignCheck = CampaignCheck("not verified")
    by: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    lines: tuple[LeaderboardLine, ...] = ()
    sweeps: tuple[tuple[str, SweepTable], ...] = ()
    order: tuple[tuple[str, ...], ...] = ()
    error: str = ""
    schema: int = SCHEMA

    @property
    def methods(self) -> tuple[str, ...]:
        """Its rows' ids, each once."""
        return tuple(dict.fromkeys(line.method for line in self.lines))


def make_entry(campaign: Campaign, check: CampaignCheck) -> CampaignEntry:
    """Return what the site keeps of a campaign."""
    records = [record for record in campaign.records if record.status != UNREADABLE]
    done = finished_records(records)
    return CampaignEntry(
        campaign.name,
        max((str(r.timing.get("started", "")) for r in records), default=""),
        _distinct_texts(records, lambda r: r.profile),
        _distinct_texts(records, lambda r: r.backbone["name"] if r.backbone else ""),
        _distinct_texts(records, lambda r: str(r.training.get("corpus", {}).get("name", ""))),
        _distinct_texts(records, lambda r: r.suite),
        tuple(sorted({r.seed for r in records if r.seed is not None})),
        len(done),
        len(campaign.records) - len(done),
        check,
        _distinct_texts(records, lambda r: str(r.timing.get("merged", {}).get("by", ""))),
        tuple(dict.fromkeys(printable(note) for r in records for note in r.notes)),
        tuple(
            line for group in by_profile_and_suite(records) for line in _leaderboard_lines(campaign, group)
        ),
        tuple(_sweep_tables(campaign)),
        tuple(_order_rows(campaign)),
    )


def _distinct_texts(records: Sequence[RunRecord], of: Callable[[RunRecord], str]) -> tuple[str, ...]:
    return tuple(sorted({text for record in records if (text := of(record))}))


def _leaderboard_lines(campaign: Campaign, records: Sequence[RunRecord]) -> list[LeaderboardLine]:
    table = make_leaderboard(campaign, records)
    ranked = sum(row.rank is not None for row in table.rows)
    return [_make_line(records, row, ranked) for row in table.rows]


def _make_line(records: Sequence[RunRecord], row: LeaderboardRow, ranked: int) -> LeaderboardLine:
    runs = [record for record in records if record.method == row.method]
    values = [value for run in finished_records(runs) if (value := run.score("avg")) is not None]
    size = next((found for found in map(encoder_parameters, runs) if found is not None), None)
    return LeaderboardLine(
        runs[0].profile,
        runs[0].suite,
        row.method,
        runs[0].name,
        row.seeds,
        fmean(values) if values else None,
        stdev(values) if len(values) > 1 else None,
        row.rank,
        ranked,
        row.letters,
        row.sentences,
        row.cpu_seconds,
        size,
    )


def _sweep_tables(campaign: Campaign) -> list[tuple[str, SweepTable]]:
    """Each sweep's tables, once for every registered name in them."""
    names = {record.method: record.name for record in campaign.records}
    found = []
    for manifest in campaign.sweeps:
        own = {names[method] for *_, method in manifest.points if method in names}
        for grid in ablation_grids(replace(campaign, sweeps=(manifest,), kept=campaign.kept)):
            rows = tuple(tuple(map(plain_text, row)) for row in grid.rows)
            found += [(name, SweepTable(grid.title, grid.header, rows)) for name in sorted(own)]
    return found


def _order_rows(campaign: Campaign) -> list[tuple[str, ...]]:
    """How its settings order methods against what papers print."""
    return [
        (one.pair.first.name, one.pair.second.name, str(one.found.n), one.rho, one.interval)
        for one in correlate_settings(campaign)[0]
        if one.pair.second.published and not one.pair.first.published
    ]


def format_entry(entry: CampaignEntry) -> str:
    """Return the entry as JSON."""
    return json.dumps(asdict(entry), indent=1, sort_keys=True, allow_nan=False) + "\n"


def parse_entry(text: str, where: str) -> CampaignEntry:
    """Read an entry again; raises DataError for what is none."""
    try:
        data = json.loads(text)
        if data["schema"] != SCHEMA:
            raise DataError("an entry of another bench", where=where)
        lists = {name: tuple(value) for name, value in data.items() if isinstance(value, list)}
        lists["lines"] = tuple(
            LeaderboardLine(**(line | {"rank": tuple(line["rank"]) if line["rank"] else None}))
            for line in data["lines"]
        )
        lists["sweeps"] = tuple((name, _table(table)) for name, table in data["sweeps"])
        lists["order"] = tuple(map(tuple, data["order"]))
        check = CampaignCheck(data["check"]["status"], tuple(data["check"]["said"]))
        return CampaignEntry(**(data | lists | {"check": check}))
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise DataError(f"this is no entry of a site: {error}", where=where) from error


def _table(data: dict[str, list[list[str]]]) -> SweepTable:
    return SweepTable(str(data["title"]), tuple(map(str, data["header"])), tuple(map(tuple, data["rows"])))
