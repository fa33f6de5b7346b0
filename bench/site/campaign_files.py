"""A campaign's folder on the site: its page, tables, records, and data of scripts."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from bench.comparison.item_bootstrap import CampaignRun
from bench.comparison.ranked_items import rank_items
from bench.errors import BenchError, InputError
from bench.eval.recomputation import split_contradictions
from bench.records.record import RunRecord
from bench.records.store import ResultStore
from bench.render import svg
from bench.render.figure import Figure
from bench.render.formats import render_grids
from bench.render.grid import summarise_values
from bench.reports import merge_campaigns, record_groups
from bench.reports.campaign import Campaign, choose_test, prepare_campaign
from bench.reports.figures.suite_plots import curve_series
from bench.reports.formats.report_page import page_context
from bench.reports.method_choice import use_published_names
from bench.reports.record_groups import by_method, by_profile_and_suite, finished_records
from bench.reports.report import page_parts, render_report
from bench.reports.sections import SECTIONS
from bench.reports.tables.pairwise_tests import PairwiseTests
from bench.site.campaign_entry import CampaignCheck, CampaignEntry, format_entry, make_entry
from bench.site.method_pairs import compare_method_pairs
from bench.site.page_frame import Site, render_data_file, render_page
from bench.site.shared_pages import method_file

Files = dict[str, bytes]
"""Contents by their paths below the campaign's folder."""
Remember = Callable[[str, Callable[[], Any]], Any]
"""From the name of a slow part and a function that computes it in JSON's types to its value."""


def load_site_campaign(store: ResultStore, data: Path | None) -> Campaign:
    """Return the campaign of a page; raises the errors of reading and merging its records.

    A record whose scores contradict its predictions is a row without a score.
    """
    check = partial(split_contradictions, data=data)
    collected = merge_campaigns.refuse_contradictions(merge_campaigns.collect_records([store]), check)
    merged = merge_campaigns.merge_records(collected)
    if not merged:
        raise InputError("no records", where=str(store.root), hint="bench run makes records")
    records = tuple(entry.record for entry in merged)
    sweeps, homes = tuple(merge_campaigns.merge_sweeps([store], None)), merge_campaigns.record_stores(merged)
    baseline, family, margin = choose_test((store,), None, None, None)
    source = Campaign((store,), records, sweeps, baseline, homes=homes)
    return prepare_campaign(replace(source, family_kind=family, margin=margin))


def campaign_files(
    store: ResultStore,
    check: Callable[[ResultStore], CampaignCheck],
    data: Path | None,
    site: Site,
    remember: Remember = lambda _, compute: compute(),
) -> tuple[CampaignEntry, Files]:
    """Return a campaign's entry and all files of its folder; ``data`` are for items that may be shown.

    ``remember`` computes a slow part, or returns that of a killed build.
    """
    campaign = load_site_campaign(store, data)
    facts = remember("check", lambda: asdict(check(store)))
    entry = make_entry(campaign, CampaignCheck(facts["status"], tuple(facts["said"]), facts["shortfall"]))
    named = use_published_names(campaign)
    parts, missing = page_parts(named)
    tables = dict(_render_tables(campaign))
    files = {f"tables/{name}": text.encode() for name, text in tables.items()}
    # every score of every run: a tenth of its size
    files["tables/records.csv.gz"] = gzip.compress(render_report(campaign, "csv").encode(), mtime=0)
    compared = remember("pairs", lambda: compare_method_pairs(campaign))
    files["pairs.js"] = render_data_file(f"pairs {entry.campaign}", compared)
    browsed, unseen = _collect_items(campaign, data)
    files |= {
        f"items-{number}.js": render_data_file(f"items {entry.campaign} {number}", block)
        for number, block in enumerate(browsed)
    }
    files["curves.json"] = json.dumps(_draw_curves(campaign)).encode()
    files["campaign.json"] = format_entry(entry).encode()
    for path in store.root.glob("*/*/*/*.json"):
        if not path.name.startswith("."):
            files[f"records/{path.relative_to(store.root).as_posix()}"] = path.read_bytes()
    page_facts = page_context(named, parts, [*missing, *unseen]) | {
        "tables": set(tables),
        "entry": entry,
        "used": list(map(asdict, rank_by_seed_count(campaign))),
        "browsed": [(block["profile"], block["suite"]) for block in browsed],
        "page_of": method_file,
    }
    files["index.html"] = render_page("campaign.html", site.below(2, entry.campaign), **page_facts)
    return entry, files


