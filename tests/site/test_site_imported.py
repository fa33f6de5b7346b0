"""The site marks imported rows on every page that shows them, and names tasks as the unit of their tests."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from bench.imports.import_records import import_results
from bench.records.store import ResultStore
from bench.site.campaign_entry import parse_entry
from tests.support.chromium import chromium
from tests.support.published import published_results, three_models
from tests.support.site import make_site, read, taken

NOTE = "Imported (csv:table.csv, CC0): scores as published, which nobody here has checked."


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("imported")
    import_results(
        ResultStore(folder / "results", "board"), published_results(*three_models(), licence="CC0")
    )
    _, _, err = make_site(folder / "results", folder / "site")
    assert "can't be shown" not in err, err
    return folder / "site"


def test_rows_have_their_source(site: Path) -> None:
    path = site / "campaigns/board/campaign.json"
    entry = parse_entry(path.read_text(encoding="utf-8"), str(path))
    assert [line.source for line in entry.lines] == [NOTE] * 3
    pages = sorted((site / "methods").glob("imported*.html"))
    assert len(pages) == 3
    for page in pages:
        text = read(page).text
        assert NOTE in text
        assert "No method of bench's own" not in text
    header, *rows = (site / "methods.csv").read_text(encoding="utf-8").splitlines()
    assert "source" in header.split(",")
    assert all(NOTE.partition(",")[0] in row for row in rows)


def test_pairs_name_the_notes_of_both_rows(site: Path) -> None:
    (block,) = taken(site / "campaigns/board/pairs.js")
    assert [block["texts"][place] for place in block["imported"].values()] == [NOTE] * 3


def test_the_first_page_speaks_of_no_seeds(site: Path) -> None:
    assert "seed" not in read(site / "index.html").text


@pytest.mark.slow
def test_a_pair_says_where_its_scores_come_from(site: Path) -> None:
    with chromium() as browser:
        browser.open(site / "compare.html")
        for _ in range(100):
            if browser.run("document.querySelectorAll('#compared .command').length > 0"):
                break
            time.sleep(0.03)
        keys = browser.run("[...document.querySelectorAll('#compared .key')].map(p => p.textContent)")
        assert keys[0].startswith("t over tasks; ")
        assert keys[1:] == [NOTE]
        command = browser.run("document.querySelector('#compared .command').textContent")
        assert command.startswith("Tasks and assumptions: bench compare ")
        assert browser.complaints() == []
