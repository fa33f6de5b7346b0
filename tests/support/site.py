"""``bench site`` in tests: made in this process, and read as a browser without scripts reads it."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import numpy as np
import pytest
from scipy.stats import spearmanr

from bench.cli.main import main
from bench.data.toy_suite import make_toy_task
from bench.records.record import RunRecord
from bench.records.store import ResultStore
from tests.support.campaigns import HOSTILE, TASKS, make_record

RESULTS = Path(__file__).parents[2] / "results"
SENDERS = ('<b>&"x" `[y](z)', "é 中文 ]]>", "&lt;script&gt;")
SCRIPTED = ("compare.html", "items.html")
"""Pages whose hash is read by a script: it names no place on the page."""


def call(*arguments: str) -> tuple[int, str, str]:
    """Run the command line: (exit code, stdout, stderr)."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as stopped:
        main(list(arguments))
    return int(stopped.value.code or 0), out.getvalue(), err.getvalue()


def make_site(results: Path, out: Path, *more: str) -> tuple[int, str, str]:
    """Run ``bench site``."""
    return call("site", "--results", str(results), "--out", str(out), *more)


def contents(root: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {p.relative_to(root).as_posix(): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}


def times(root: Path) -> dict[str, int]:
    """When every file was written."""
    return {p.relative_to(root).as_posix(): p.stat().st_mtime_ns for p in root.rglob("*") if p.is_file()}


def taken(path: Path) -> Any:
    """What a data file hands over."""
    text = path.read_text(encoding="utf-8")
    assert text.startswith("bench.take(")
    name, end = json.JSONDecoder().raw_decode(text, len("bench.take("))
    assert isinstance(name, str)
    data, end = json.JSONDecoder().raw_decode(text, end + 1)
    assert text[end:] == ");\n"
    return data


class Read(HTMLParser):
    """A page: its links, the ids that they may name, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.ids: list[str] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep what leads elsewhere, and what may be led to."""
        for name, value in attrs:
            if name in ("href", "src"):
                self.links.append(value or "")
            elif name == "id":
                self.ids.append(value or "")

    def handle_data(self, data: str) -> None:
        """Keep the text."""
        self.words.append(data)

    @property
    def text(self) -> str:
        """All words with one space between them."""
        return " ".join(" ".join(self.words).split())


@cache
def _read(path: Path, _: int) -> Read:
    return Read(path.read_text(encoding="utf-8"))


def read(path: Path) -> Read:
    """Read a page."""
    return _read(path, path.stat().st_mtime_ns)


def dead_links(root: Path) -> list[str]:
    """Links of all pages that lead to no file of the site, or to no place on its page."""
    found = []
    for path in sorted(root.rglob("*.html")):
        page = read(path)
        found += [f"{path.relative_to(root)}: id {i} twice" for i in set(page.ids) if page.ids.count(i) > 1]
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme in ("http", "https"):
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path.resolve()
            place = unquote(parts.fragment)
            inside = target.is_relative_to(root.resolve()) and target.is_file()
            scripted = target.name in SCRIPTED and target.parent == root.resolve()
            if parts.scheme or not inside or (place and not scripted and place not in read(target).ids):
                found.append(f"{path.relative_to(root)}: {link}")
    return found


def toy_record(store: ResultStore, method: str, seed: int, noise: float) -> RunRecord:
    """Write a record of the embedded suite "toy" whose predictions, gold with noise, give its score."""
    task = make_toy_task()
    gold = task.subsets[0].gold
    rng = np.random.default_rng([seed, int(100 * noise)])
    given = (np.asarray(gold) + noise * rng.normal(size=len(gold))).astype(np.float32)
    value = float(spearmanr(given, gold).statistic)
    record = make_record(method, seed, {task.id: value}, suite="toy", name=method)
    record.tasks[task.id].update(sha256=task.sha256, pairs=task.pairs)
    scores = tuple(replace(s, n=task.pairs) if s.task == task.id else s for s in record.scores)
    return store.write(record.place, replace(record, scores=scores), {task.id: given})


def add(store: ResultStore, *records: RunRecord) -> ResultStore:
    """Write records without predictions."""
    for record in records:
        store.write(record.place, record, None)
    return store


def small(root: Path, campaign: str, *methods: str, seeds: int = 2) -> ResultStore:
    """A campaign of a few records of made-up scores."""
    store, rng = ResultStore(root, campaign), np.random.default_rng(len(campaign))
    for place, method in enumerate(methods or ("simcse", "esimcse")):
        for seed in range(1, seeds + 1):
            scores = {task: 0.5 + 0.02 * place + 0.01 * float(rng.normal()) for task in TASKS}
            add(store, make_record(method, seed, scores))
    return store


def failed(method: str, seed: int) -> RunRecord:
    """A cell that failed."""
    return replace(
        make_record(method, seed, dict.fromkeys(TASKS, 0.5)), scores=(), status="failed", reason="out of luck"
    )


def hostile(root: Path, names: Sequence[str] = HOSTILE) -> ResultStore:
    """Hostile names in methods, senders and reasons, on a suite of papers and on an embedded one."""
    store = ResultStore(root, "hostile")
    for place, method in enumerate(("simcse", *names)):
        for seed in range(1, 4):
            scores = {task: 0.5 + 0.05 * place + 0.001 * (seed * (place + 1) % 4) for task in TASKS}
            record = make_record(method, seed, scores, name=method)
            record.timing["merged"] = {
                "by": SENDERS[place % len(SENDERS)],
                "bundle": "b" * 64,
                "campaign": store.campaign,
            }
            add(store, record)
            if seed < 3:
                toy_record(store, method, seed, 0.5 + 0.5 * place)
    return add(store, failed("esimcse", 1))


def real(root: Path, campaign: str = "real") -> ResultStore:
    """Committed runs of three methods, with all that they hold."""
    for method in ("simcse", "tncse", "untrained"):
        shutil.copytree(RESULTS / "mini" / "mini" / method, root / campaign / "mini" / method)
    return ResultStore(root, campaign)
