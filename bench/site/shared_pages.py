"""The pages of all campaigns together: index, methods, published figures, comparison, items, search, feed."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from io import StringIO
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from bench.comparison.selection import group_by
from bench.data.published_tables import PAPERS, PublishedFigure, load_figures, published_rows
from bench.errors import printable
from bench.method_card import MethodCard
from bench.records.record import safe_name
from bench.registry import own_methods
from bench.render.formats import csv_cell
from bench.render.grid import format_score
from bench.render.method_names import printed_name
from bench.reports.tables.method_cards import Pieces, split_links
from bench.site.campaign_entry import CampaignEntry, LeaderboardLine, SweepTable
from bench.site.page_frame import Site, read_assets, render_data_file, render_page
from bench.site.pair_verdict import WORDS
from bench.site.site_files import SiteOutput

SUITES = {"sts7": "Seven STS tasks", "transfer7": "Seven transfer tasks"}
"""Suites with published figures."""
_NEWEST = 50
"""Campaigns in the feed."""
MOST_CURVES = 6
"""Drawings on a page; further ones are on the pages of their campaigns."""
Curves = Mapping[str, Mapping[str, Sequence[Sequence[str]]]]
"""Titles and drawings of curves, by campaign and registered name."""


def write_shared_pages(
    output: SiteOutput, site: Site, entries: Sequence[CampaignEntry], curves: Curves
) -> None:
    """Write the pages of all campaigns together, and their tables as files."""
    for path, content in read_assets().items():
        output.put(path, content)
    entries, names = sort_entries(entries), choose_names(entries)
    output.put("index.html", render_page("index.html", site.below(0, "campaigns"), entries=entries))
    output.put("campaigns.json", _format_json(list(map(_campaign_facts, entries))))
    output.put("campaigns.csv", _format_csv(_CAMPAIGN, map(_campaign_row, entries)))
    pages, methods = ["index.html", "methods/index.html", "published.html", "compare.html", "items.html"], []
    for method in build_method_pages(entries, curves):
        content = render_page("method.html", site.below(1, method.name), method=method)
        output.put(f"methods/{method.file}", content)
        summary = "imported" if method.sources else "a plug-in's"
        if method.card:
            summary = method.card.summary
        campaigns = {entry.campaign for entry, _ in method.rows}
        methods.append((method.name, method.shown, method.file, summary, len(method.rows), len(campaigns)))
        pages.append(f"methods/{method.file}")
    methods.sort(key=lambda method: method[1].lower())
    output.put("methods/index.html", render_page("methods.html", site.below(1, "methods"), methods=methods))
    lines = [{"campaign": entry.campaign} | asdict(line) for entry in entries for line in entry.lines]
    output.put("methods.json", _format_json(lines))
    for line in lines:
        line["first rank"], line["last rank"] = line.pop("rank") or ("", "")
    output.put("methods.csv", _format_csv(_LINE, (line.values() for line in lines)))
    _write_published(output, site, entries, names)
    output.put("data/compare.js", render_data_file("compare", _index_rows(entries, names)))
    output.put("compare.html", render_page("compare.html", site.below(0, "compare")))
    items = [(entry.campaign, path) for entry in entries for path in _list_item_files(output, entry.campaign)]
    output.put("items.html", render_page("items.html", site.below(0, "items"), browsed=items))
    output.put("data/search.js", render_data_file("search", _build_search_index(entries, methods)))
    sitemap = f"Sitemap: {site.url}sitemap.xml\n" if site.url else ""
    output.put("robots.txt", f"User-agent: *\nAllow: /\n{sitemap}".encode())
    output.put(".nojekyll", b"")
    if site.url:
        pages += [f"campaigns/{entry.campaign}/index.html" for entry in entries]
        output.put("sitemap.xml", render_sitemap(site, pages))
        output.put("feed.xml", render_feed(site, entries))


@dataclass(frozen=True)
class MethodPage:
    """A method of the site."""

    name: str
    shown: str  # as papers print it
    file: str  # below methods/
    card: MethodCard | None  # None for a plug-in's
    paper: Pieces
    code: Pieces
    rows: tuple[tuple[CampaignEntry, LeaderboardLine], ...]
    curves: tuple[tuple[str, str, str], ...]  # campaign, title, svg
    sweeps: tuple[tuple[str, SweepTable], ...]
    published: tuple[tuple[str, str, str], ...]  # paper and table, backbone, average

    @property
    def sources(self) -> list[str]:
        """Return the notes on its imported rows, each once."""
        return list(dict.fromkeys(line.source for _, line in self.rows if line.source))


def method_file(name: str) -> str:
    """Return the file name of a method's page; index.html is the list of methods."""
    return f"{safe_name(name if name.lower() != 'index' else 'index of a method')}.html"


