"""A campaign's folder on the site: its page, its tables as files, its records, and what other pages load."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from bench.comparison.browse import Items, items
from bench.comparison.item_bootstrap import Run
from bench.errors import BenchError, InputError
from bench.records.store import ResultStore
from bench.render import svg
from bench.render.figure import Figure
from bench.render.formats import render_grids
from bench.reports.campaign import Campaign, ready
from bench.reports.doubts import with_doubts
from bench.reports.figures.of_records import curve_series
from bench.reports.formats.html import Part, context
from bench.reports.joined import gathered, homes_of, joined, joined_sweeps
from bench.reports.records import by_method, by_profile_and_suite, finished
from bench.reports.report import page_parts, report
from bench.reports.sections import SECTIONS
from bench.site.entry import Check, Entry, as_text, entry_of
from bench.site.methods import page_of
from bench.site.page import Site, data_file, page
from bench.site.pairs import pairs
from bench.site.seeds_used import seeds_used

Files = dict[str, bytes]
"""Contents by their paths below the campaign's folder."""


def campaign_of(store: ResultStore) -> Campaign:
    """Return a campaign as its page shows it; raises what reading and joining its records raise."""
    found = joined(gathered([store]))
    if not found:
        raise InputError("no records", where=str(store.root), hint="bench run makes records")
    records = tuple(one.record for one in found)
    sweeps = tuple(joined_sweeps([store], None))
    return ready(Campaign((store,), records, sweeps, homes=homes_of(found)))


def campaign_files(
    store: ResultStore, check: Callable[[ResultStore], Check], data: Path | None, site: Site
) -> tuple[Entry, Files]:
    """Return a campaign's entry and all files of its folder.

    Args:
        store: The campaign.
        check: Verifies it.
        data: Evaluation data, for the items of suites that may be shown.
        site: What every page of the site shows.
    """
    campaign = campaign_of(store)
    entry = entry_of(campaign, check(store))
    parts, missing = page_parts(campaign)
    tables = dict(_tables(campaign, parts))
    files = {f"tables/{name}": text.encode() for name, text in tables.items()}
    shown = {name.partition(".")[0] for name in tables}
    files["tables/records.csv"] = report(campaign, "csv").encode()
    files["pairs.js"] = data_file(f"pairs {entry.campaign}", pairs(campaign))
    browsed, unseen = _items(campaign, data)
    files |= {
        f"items-{number}.js": data_file(f"items {entry.campaign} {number}", block)
        for number, block in enumerate(browsed)
    }
    files["curves.json"] = json.dumps(_curves(campaign)).encode()
    files["campaign.json"] = as_text(entry).encode()
    files |= _records(store)
    page_facts = context(campaign, parts, [*missing, *unseen]) | {
        "tables": shown,
        "entry": entry,
        "used": [asdict(one) for one in seeds_used(campaign)],
        "browsed": [(block["profile"], block["suite"]) for block in browsed],
        "page_of": page_of,
    }
    files["index.html"] = page("campaign.html", site.below(2, entry.campaign), **page_facts)
    return entry, files


def _tables(campaign: Campaign, parts: Sequence[Part]) -> Iterator[tuple[str, str]]:
    """Yield every table of the page as csv and JSON as ``bench report`` prints it, by its file's name."""
    listed = replace(campaign, pairs=True)
    for part in parts:
        section = next(one for one in SECTIONS if one.name == part.id)
        grids = section.grids(listed) if part.boards or part.id == "significance" else list(part.grids)
        for form in ("csv", "json") if grids else ():
            yield f"{part.id}.{form}", render_grids(with_doubts(grids, campaign, form), form)


def _items(campaign: Campaign, data: Path | None) -> tuple[list[dict[str, Any]], list[str]]:
    """Pairs of suites that may be shown, a block a profile and suite, and why others can't."""
    found, unseen = [], []
    for records in by_profile_and_suite(campaign.records):
        runs = {
            method: [Run(campaign.home(record), record) for record in own]
            for method, own in by_method(finished(records)).items()
        }
        place = {"profile": records[0].profile, "suite": records[0].suite}
        try:
            tasks = items(runs, data) if len(runs) > 1 else []
        except BenchError as error:
            unseen.append(f"Items of {place['suite']}, profile {place['profile']}: {error.what}.")
            continue
        if tasks:
            found.append(place | {"rows": list(runs), "tasks": list(map(_task, tasks))})
    return found, unseen


def _task(one: Items) -> dict[str, Any]:
    return {
        "task": one.task,
        "texts": one.texts,
        "gold": one.gold,
        "ranks": list(one.ranks.values()),
    }


def _curves(campaign: Campaign) -> dict[str, list[tuple[str, str]]]:
    """Dev curves of each registered name, as title and svg, a drawing a profile and suite."""
    found: dict[str, list[tuple[str, str]]] = {}
    for records in by_profile_and_suite(campaign.records):
        done = finished(records)
        for name in dict.fromkeys(record.name for record in done):
            runs = by_method(record for record in done if record.name == name)
            for kind, label, series in curve_series(runs):
                if kind == "dev":
                    title = f"Dev scores: {records[0].suite}, profile {records[0].profile}"
                    figure = Figure(name, "curves", title, "lines", "step", label, (), series)
                    found.setdefault(name, []).append((title, svg.draw(figure)))
    return found


def _records(store: ResultStore) -> Mapping[str, bytes]:
    """The records themselves, each as it is: without predictions, and nothing that is no record."""
    paths = (path for path in store.root.glob("*/*/*/*.json") if not path.name.startswith("."))
    return {f"records/{path.relative_to(store.root).as_posix()}": path.read_bytes() for path in sorted(paths)}
