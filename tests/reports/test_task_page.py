"""The page of rows that are tested over tasks: a browser draws a picked baseline as the program does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bench.imports.import_records import import_results
from bench.records.store import ResultStore
from bench.reports.campaign import Campaign, make_campaign
from bench.reports.report import render_report
from tests.support.chromium import Page, chromium
from tests.support.published import published_results, three_models

pytestmark = pytest.mark.slow
PARTS = ".cards, .forest tbody, .forest .axis, .heat tbody"
SEEN = (
    f"JSON.stringify([...document.querySelectorAll('{PARTS}')]"
    """.map(e => e.innerHTML.replace(/<g id="[^"]*">| class=""/g, '')))"""
)
CARDS = "document.querySelector('.cards').checkVisibility()"
ANSWERS = "[...document.querySelectorAll('.forest td.answer')].map(cell => cell.textContent)"


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    store = ResultStore(tmp_path_factory.mktemp("board") / "results", "board")
    import_results(store, published_results(*three_models()))
    return make_campaign(store, store.records())


@pytest.fixture(scope="module")
def browser() -> Iterator[Page]:
    with chromium() as opened:
        yield opened


def open_page(browser: Page, campaign: Campaign, folder: Path) -> None:
    path = folder / "report.html"
    path.write_text(render_report(campaign, "html"), encoding="utf-8")
    browser.open(path)


def pick(browser: Page, baseline: str) -> None:
    select = "document.querySelector('.pick-baseline')"
    browser.run(f"{select}.value = {json.dumps(baseline)}; {select}.dispatchEvent(new Event('change'))")


def test_without_a_baseline_ranks_stand_and_no_cards(
    browser: Page, campaign: Campaign, tmp_path: Path
) -> None:
    open_page(browser, campaign, tmp_path)
    assert browser.run(CARDS) is False
    assert browser.run(ANSWERS) == ["-", "-", "-"]
    ranks = "[...document.querySelectorAll('.forest td.seeds-n')].map(cell => cell.textContent)"
    assert browser.run(ranks) == ["1-2", "1-2", "3"]
    bars = (
        "[...document.querySelectorAll('.forest td.bar line.ci')]"
        ".map(bar => [bar.getAttribute('x1'), bar.getAttribute('x2')])"
    )
    assert browser.run(bars) == [["3.3%", "63.3%"], ["3.3%", "63.3%"], ["70.0%", "96.7%"]]
    heading = "document.querySelector('.versus').textContent"
    assert browser.run(heading) == "Rank, 95% confidence set"
    rows = SEEN.replace(".cards, ", "")  # which are hidden
    before = browser.run(rows)
    pick(browser, "org/other")
    assert browser.run(CARDS) is True
    assert browser.run(rows) != before
    assert browser.run(heading).startswith("Difference from other")
    pick(browser, "")
    assert browser.run(CARDS) is False
    assert browser.run(rows) == before
    assert browser.run(heading) == "Rank, 95% confidence set"


@pytest.mark.parametrize("baseline", ["org/other", "lab/weak"])
def test_a_picked_baseline_is_drawn_as_by_the_program(
    browser: Page, campaign: Campaign, tmp_path: Path, baseline: str
) -> None:
    open_page(browser, replace(campaign, baseline=baseline), tmp_path)
    made = browser.run(SEEN)
    open_page(browser, campaign, tmp_path)
    pick(browser, baseline)
    assert browser.run(SEEN) == made