def build_method_pages(entries: Sequence[CampaignEntry], curves: Curves) -> Iterator[MethodPage]:
    """Yield the campaigns' methods by name."""
    methods = own_methods()
    rows: dict[str, list[tuple[CampaignEntry, LeaderboardLine]]] = {}
    for entry in entries:
        for line in entry.lines:
            rows.setdefault(line.name, []).append((entry, line))
    published: dict[str, list[tuple[str, str, str]]] = {}
    for row in published_rows("sts7"):
        if (figure := row.figures.get("avg")) is not None:
            average = (row.first.source, row.first.backbone, figure.text)
            published.setdefault(row.first.method, []).append(average)
    for name in sorted(rows):
        card = methods[name].card if name in methods else None
        drawings = []
        for campaign, drawn in curves.items():
            drawings += [(campaign, str(title), str(svg)) for title, svg in drawn.get(name, ())]
        sweeps = [(entry.campaign, table) for entry in entries for of, table in entry.sweeps if of == name]
        yield MethodPage(
            name,
            printed_name(name),
            method_file(name),
            card,
            split_links(card.paper) if card else (),
            split_links(card.code, repository=True) if card else (),
            tuple(rows[name]),
            tuple(drawings[:MOST_CURVES]),
            tuple(sweeps),
            tuple(published.get(name, ())),
        )


def _write_published(
    output: SiteOutput, site: Site, entries: Sequence[CampaignEntry], names: Mapping[str, str]
) -> None:
    tables = {suite: compare_published(entries, suite) for suite in SUITES}
    misprints: list[tuple[str, ...]] = []  # source, backbone, method, task, printed figure, explanation
    for f in load_figures():
        place = (f.source, f.backbone, printed_name(f.method), f.task, f.text)
        misprints += [(*place, note) for note in f.misprints]
    facts = {
        "misprints": misprints,
        "disagreements": list_disagreements(),
        "order": [(entry.campaign, row) for entry in entries for row in entry.order],
    }
    context = facts | {"tables": tables, "titles": SUITES, "papers": list(PAPERS.values())}
    context["names"] = names
    output.put("published.html", render_page("published.html", site.below(0, "published"), **context))
    rows: list[tuple[str, ...]] = []
    for suite, table in tables.items():
        for method in table:
            ours = method.ours or (("", "", ""),)
            for source, text in method.printed:
                rows += [(suite, method.shown, method.backbone, source, text, *row) for row in ours]
    header = ("suite", "method", "backbone", "source", "printed", "campaign", "row", "ours")
    output.put("published.csv", _format_csv(header, rows))
    content = {suite: list(map(asdict, table)) for suite, table in tables.items()}
    output.put("published.json", _format_json({"tables": content} | facts))


def _list_item_files(output: SiteOutput, name: str) -> list[str]:
    folder = f"campaigns/{name}/"
    names = (path.removeprefix(folder) for path in output.written if path.startswith(f"{folder}items-"))
    return sorted(name for name in names if "/" not in name)


def sort_entries(entries: Sequence[CampaignEntry]) -> list[CampaignEntry]:
    """Return the campaigns of real text first, then those of most seeds times rows; unreadable ones last."""

    def order(entry: CampaignEntry) -> tuple[bool, bool, int, str]:
        if not entry.boards:
            return True, True, 0, entry.campaign
        synthetic, firmness, _ = entry.boards[0].sort_key
        return False, synthetic, firmness, entry.campaign

    return sorted(entries, key=order)


