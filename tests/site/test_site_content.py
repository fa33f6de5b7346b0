"""What the site says: the same as the commands, links that lead somewhere, and no sentence of real data."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from bench.comparison import ranked_items
from bench.data.tasks import PairSubset, PairTask
from bench.data.toy_suite import make_toy_task
from bench.eval.rescoring import load_record_tasks
from bench.records.record import RunRecord, parse_record
from bench.records.store import ResultStore
from bench.reports.campaign import make_campaign
from bench.reports.merge_campaigns import scan_campaign
from bench.reports.report import render_report
from bench.reports.tables.leaderboard import make_leaderboard
from bench.site.campaign_files import rank_by_seed_count
from tests.support.campaigns import HOSTILE, make_record
from tests.support.site import (
    RESULTS,
    add,
    call,
    contents,
    dead_links,
    hostile,
    make_site,
    read,
    real,
    small,
    taken,
    toy_record,
)
from tests.support.standings import alone, seeds

NAMES = HOSTILE[:4]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Results with hostile names and true records, and their site."""
    folder = tmp_path_factory.mktemp("site")
    hostile(folder / "results", NAMES)
    real(folder / "results")
    small(folder / "results", "plain")
    code, _, err = make_site(folder / "results", folder / "site", "--url", "https://example.org")
    assert (code, "internal error" in err, "can't be shown" in err) == (1, False, False)
    return folder / "results", folder / "site"


def test_every_link_leads_somewhere(made: tuple[Path, Path]) -> None:
    _, site = made
    assert dead_links(site) == []
    links = [link for path in site.rglob("*.html") for link in read(path).links]
    assert len(links) > 400
    assert not [link for link in links if link.startswith(("/", "file:", "data:", "javascript:", "//"))]
    index = taken(site / "data/compare.js")
    for campaign, profile, suite, rows, *_ in index["places"]:
        blocks = taken(site / "campaigns" / campaign / "pairs.js")
        (block,) = (b for b in blocks if (b["profile"], b["suite"]) == (profile, suite))
        assert sorted(block["rows"]) == sorted(index["rows"][number] for number in rows)
        places = {(i, j) for i, j, *_ in block["pairs"]}
        assert places == set(combinations(range(len(rows)), 2))
    for _, _, address, _ in taken(site / "data/search.js"):
        assert (site / address).is_file()
    assert {name for kind, name, *_ in taken(site / "data/search.js") if kind == "method"} >= set(NAMES)


def test_no_name_is_markup(made: tuple[Path, Path]) -> None:
    _, site = made
    for path in site.rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        assert "<script>" not in text
        assert "<img" not in text
        assert len(re.findall("<script ", text)) == 1 + text.count('<script type="application/json"')
    page = read(site / "campaigns/hostile/index.html").text
    assert '<b>&"x" `[y](z)' in page  # who sent it
    assert "out of luck" in page


def test_files_of_tables_are_what_the_report_prints(made: tuple[Path, Path]) -> None:
    results, site = made
    for name, least in (("hostile", 6), ("real", 5)):
        folder = site / "campaigns" / name / "tables"
        tables = sorted(path.stem for path in folder.glob("*.json"))
        assert len(tables) >= least
        store = ResultStore(results, name)
        campaign = make_campaign(store, [record for record, _ in scan_campaign(store)])
        for table in tables:
            for form in ("csv", "json"):
                assert (folder / f"{table}.{form}").read_text() == render_report(campaign, form, table), table
            rows = list(csv.reader(io.StringIO((folder / f"{table}.csv").read_text())))
            assert len(rows) > 1
            assert json.loads((folder / f"{table}.json").read_text())
        packed = (folder / "records.csv.gz").read_bytes()
        assert gzip.decompress(packed).decode() == render_report(campaign, "csv")
    where = ("--results", str(results), "--campaign", "real")
    said = call("report", *where, "--table", "neighbours", "--format", "csv")
    assert said == (0, (site / "campaigns/real/tables/neighbours.csv").read_text(), "")
    for stem in ("campaigns", "methods", "published"):
        table_rows = list(csv.DictReader(io.StringIO((site / f"{stem}.csv").read_text())))
        found = json.loads((site / f"{stem}.json").read_text())
        assert table_rows
        assert stem == "published" or len(found) == len(table_rows)
    listed = list(csv.DictReader(io.StringIO((site / "methods.csv").read_text())))
    assert {line["method"] for line in listed} >= {"simcse", "untrained"}
    (failed,) = (line for line in listed if (line["campaign"], line["method"]) == ("hostile", "esimcse"))
    assert failed["mean"] == ""


