"""The site from a folder of results: a campaign at a time, and again only what changed."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from bench.comparison.ranked_items import may_show_sentences
from bench.data.mteb_names import is_mteb
from bench.data.source import data_folder
from bench.errors import BenchError, DataError, InputError, printable
from bench.gate.history_page import collect_history_facts
from bench.gate.verdict_history import read_history
from bench.records.filesystem import walk_folder
from bench.records.record import RunRecord
from bench.records.store import ResultStore
from bench.reports.campaign import OTHERS
from bench.site.campaign_entry import CampaignCheck, CampaignEntry, format_entry, parse_entry
from bench.site.campaign_page import campaign_files
from bench.site.method_pages import MOST_CURVES
from bench.site.output import SiteOutput, hash_content, hash_folder, hash_program, open_site
from bench.site.page import Site, render_page
from bench.site.shared_pages import write_shared_pages


@dataclass(frozen=True)
class SiteRequest:
    """What a site is made of.

    Args:
        results: Folder of campaigns.
        out: Folder of the site.
        data: Evaluation data, for verification and for the items of suites that may be shown.
        url: Where it will be published; "" where nobody says.
        title: Its title.
        history: Folder of verdicts of ``bench check --json``; None for no page of builds.
        check: Verifies a campaign.
        quotes: Raises DataError where texts quote a sentence of the records' suites.
        progress: Called with finished campaigns.
    """

    results: Path
    out: Path
    data: Path | None
    url: str
    title: str
    history: Path | None
    check: Callable[[ResultStore], CampaignCheck]
    quotes: Callable[[Mapping[str, bytes], Sequence[RunRecord], str], None]
    progress: Callable[[int], None] = lambda _: None


@dataclass
class SiteResult:
    """What a build did.

    Args:
        made: Campaigns that were rendered.
        kept: Campaigns that had not changed.
        removed: Files of the last build that are no more.
        errors: Campaigns that can't be shown, and why.
        doubtful: Campaigns with findings of verification, or records that can't be read.
    """

    made: int = 0
    kept: int = 0
    removed: int = 0
    errors: list[BenchError] = field(default_factory=list)
    doubtful: list[str] = field(default_factory=list)


def find_campaigns(results: Path) -> list[str]:
    """Return the names of the campaigns in a results folder; raises InputError where there are none."""
    there = sorted(path for path in results.iterdir() if path.is_dir()) if results.is_dir() else []
    found = [path.name for path in there if not path.name.startswith(".") and _may_hold_records(path)]
    if not found:
        raise InputError(
            "no campaign here",
            where=f"--results {results}",
            expected="a folder of campaigns, as bench run makes",
        )
    return found


def _may_hold_records(folder: Path) -> bool:
    """True for a folder with records, or with one that can't be read, so that the campaign says so."""
    return any(folder.glob("*/*/*/*.json")) or bool(walk_folder(folder).closed)


def build_site(asked: SiteRequest) -> SiteResult:
    """Make the site, or bring it up to date.

    Raises:
        InputError: no campaign, or an output folder that holds something else.
        DataError: a folder of verdicts with something else in it.
        StorageError: the site can't be written.
    """
    names = find_campaigns(asked.results)
    history = None if asked.history is None else read_history(asked.history)
    output, built = open_site(asked.out), SiteResult()
    site = Site(asked.title, asked.url, history is not None)
    data = _describe_data(asked.data)
    base = hash_content(f"{hash_program()} {asked.title} {asked.url} {history is not None} {data}".encode())
    stores = {name: ResultStore(asked.results, name) for name in names}
    prints = {
        name: hash_content(f"{base} {hash_folder(store.root)}".encode()) for name, store in stores.items()
    }
    output.begin([name for name in names if output.prints.get(name) != prints[name]])
    entries, curves = [], {}
    for name, store in stores.items():
        entry = _reuse_entry(output, name) if output.prints.get(name) == prints[name] else None
        if entry is not None:
            built.kept += 1
        else:
            entry = _render_campaign(asked, output, store, site, built)
            built.made += 1
        if entry.error:
            prints[name] = ""  # try again
        elif entry.failed or entry.check.status == "faults":
            built.doubtful.append(name)
        entries.append(entry)
        curves[name] = _read_curves(output, name)
        asked.progress(1)
    write_shared_pages(output, site, entries, curves)
    if history is not None:
        facts = collect_history_facts(history, history.lines(None))
        output.put("history.html", render_page("history.html", site.below(0, "history"), **facts))
    built.removed = output.finish(prints)
    return built


def _describe_data(data: Path | None) -> str:
    """What there is of the evaluation data, which decides what is verified: a file's path, size and time."""
    folder, seen, found = data_folder(data), set(), []
    for top, folders, names in os.walk(folder or os.devnull, followlinks=True):
        folders[:] = [name for name in folders if os.path.realpath(os.path.join(top, name)) not in seen]
        seen |= {os.path.realpath(os.path.join(top, name)) for name in folders}
        for path in (Path(top, name) for name in (*folders, *names)):
            with suppress(OSError):  # a link to nothing
                facts = path.stat()
                size_and_time = "" if path.is_dir() else f" {facts.st_size} {facts.st_mtime_ns}"
                found.append(f"{path}{size_and_time}")
    return "\n".join(sorted(found))


def _reuse_entry(output: SiteOutput, name: str) -> CampaignEntry | None:
    """The entry of a campaign that hasn't changed; None where its pages have to be made."""
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
    asked: SiteRequest, output: SiteOutput, store: ResultStore, site: Site, built: SiteResult
) -> CampaignEntry:
    """Render a campaign; one that can't be shown is an entry that says why."""
    try:
        _check_quotes(asked, store)
        entry, files = campaign_files(store, asked.check, asked.data, site)
    except BenchError as error:
        built.errors.append(error)
        entry = CampaignEntry(store.campaign, error=printable(" ".join(error.what.split())))
        facts = {"entry": entry}
        files = {
            "campaign.json": format_entry(entry).encode(),
            "index.html": render_page("unshown.html", site.below(2, store.campaign), **facts),
        }
    for path, content in files.items():
        output.put(f"campaigns/{store.campaign}/{path}", content)
    return entry


def _check_quotes(asked: SiteRequest, store: ResultStore) -> None:
    """Refuse records and files of other commands that quote a sentence of data that may not be shown."""
    own = [path for path in store.root.glob("*/*/*/*.json") if not path.name.startswith(".")]
    if all(
        may_show_sentences(path.stem) for path in own
    ):  # the stem is the suite: a record elsewhere is refused
        return
    others = (path for pattern in OTHERS for path in store.root.glob(pattern))
    paths = [path for path in (*own, *others) if path.is_file()]
    records, _ = store.scan()
    secret = [r for r in records if not may_show_sentences(r.suite) and not is_mteb(r.suite)]
    if not secret:
        return
    texts = {
        path.relative_to(store.root).as_posix(): path.read_bytes().decode(errors="replace").encode()
        for path in paths
        if path.suffix in (".csv", ".json", ".txt", ".md", ".html")
    }
    asked.quotes(texts, secret, f"campaign {store.campaign}")


def _read_curves(output: SiteOutput, name: str) -> dict[str, list[list[str]]]:
    """Drawings of a campaign's curves, a few a method."""
    path = output.root / f"campaigns/{name}/curves.json"
    try:
        found: dict[str, list[list[str]]] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return {method: drawn[:MOST_CURVES] for method, drawn in found.items()}
