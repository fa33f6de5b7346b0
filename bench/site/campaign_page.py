"""A campaign's folder on the site: its page, its tables as files, its records, and what other pages load."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from bench.comparison.item_bootstrap import CampaignRun
from bench.comparison.ranked_items import RankedItems, rank_items
from bench.errors import BenchError, InputError
from bench.records.store import ResultStore
from bench.render import svg
from bench.render.figure import Figure
from bench.render.formats import render_grids
from bench.reports.campaign import Campaign, prepare_campaign
from bench.reports.figures.suite_plots import curve_series
from bench.reports.formats.report_page import PagePart, page_context
from bench.reports.merge_campaigns import collect_records, merge_records, merge_sweeps, record_stores
from bench.reports.records import by_method, by_profile_and_suite, finished_records
from bench.reports.report import page_parts, render_report
from bench.reports.sections import SECTIONS
from bench.reports.unreadable_records import append_doubts
from bench.site.campaign_entry import CampaignCheck, CampaignEntry, format_entry, make_entry
from bench.site.method_pages import method_file
from bench.site.method_pairs import compare_method_pairs
from bench.site.page import Site, render_data_file, render_page
from bench.site.seed_steps import rank_by_seed_count

Files = dict[str, bytes]
"""Contents by their paths below the campaign's folder."""


def load_site_campaign(store: ResultStore) -> Campaign:
    """Return a campaign as its page shows it; raises what reading and joining its records raise."""
    found = merge_records(collect_records([store]))
    if not found:
        raise InputError("no records", where=str(store.root), hint="bench run makes records")
    records = tuple(one.record for one in found)
    sweeps = tuple(merge_sweeps([store], None))
    return prepare_campaign(Campaign((store,), records, sweeps, homes=record_stores(found)))


def campaign_files(
    store: ResultStore, check: Callable[[ResultStore], CampaignCheck], data: Path | None, site: Site
) -> tuple[CampaignEntry, Files]:
    """Return a campaign's entry and all files of its folder.

    Args:
        store: The campaign.
        check: Verifies it.
        data: Evaluation data, for the items of suites that may be shown.
        site: What every page of the site shows.
    """
    campaign = load_site_campaign(store)
    entry = make_entry(campaign, check(store))
    parts, missing = page_parts(campaign)
    tables = dict(_render_tables(campaign, parts))
    files = {f"tables/{name}": text.encode() for name, text in tables.items()}
    shown = {name.partition(".")[0] for name in tables}
    files["tables/records.csv"] = render_report(campaign, "csv").encode()
    files["pairs.js"] = render_data_file(f"pairs {entry.campaign}", compare_method_pairs(campaign))
    browsed, unseen = _collect_items(campaign, data)
    files |= {
        f"items-{number}.js": render_data_file(f"items {entry.campaign} {number}", block)
        for number, block in enumerate(browsed)
    }
    files["curves.json"] = json.dumps(_draw_curves(campaign)).encode()
    files["campaign.json"] = format_entry(entry).encode()
    files |= _read_record_files(store)
    page_facts = page_context(campaign, parts, [*missing, *unseen]) | {
        "tables": shown,
        "entry": entry,
        "used": [asdict(one) for one in rank_by_seed_count(campaign)],
        "browsed": [(block["profile"], block["suite"]) for block in browsed],
        "page_of": method_file,
    }
    files["index.html"] = render_page("campaign.html", site.below(2, entry.campaign), **page_facts)
    return entry, files


def _render_tables(campaign: Campaign, parts: Sequence[PagePart]) -> Iterator[tuple[str, str]]:
    """Yield every table of the page as csv and JSON as ``bench report`` prints it, by its file's name."""
    listed = replace(campaign, pairs=True)
    for part in parts:
        section = next(one for one in SECTIONS if one.name == part.id)
        grids = section.grids(listed) if part.boards or part.id == "significance" else list(part.grids)
        for form in ("csv", "json") if grids else ():
            yield f"{part.id}.{form}", render_grids(append_doubts(grids, campaign, form), form)


def _collect_items(campaign: Campaign, data: Path | None) -> tuple[list[dict[str, Any]], list[str]]:
    """Pairs of suites that may be shown, a block a profile and suite, and why others can't."""
    found, unseen = [], []
    for records in by_profile_and_suite(campaign.records):
        runs = {
            method: [CampaignRun(campaign.home(record), record) for record in own]
            for method, own in by_method(finished_records(records)).items()
        }
        place = {"profile": records[0].profile, "suite": records[0].suite}
        try:
            tasks = rank_items(runs, data) if len(runs) > 1 else []
        except BenchError as error:
            unseen.append(f"Items of {place['suite']}, profile {place['profile']}: {error.what}.")
            continue
        if tasks:
            found.append(place | {"rows": list(runs), "tasks": list(map(_task, tasks))})
    return found, unseen


def _task(one: RankedItems) -> dict[str, Any]:
    return {"task": one.task, "texts": one.texts, "gold": one.gold, "ranks": list(one.ranks.values())}


def _draw_curves(campaign: Campaign) -> dict[str, list[tuple[str, str]]]:
    """Dev curves of each registered name, as title and svg, a drawing a profile and suite."""
    found: dict[str, list[tuple[str, str]]] = {}
    for records in by_profile_and_suite(campaign.records):
        done = finished_records(records)
        for name in dict.fromkeys(record.name for record in done):
            runs = by_method(record for record in done if record.name == name)
            for kind, label, series in curve_series(runs):
                if kind == "dev":
                    title = f"Dev scores: {records[0].suite}, profile {records[0].profile}"
                    figure = Figure(name, "curves", title, "lines", "step", label, (), series)
                    found.setdefault(name, []).append((title, svg.draw_svg(figure)))
    return found


def _read_record_files(store: ResultStore) -> Mapping[str, bytes]:
    """The records themselves, each as it is: without predictions, and nothing that is no record."""
    paths = (path for path in store.root.glob("*/*/*/*.json") if not path.name.startswith("."))
    return {f"records/{path.relative_to(store.root).as_posix()}": path.read_bytes() for path in sorted(paths)}