def test_a_seed_less_is_the_leaderboard_of_those_seeds(tmp_path: Path) -> None:
    records = [
        *seeds("a", 0.52, 0.53, 0.525, 0.521),
        *seeds("b", 0.50, 0.515, 0.509, 0.512),
        *seeds("c", 0.45, 0.44, 0.446),
        *seeds("once", 0.48),
        *(replace(r, training=r.training | {"supervised": True}) for r in seeds("labelled", 0.6, 0.61)),
        alone("fixed", 0.3),
    ]
    store = add(ResultStore(tmp_path, "all"), *records)
    (used,) = rank_by_seed_count(make_campaign(store, store.records()))
    assert (used.seeds, len(used.steps)) == ((1, 2, 3, 4), 4)
    for number, step in enumerate(used.steps, start=1):
        few = [r for r in store.records() if r.seed is None or r.seed <= number]
        other = add(ResultStore(tmp_path, f"first{number}"), *few)
        campaign = make_campaign(other, other.records())
        table = make_leaderboard(replace(campaign, all_rows=True), campaign.records)
        rows = [row for row in table.rows if row.ranked]
        wanted = {
            row.method: (row.cells["avg"].mean, row.cells["avg"].sd, row.rank or (None, None)) for row in rows
        }
        assert {row[0]: (row[1], row[2], (row[4], row[5])) for row in step} == wanted
        assert [row[1] for row in step] == sorted((row[1] for row in step), reverse=True)
    assert used.steps[0] != used.steps[3]
    assert {row[0]: row[3] for row in used.steps[3]} == {"a": 4, "b": 4, "c": 3, "once": 1, "fixed": 0}


