"""The site from a folder of results: only changed campaigns are rendered."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.comparison.ranked_items import may_show_sentences
from bench.data.data_source import data_folder
from bench.data.mteb_names import is_mteb
from bench.errors import BenchError, DataError, InputError, printable
from bench.gate.history_page import collect_history_facts
from bench.gate.verdict_history import read_history
from bench.records.campaign_lookup import check_campaign_options
from bench.records.environment import collect_training_environment
from bench.records.filesystem import walk_folder
from bench.records.record import RunRecord
from bench.records.store import ResultStore
from bench.reports.campaign import OTHERS
from bench.site.campaign_entry import CampaignCheck, CampaignEntry, format_entry, parse_entry
from bench.site.campaign_files import campaign_files
from bench.site.page_frame import Site, render_page
from bench.site.shared_pages import MOST_CURVES, write_shared_pages
from bench.site.site_files import SiteOutput, hash_content, hash_folder, hash_program, open_site
from bench.verify.repeatability import REPEATABLE


@dataclass(frozen=True)
class SiteRequest:
    """The sources and settings of a site."""

    results: Path
    out: Path
    data: Path | None  # for verification, and for the items of suites that may be shown
    url: str  # public address, or ""
    title: str
    history: Path | None  # verdicts of bench check --json, for a page of builds
    level: str  # what records have to be, of bench.verify.repeatability
    check: Callable[[ResultStore], CampaignCheck]
    quotes: Callable[[Mapping[str, bytes], Sequence[RunRecord], str], None]  # raises for quoted sentences
    progress: Callable[[int], None] = lambda _: None


@dataclass
class SiteResult:
    """The counts of a build: campaigns rendered and reused, old files removed, and problems."""

    made: int = 0
    kept: int = 0
    removed: int = 0
    errors: list[BenchError] = field(default_factory=list)  # of campaigns that can't be shown
    # campaigns with findings or unreadable records, or with less than the level, each with its shortfall
    doubtful: dict[str, str] = field(default_factory=dict)


def find_campaigns(results: Path) -> list[str]:
    """Return the names of the campaigns in a results folder; raises InputError for an empty one."""
    names = []
    for path in sorted(results.iterdir()) if results.is_dir() else ():
        visible = path.is_dir() and not path.name.startswith(".")
        # a campaign with unreadable folders is listed too: its page reports them
        if visible and (any(path.glob("*/*/*/*.json")) or walk_folder(path).closed):
            names.append(path.name)
    if not names:
        check_campaign_options(results, None)
        expected = "a folder of campaigns, as bench run makes"
        raise InputError("no campaign here", where=f"--results {results}", expected=expected)
    return names


def build_site(request: SiteRequest) -> SiteResult:
    """Make or update the site; raises InputError, DataError for other verdicts, or StorageError."""
    names = find_campaigns(request.results)
    history = None if request.history is None else read_history(request.history)
    output, result = open_site(request.out), SiteResult()
    site = Site(request.title, request.url, history is not None)
    settings = f"{request.title} {request.url} {history is not None} {_describe_data(request.data)}"
    settings += f" {request.level}"
    if request.level == REPEATABLE:  # then pages depend on the machine
        settings += f" {collect_training_environment('cpu')}"
    base = hash_content(f"{hash_program()} {settings}".encode())
    stores = {name: ResultStore(request.results, name) for name in names}
    prints = {
        name: hash_content(f"{base} {hash_folder(store.root)}".encode()) for name, store in stores.items()
    }
    output.begin([name for name in names if output.prints.get(name) != prints[name]])
    entries, curves = [], {}
    for name, store in stores.items():
        entry = _reuse_entry(output, name) if output.prints.get(name) == prints[name] else None
        if entry is not None:
            result.kept += 1
        else:
            entry = _render_campaign(request, output, store, site, result, prints[name])
            result.made += 1
            if not entry.error:
                output.complete(name, prints[name])
        if entry.error:
            prints[name] = ""  # try again in the next build
        elif entry.failed or entry.check.status == "faults" or entry.check.shortfall:
            result.doubtful[name] = entry.check.shortfall
        entries.append(entry)
        curves[name] = _read_curves(output, name)
        request.progress(1)
    write_shared_pages(output, site, entries, curves)
    if history is not None:
        facts = collect_history_facts(history, history.lines(None))
        output.put("history.html", render_page("history.html", site.below(0, "history"), **facts))
    result.removed = output.finish(prints)
    return result


def _describe_data(data: Path | None) -> str:
    """List path, size and time of all evaluation data, which decide what is verified."""
    root, visited, lines = data_folder(data), set(), []
    for top, folders, names in os.walk(root or os.devnull, followlinks=True):
        folders[:] = [name for name in folders if os.path.realpath(os.path.join(top, name)) not in visited]
        visited |= {os.path.realpath(os.path.join(top, name)) for name in folders}
        for path in (Path(top, name) for name in (*folders, *names)):
            with suppress(OSError):  # a link to nothing
                facts = path.stat()
                lines.append(f"{path}" if path.is_dir() else f"{path} {facts.st_size} {facts.st_mtime_ns}")
    return "\n".join(sorted(lines))


def _reuse_entry(output: SiteOutput, name: str) -> CampaignEntry | None:
    """Return the entry of a campaign whose pages can stay."""
    below = f"campaigns/{name}/"
    if not output.keep(below):
        return None
    path = output.root / below / "campaign.json"
    try:
        entry = parse_entry(path.read_text(encoding="utf-8"), str(path))
    except (DataError, OSError, UnicodeDecodeError):
        return None
    return entry if entry.campaign == name else None


def _render_campaign(
    request: SiteRequest, output: SiteOutput, store: ResultStore, site: Site, result: SiteResult, source: str
) -> CampaignEntry:
    def remember(part: str, compute: Callable[[], Any]) -> Any:
        return output.remember(f"{store.campaign}.{part}", source, compute)

    try:
        _check_quotes(request, store)
        entry, files = campaign_files(store, request.check, request.data, site, remember)
    except BenchError as error:
        result.errors.append(error)
        entry = CampaignEntry(store.campaign, error=printable(" ".join(error.what.split())))
        page = render_page("unshown.html", site.below(2, store.campaign), entry=entry)
        files = {"campaign.json": format_entry(entry).encode(), "index.html": page}
    for path, content in files.items():
        output.put(f"campaigns/{store.campaign}/{path}", content)
    return entry


def _check_quotes(request: SiteRequest, store: ResultStore) -> None:
    """Raise DataError for files that quote a sentence of data that may not be shown."""
    record_paths = [path for path in store.root.glob("*/*/*/*.json") if not path.name.startswith(".")]
    # the stem is the suite: a record elsewhere is refused
    if all(may_show_sentences(path.stem) for path in record_paths):
        return
    records, _ = store.scan()
    secret = [r for r in records if not may_show_sentences(r.suite) and not is_mteb(r.suite)]
    if not secret:
        return
    other_paths = (path for pattern in OTHERS for path in store.root.glob(pattern))
    texts = {
        path.relative_to(store.root).as_posix(): path.read_bytes().decode(errors="replace").encode()
        for path in (*record_paths, *other_paths)
        if path.is_file() and path.suffix in (".csv", ".json", ".txt", ".md", ".html")
    }
    request.quotes(texts, secret, f"campaign {store.campaign}")


def _read_curves(output: SiteOutput, name: str) -> dict[str, list[list[str]]]:
    path = output.root / f"campaigns/{name}/curves.json"
    try:
        drawings: dict[str, list[list[str]]] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return {method: drawn[:MOST_CURVES] for method, drawn in drawings.items()}