def choose_names(entries: Sequence[CampaignEntry]) -> dict[str, str]:
    """Return the printed name of every row by its id, with the id where a name isn't one row's alone."""
    lines = [line for entry in entries for line in entry.lines]
    by_id = group_by(lines, lambda line: line.method)
    names = {}
    for method, same in by_id.items():
        shown = {line.shown for line in same}
        names[method] = shown.pop() if len(shown) == 1 else printable(method)
    counts = Counter(names.values())
    for method, name in names.items():
        if counts[name] > 1 and name != method:
            names[method] = f"{name} ({printable(method)})"
    return names


def _index_rows(entries: Sequence[CampaignEntry], names: Mapping[str, str]) -> dict[str, Any]:
    """Return the rows of each campaign, profile and suite, for the page that compares two.

    "words" are the templates of verdicts, "names" those of "rows". A place has its leaderboard's title
    too, and whether its data are synthetic.
    """
    rows: dict[str, int] = {}
    places = []
    for entry in entries:
        for board in entry.boards:
            numbers = []
            for line in entry.lines:
                if (line.profile, line.suite) == (board.profile, board.suite) and line.mean is not None:
                    numbers.append(rows.setdefault(line.method, len(rows)))
            if numbers:
                place = [entry.campaign, board.profile, board.suite]
                places.append([*place, numbers, board.title, board.synthetic])
    shown = [names[method] for method in rows]
    return {"rows": list(rows), "names": shown, "places": places, "words": WORDS}


def _build_search_index(
    entries: Sequence[CampaignEntry], methods: Sequence[tuple[str, str, str, str, int, int]]
) -> list[list[str]]:
    index = [
        ["method", shown, f"methods/{file}", f"{name} {text}"] for name, shown, file, text, *_ in methods
    ]
    for entry in entries:
        titles = [board.title for board in entry.boards]
        words = (
            *titles,
            *entry.profiles,
            *entry.backbones,
            *entry.suites,
            *entry.texts,
            *entry.by,
            *entry.methods,
        )
        index.append(["campaign", entry.campaign, f"campaigns/{entry.campaign}/index.html", " ".join(words)])
    return index


_CAMPAIGN = (
    *("campaign", "date", "profiles", "backbones", "texts", "suites", "methods", "seeds"),
    *("records", "failed", "verified", "by", "error"),
)
_COLUMNS = [column.name for column in fields(LeaderboardLine) if column.name != "rank"]
_LINE = ("campaign", *_COLUMNS, "first rank", "last rank")


_LEFT_OUT = ("lines", "boards", "sweeps", "order")
"""Facts of campaign.json that the list of campaigns lacks."""


def _campaign_facts(entry: CampaignEntry) -> dict[str, Any]:
    facts = asdict(entry) | {"methods": entry.methods}
    return {name: value for name, value in facts.items() if name not in _LEFT_OUT}


def _campaign_row(e: CampaignEntry) -> tuple[object, ...]:
    lists = map(", ".join, (e.profiles, e.backbones, e.texts, e.suites))
    seeds, by = " ".join(map(str, e.seeds)), ", ".join(e.by)
    return (
        *(e.campaign, e.date, *lists, len(e.methods), seeds),
        *(e.records, e.failed, e.check.status, by, e.error),
    )


def _format_json(data: Any) -> bytes:
    return (json.dumps(data, indent=1, sort_keys=True, allow_nan=False) + "\n").encode()


