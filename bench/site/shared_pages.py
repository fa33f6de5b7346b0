"""The pages of all campaigns together: index, methods, published figures, comparison, items, search."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from io import StringIO
from typing import Any

from bench.render.formats import csv_cell
from bench.site import feeds, paper_figures
from bench.site.campaign_entry import CampaignEntry, LeaderboardLine
from bench.site.method_pages import build_method_pages
from bench.site.output import SiteOutput
from bench.site.page import Site, read_assets, render_data_file, render_page

Curves = Mapping[str, Mapping[str, Sequence[Sequence[str]]]]
"""By campaign and registered name the titles and drawings of its curves."""


def write_shared_pages(
    output: SiteOutput, site: Site, entries: Sequence[CampaignEntry], curves: Curves
) -> None:
    """Write the pages that are of all campaigns together, and their tables as files."""
    for path, content in read_assets().items():
        output.put(path, content)
    output.put("index.html", render_page("index.html", site.below(0, "campaigns"), entries=entries))
    output.put("campaigns.json", _format_json(list(map(_campaign_facts, entries))))
    output.put("campaigns.csv", _format_csv(_CAMPAIGN, map(_campaign_row, entries)))
    pages, listed = ["index.html", "methods/index.html", "published.html", "compare.html", "items.html"], []
    for method in build_method_pages(entries, curves):
        content = render_page("method.html", site.below(1, method.name), method=method)
        output.put(f"methods/{method.file}", content)
        summary = method.card.summary if method.card else "a plug-in's"
        listed.append(
            (method.name, method.file, summary, len(method.rows), len({e.campaign for e, _ in method.rows}))
        )
        pages.append(f"methods/{method.file}")
    output.put("methods/index.html", render_page("methods.html", site.below(1, "methods"), methods=listed))
    rows = [(e, line) for e in entries for line in e.lines]
    output.put("methods.csv", _format_csv(_LINE, (_line_row(e, line) for e, line in rows)))
    output.put("methods.json", _format_json([{"campaign": e.campaign} | asdict(line) for e, line in rows]))
    _write_published(output, site, entries)
    output.put("data/compare.js", render_data_file("compare", _index_rows(entries)))
    output.put("compare.html", render_page("compare.html", site.below(0, "compare")))
    browsed = [(e.campaign, path) for e in entries for path in _list_item_files(output, e.campaign)]
    output.put("items.html", render_page("items.html", site.below(0, "items"), browsed=browsed))
    output.put("data/search.js", render_data_file("search", _build_search_index(entries, listed)))
    output.put("robots.txt", feeds.render_robots(site))
    output.put(".nojekyll", b"")
    if site.url:
        pages += [f"campaigns/{entry.campaign}/index.html" for entry in entries]
        output.put("sitemap.xml", feeds.render_sitemap(site, pages))
        output.put("feed.xml", feeds.render_feed(site, entries))


def _write_published(output: SiteOutput, site: Site, entries: Sequence[CampaignEntry]) -> None:
    tables = {suite: paper_figures.compare_published(entries, suite) for suite in paper_figures.SUITES}
    order = [(entry.campaign, row) for entry in entries for row in entry.order]
    facts = {
        "tables": tables,
        "titles": paper_figures.SUITES,
        "papers": paper_figures.papers(),
        "misprints": paper_figures.list_misprints(),
        "disagreements": paper_figures.list_disagreements(),
        "order": order,
    }
    output.put("published.html", render_page("published.html", site.below(0, "published"), **facts))
    rows = (
        (suite, one.shown, one.backbone, source, text, *own)
        for suite, found in tables.items()
        for one in found
        for source, text in one.printed
        for own in (one.ours or (("", "", ""),))
    )
    header = ("suite", "method", "backbone", "source", "printed", "campaign", "row", "ours")
    output.put("published.csv", _format_csv(header, rows))
    found = {suite: [asdict(one) for one in tables[suite]] for suite in tables}
    said = {"tables": found, "misprints": facts["misprints"], "order": order}
    output.put("published.json", _format_json(said | {"disagreements": facts["disagreements"]}))


def _list_item_files(output: SiteOutput, name: str) -> list[str]:
    folder = f"campaigns/{name}/"
    names = (path.removeprefix(folder) for path in output.written if path.startswith(f"{folder}items-"))
    return sorted(name for name in names if "/" not in name)


def _index_rows(entries: Sequence[CampaignEntry]) -> dict[str, Any]:
    """Which campaign, profile and suite has which rows, for the page that compares two."""
    rows: dict[str, int] = {}
    places = []
    for entry in entries:
        own: dict[tuple[str, str], list[int]] = {}
        for line in entry.lines:
            if line.mean is not None:
                number = rows.setdefault(line.method, len(rows))
                own.setdefault((line.profile, line.suite), []).append(number)
        places += [[entry.campaign, *place, numbers] for place, numbers in own.items()]
    return {"rows": list(rows), "places": places}


def _build_search_index(
    entries: Sequence[CampaignEntry], methods: Sequence[tuple[str, str, str, int, int]]
) -> list[list[str]]:
    """What the search finds: kind, name, address, and words that lead to it."""
    found = [["method", name, f"methods/{file}", summary] for name, file, summary, *_ in methods]
    for entry in entries:
        words = (*entry.profiles, *entry.backbones, *entry.suites, *entry.texts, *entry.by, *entry.methods)
        found.append(["campaign", entry.campaign, f"campaigns/{entry.campaign}/index.html", " ".join(words)])
    return found


_CAMPAIGN = (
    *("campaign", "date", "profiles", "backbones", "texts", "suites", "methods", "seeds"),
    *("records", "failed", "verified", "by", "error"),
)
_LINE = (
    "campaign",
    *(one.name for one in fields(LeaderboardLine) if one.name != "rank"),
    "first rank",
    "last rank",
)


def _campaign_facts(entry: CampaignEntry) -> dict[str, Any]:
    """All but its tables, which are in files of their own."""
    facts = {name: value for name, value in asdict(entry).items() if name not in ("lines", "sweeps", "order")}
    return facts | {"methods": entry.methods}


def _campaign_row(e: CampaignEntry) -> tuple[object, ...]:
    lists = (", ".join(each) for each in (e.profiles, e.backbones, e.texts, e.suites))
    seeds = " ".join(map(str, e.seeds))
    facts = (len(e.methods), seeds, e.records, e.failed, e.check.status, ", ".join(e.by), e.error)
    return (e.campaign, e.date, *lists, *facts)


def _line_row(entry: CampaignEntry, line: LeaderboardLine) -> tuple[object, ...]:
    facts = asdict(line)
    return (
        entry.campaign,
        *(value for name, value in facts.items() if name != "rank"),
        *(line.rank or ("", "")),
    )


def _format_json(data: Any) -> bytes:
    return (json.dumps(data, indent=1, sort_keys=True, allow_nan=False) + "\n").encode()


def _format_csv(header: Sequence[str], rows: Iterable[Sequence[object]]) -> bytes:
    output = StringIO()
    writer = csv.writer(output, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(map(csv_cell, row) for row in rows)
    return output.getvalue().encode()