def planted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every suite have one task with a sentence of its own, as if its data were at hand."""

    def tasks(record: RunRecord, data: Path | None) -> Mapping[str, PairTask]:
        text = f"The walrus of {record.suite} juggles seven green lanterns at noon"
        subset = PairSubset("all", (text,) * 3, ("So it does",) * 3, (0.0, 1.0, 2.0))
        return {"PLANTED": PairTask("PLANTED", (subset,))}

    monkeypatch.setattr(ranked_items, "load_record_tasks", tasks)
    given = {"PLANTED": np.array([0.1, 0.3, 0.2], dtype=np.float32)}
    monkeypatch.setattr(ResultStore, "predictions", lambda store, record: given)


def test_sentences_of_another_suite_are_never_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planted(monkeypatch)
    for suite in ("sts7", "toy", "local:walrus", "stsb-dev"):
        for method in ("simcse", "esimcse"):
            for seed in (1, 2):
                scores = {"PLANTED": 0.5 + 0.01 * seed}
                add(ResultStore(tmp_path / "results", "camp"), make_record(method, seed, scores, suite=suite))
    code, _, err = make_site(tmp_path / "results", tmp_path / "site")
    assert (code, "can't be shown" in err, "internal error" in err) == (1, False, False)
    quoting = {
        path: set(re.findall(r"walrus of (\S+) juggles", content.decode()))
        for path, content in contents(tmp_path / "site").items()
        if b"walrus of" in content
    }
    assert quoting == {"campaigns/camp/items-0.js": {"toy"}}


def test_pairs_of_the_embedded_suite_are_shown_with_their_ranks(tmp_path: Path) -> None:
    store = ResultStore(tmp_path / "results", "camp")
    for method, noise in (("simcse", 0.3), ("esimcse", 3.0)):
        toy_record(store, method, 1, noise)
    make_site(tmp_path / "results", tmp_path / "site")
    data = taken(tmp_path / "site/campaigns/camp/items-0.js")
    (one,) = data["tasks"]
    task = make_toy_task()
    assert data["rows"] == ["esimcse", "simcse"]
    assert [tuple(pair) for pair in one["texts"]] == list(task.all_pairs())
    for ranks, record in zip(one["ranks"], store.records(), strict=True):
        given = store.predictions(record)["TOY"]
        assert ranks[int(given.argmax())] == 1
        assert ranks[int(given.argmin())] == task.pairs
    assert "items-0.js" not in (tmp_path / "site/items.html").read_text()
    assert '<option value="camp/0">' in (tmp_path / "site/items.html").read_text()


@pytest.mark.parametrize(
    "place", ["overlap-wiki.csv", "probes.json", "along.json", "gradient/a/gradient.json", "record"]
)
def test_a_file_that_quotes_real_data_is_refused(data_dir: Path, tmp_path: Path, place: str) -> None:
    record = parse_record(min(RESULTS.glob("*/*/*/*/sts7.json")).read_text(), "")
    task = next(iter(load_record_tasks(record, data_dir).values()))
    assert isinstance(task, PairTask)
    sentence = next(first for first, _ in task.all_pairs() if len(re.findall(r"\w+", first)) > 8)
    store = small(tmp_path / "results", "camp")
    if place == "record":
        record = replace(record, notes=(*record.notes, f"it read {sentence}"))
    else:
        file = store.root / place
        file.parent.mkdir(parents=True, exist_ok=True)
        quoted = json.dumps([{"text": sentence.lower()}], ensure_ascii=False)
        file.write_text(f"task,sentence\nSTSB,{sentence}\n" if place.endswith("csv") else quoted)
        if "gradient" in place:  # another file of its name
            (store.root / "gradient/b").mkdir()
            (store.root / "gradient/b/gradient.json").write_text("{}")
    add(store, replace(record, predictions=None))
    code, _, err = make_site(tmp_path / "results", tmp_path / "site", "--data", str(data_dir))
    assert (code, "test sentence" in err) == (1, True), err
    words = re.findall(r"\w+", sentence.lower())
    for content in contents(tmp_path / "site").values():
        assert " ".join(words) not in " ".join(re.findall(r"\w+", content.decode().lower()))
    assert "test sentence" in read(tmp_path / "site/campaigns/camp/index.html").text


def test_history_is_a_page_where_it_is_asked_for(made: tuple[Path, Path], tmp_path: Path) -> None:
    from bench.gate.verdict import CellVerdict, Drop, Gate, Status
    from bench.gate.verdict_tables import format_gate_json

    cell = CellVerdict(("mini", HOSTILE[0], "toy"), Status.OK, (1, 2), (1, 2), {"avg": Drop(0.6, 0.59)}, None)
    (tmp_path / "verdicts").mkdir()
    facts = {"bench": "0.2", "commit": "c0ffee" * 6, "date": "2026-01-01T00:00:00+00:00"}
    (tmp_path / "verdicts/a.json").write_text(format_gate_json(Gate((cell,), 0.005, 0.95, build=facts)))
    small(tmp_path / "results", "one")
    more = ("--history", str(tmp_path / "verdicts"))
    make_site(tmp_path / "results", tmp_path / "site", *more)
    assert HOSTILE[0] in read(tmp_path / "site/history.html").text
    assert "history.html" in read(tmp_path / "site/index.html").links
    assert dead_links(tmp_path / "site") == []
    make_site(tmp_path / "results", tmp_path / "site")
    assert not (tmp_path / "site/history.html").exists()
    assert dead_links(tmp_path / "site") == []
    (tmp_path / "verdicts/a.json").write_text("{")
    code, _, err = make_site(tmp_path / "results", tmp_path / "site", *more)
    assert (code, err.count("\n")) == (2, 1)