def _format_csv(header: Sequence[str], rows: Iterable[Iterable[object]]) -> bytes:
    output = StringIO()
    writer = csv.writer(output, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(map(csv_cell, row) for row in rows)
    return output.getvalue().encode()


def render_sitemap(site: Site, pages: Iterable[str]) -> bytes:
    """Return the sitemap of pages, given as paths below the root."""
    lines = "".join(f"<url><loc>{escape(site.url + path)}</loc></url>\n" for path in sorted(pages))
    head = '<?xml version="1.0" encoding="UTF-8"?>\n<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">\n'
    return f"{head}{lines}</urlset>\n".encode()


def render_feed(site: Site, entries: Sequence[CampaignEntry]) -> bytes:
    """Return an Atom feed of campaigns, the newest first."""
    dated = sorted((e for e in entries if e.date), key=lambda e: (e.date, e.campaign), reverse=True)
    newest = dated[:_NEWEST]
    items = "".join(_render_item(site, entry) for entry in newest)
    updated = newest[0].date if newest else "1970-01-01T00:00:00+00:00"
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n<feed xmlns="http://www.w3.org/2005/Atom">\n'
        f"<title>{escape(printable(site.title))}</title>\n<id>{escape(site.url)}</id>\n"
        f'<link href={quoteattr(site.url)}/>\n<link rel="self" href={quoteattr(site.url + "feed.xml")}/>\n'
        f"<updated>{escape(printable(updated))}</updated>\n{items}</feed>\n"
    ).encode()


def _render_item(site: Site, entry: CampaignEntry) -> str:
    address = f"{site.url}campaigns/{entry.campaign}/index.html"
    who = printable(", ".join(entry.by) or site.title)
    counts = f"{len(entry.methods)} methods, {entry.records} records"
    facts = f"{counts}, profile {', '.join(entry.profiles)}, {entry.check.status}"
    return (
        f"<entry><title>{escape(entry.campaign)}</title><id>{escape(address)}</id>"
        f"<link href={quoteattr(address)}/><updated>{escape(printable(entry.date))}</updated>"
        f"<author><name>{escape(who)}</name></author><summary>{escape(printable(facts))}</summary></entry>\n"
    )


@dataclass(frozen=True)
class PublishedComparison:
    """A method's printed averages on a backbone (source, figure), and ours (campaign, row, mean and sd)."""

    method: str
    shown: str
    backbone: str
    printed: tuple[tuple[str, str], ...]
    ours: tuple[tuple[str, str, str], ...]


def compare_published(entries: Sequence[CampaignEntry], suite: str) -> list[PublishedComparison]:
    """Return every method with a published average on a suite, the best first."""
    ours: dict[str, list[tuple[str, str, str]]] = {}
    for entry in entries:
        for line in entry.lines:
            if line.suite == suite and line.mean is not None:
                spread = "" if line.sd is None else f"±{100 * line.sd:.2f}"
                row = (entry.campaign, printable(line.method), f"{format_score(line.mean)}{spread}")
                ours.setdefault(line.name, []).append(row)
    rows = [row for row in published_rows(suite) if "avg" in row.figures]
    comparisons = []
    groups = group_by(rows, lambda row: (row.first.method, row.first.backbone))
    for (method, backbone), same in groups.items():
        printed = tuple((row.first.source, row.figures["avg"].text) for row in same)
        campaigns = tuple(ours.get(method, ()))
        comparisons.append(PublishedComparison(method, printed_name(method), backbone, printed, campaigns))

    def order(comparison: PublishedComparison) -> tuple[str, float, str]:
        best = max(float(text) for _, text in comparison.printed)
        return comparison.backbone, -best, comparison.method

    return sorted(comparisons, key=order)


def list_disagreements() -> list[tuple[str, str, str, str]]:
    """Return differing figures of two papers: method and backbone, section and task, and both figures."""
    rows = []
    same = group_by(load_figures(), lambda f: (f.section, f.backbone, f.method, f.setting, f.task, f.metric))
    for (section, backbone, method, *_, task, _), figures in same.items():
        papers: dict[str, PublishedFigure] = {}
        for figure in figures:
            papers.setdefault(figure.paper, figure)
        if len({figure.text for figure in papers.values()}) > 1:
            name = f"{printed_name(method)}, {backbone}" if backbone else printed_name(method)
            first, second, *_ = (f"{figure.source}: {figure.text}" for figure in papers.values())
            rows.append((name, f"{section}, {task}", first, second))
    return rows
