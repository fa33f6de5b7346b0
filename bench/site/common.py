"""The pages of all campaigns together: index, methods, published figures, comparison, items, search."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from io import StringIO
from typing import Any

from bench.render.formats import csv_cell
from bench.site import feeds, published
from bench.site.entry import Entry, Line
from bench.site.files import Output
from bench.site.methods import methods_of
from bench.site.page import Site, assets, data_file, page

Curves = Mapping[str, Mapping[str, Sequence[Sequence[str]]]]
"""By campaign and registered name the titles and drawings of its curves."""


def common_pages(output: Output, site: Site, entries: Sequence[Entry], curves: Curves) -> None:
    """Write the pages that are of all campaigns together, and their tables as files."""
    for path, content in assets().items():
        output.put(path, content)
    output.put("index.html", page("index.html", site.below(0, "campaigns"), entries=entries))
    output.put("campaigns.json", _json(list(map(_campaign_facts, entries))))
    output.put("campaigns.csv", _csv(_CAMPAIGN, map(_campaign_row, entries)))
    pages, listed = ["index.html", "methods/index.html", "published.html", "compare.html", "items.html"], []
    for method in methods_of(entries, curves):
        content = page("method.html", site.below(1, method.name), method=method)
        output.put(f"methods/{method.file}", content)
        summary = method.card.summary if method.card else "a plug-in's"
        listed.append(
            (method.name, method.file, summary, len(method.rows), len({e.campaign for e, _ in method.rows}))
        )
        pages.append(f"methods/{method.file}")
    output.put("methods/index.html", page("methods.html", site.below(1, "methods"), methods=listed))
    rows = [(e, line) for e in entries for line in e.lines]
    output.put("methods.csv", _csv(_LINE, (_line_row(e, line) for e, line in rows)))
    output.put("methods.json", _json([{"campaign": e.campaign} | asdict(line) for e, line in rows]))
    _published(output, site, entries)
    output.put("data/compare.js", data_file("compare", _places(entries)))
    output.put("compare.html", page("compare.html", site.below(0, "compare")))
    browsed = [(e.campaign, path) for e in entries for path in _browsed(output, e.campaign)]
    output.put("items.html", page("items.html", site.below(0, "items"), browsed=browsed))
    output.put("data/search.js", data_file("search", _search(entries, listed)))
    output.put("robots.txt", feeds.robots(site))
    output.put(".nojekyll", b"")
    if site.url:
        pages += [f"campaigns/{entry.campaign}/index.html" for entry in entries]
        output.put("sitemap.xml", feeds.sitemap(site, pages))
        output.put("feed.xml", feeds.feed(site, entries))


def _published(output: Output, site: Site, entries: Sequence[Entry]) -> None:
    tables = {suite: published.beside(entries, suite) for suite in published.SUITES}
    order = [(entry.campaign, row) for entry in entries for row in entry.order]
    facts = {
        "tables": tables,
        "titles": published.SUITES,
        "papers": published.papers(),
        "misprints": published.misprints(),
        "disagreements": published.disagreements(),
        "order": order,
    }
    output.put("published.html", page("published.html", site.below(0, "published"), **facts))
    rows = (
        (suite, one.shown, one.backbone, source, text, *own)
        for suite, found in tables.items()
        for one in found
        for source, text in one.printed
        for own in (one.ours or (("", "", ""),))
    )
    header = ("suite", "method", "backbone", "source", "printed", "campaign", "row", "ours")
    output.put("published.csv", _csv(header, rows))
    found = {suite: [asdict(one) for one in tables[suite]] for suite in tables}
    said = {"tables": found, "misprints": facts["misprints"], "order": order}
    output.put("published.json", _json(said | {"disagreements": facts["disagreements"]}))


def _browsed(output: Output, name: str) -> list[str]:
    folder = f"campaigns/{name}/"
    names = (path.removeprefix(folder) for path in output.written if path.startswith(f"{folder}items-"))
    return sorted(name for name in names if "/" not in name)


def _places(entries: Sequence[Entry]) -> dict[str, Any]:
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


def _search(entries: Sequence[Entry], methods: Sequence[tuple[str, str, str, int, int]]) -> list[list[str]]:
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
_LINE = ("campaign", *(one.name for one in fields(Line) if one.name != "rank"), "first rank", "last rank")


def _campaign_facts(entry: Entry) -> dict[str, Any]:
    """All but its tables, which are in files of their own."""
    facts = {name: value for name, value in asdict(entry).items() if name not in ("lines", "sweeps", "order")}
    return facts | {"methods": entry.methods}


def _campaign_row(e: Entry) -> tuple[object, ...]:
    lists = (", ".join(each) for each in (e.profiles, e.backbones, e.texts, e.suites))
    seeds = " ".join(map(str, e.seeds))
    facts = (len(e.methods), seeds, e.records, e.failed, e.check.status, ", ".join(e.by), e.error)
    return (e.campaign, e.date, *lists, *facts)


def _line_row(entry: Entry, line: Line) -> tuple[object, ...]:
    facts = asdict(line)
    return (
        entry.campaign,
        *(value for name, value in facts.items() if name != "rank"),
        *(line.rank or ("", "")),
    )


def _json(data: Any) -> bytes:
    return (json.dumps(data, indent=1, sort_keys=True, allow_nan=False) + "\n").encode()


def _csv(header: Sequence[str], rows: Iterable[Sequence[object]]) -> bytes:
    output = StringIO()
    writer = csv.writer(output, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(map(csv_cell, row) for row in rows)
    return output.getvalue().encode()