def _render_tables(campaign: Campaign) -> Iterator[tuple[str, str]]:
    """Yield the csv and JSON of every table by file name, as ``bench report`` prints them."""
    listed = replace(campaign, pairs=True)
    for section in SECTIONS:
        grids = section.grids(listed if section.name in ("leaderboard", "significance") else campaign)
        # thousands of pairs are large: they are in csv alone
        forms = ("csv",) if section.name == "significance" else ("csv", "json")
        for form in forms if grids else ():
            yield (
                f"{section.name}.{form}",
                render_grids(merge_campaigns.append_doubts(grids, campaign, form), form),
            )


def _collect_items(campaign: Campaign, data: Path | None) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the items that may be shown, a block a profile and suite, and the reasons for the others."""
    blocks, unseen = [], []
    for records in by_profile_and_suite(campaign.records):
        runs: dict[str, list[CampaignRun]] = {}
        for record in finished_records(records):
            runs.setdefault(record.method, []).append(CampaignRun(campaign.home(record), record))
        place = {"profile": records[0].profile, "suite": records[0].suite}
        try:
            tasks = rank_items(runs, data) if len(runs) > 1 else []
        except BenchError as error:
            unseen.append(f"Items of {place['suite']}, profile {place['profile']}: {error.what}.")
            continue
        facts = [
            {"task": t.task, "texts": t.texts, "gold": t.gold, "ranks": [*t.ranks.values()]} for t in tasks
        ]
        if facts:
            blocks.append(place | {"rows": list(runs), "tasks": facts})
    return blocks, unseen


def _draw_curves(campaign: Campaign) -> dict[str, list[tuple[str, str]]]:
    drawings: dict[str, list[tuple[str, str]]] = {}
    for records in by_profile_and_suite(campaign.records):
        done = finished_records(records)
        for name in dict.fromkeys(record.name for record in done):
            runs = by_method(record for record in done if record.name == name)
            for kind, label, series in curve_series(runs):
                if kind == "dev":
                    title = f"Dev scores: {records[0].suite}, profile {records[0].profile}"
                    figure = Figure(name, "curves", title, "lines", "step", label, (), series)
                    drawings.setdefault(name, []).append((title, svg.draw_svg(figure)))
    return drawings


@dataclass(frozen=True)
class SeedSteps:
    """A leaderboard with its first one, two, ... seeds, for the page's slider.

    Rows are method, mean, sd, n, first and last rank (None without a test), the best first.
    """

    title: str
    seeds: tuple[int, ...]
    steps: tuple[tuple[tuple[Any, ...], ...], ...]


def rank_by_seed_count(campaign: Campaign) -> list[SeedSteps]:
    """Return the leaderboards of two seeds or more, tested with their first one, two, ... seeds only."""
    boards = []
    for records in by_profile_and_suite(campaign.records):
        done = finished_records(records)
        seeds = tuple(sorted({r.seed for r in done if r.seed is not None}))
        if len(seeds) > 1:
            steps = []
            for count in range(1, len(seeds) + 1):
                chosen = (None, *seeds[:count])
                steps.append(_rank_step(campaign, [r for r in done if r.seed in chosen]))
            title = f"{records[0].suite}, profile {records[0].profile}"
            boards.append(SeedSteps(title, seeds, tuple(steps)))
    return boards


def _rank_step(campaign: Campaign, records: Sequence[RunRecord]) -> tuple[tuple[Any, ...], ...]:
    methods = by_method(records)
    for method, runs in list(methods.items()):
        if not all(record_groups.is_ranked(run, supervised=campaign.rank_supervised) for run in runs):
            del methods[method]
    ranking = PairwiseTests(campaign, records).of().among(methods)  # corrected as the leaderboard is
    rows = []
    for method, runs in methods.items():
        cell = summarise_values(record_groups.task_scores(runs))
        if cell.mean is not None:
            first, last = ranking.intervals.get(method, (None, None))
            seeds = 0 if runs[0].seed is None else cell.n
            rows.append((campaign.shown(method), cell.mean, cell.sd, seeds, first, last))
    return tuple(sorted(rows, key=lambda row: -row[1]))
