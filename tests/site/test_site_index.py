"""The cards of the first page, and the names of rows on all pages."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from bench.records.store import ResultStore
from bench.reports.campaign import make_campaign
from bench.reports.tables.leaderboard import make_leaderboard
from bench.site.board_summary import BoardSummary, summarise_board
from bench.site.campaign_entry import CampaignCheck, CampaignEntry, format_entry, make_entry, parse_entry
from bench.site.shared_pages import choose_names, sort_entries
from tests.support.campaigns import make_record
from tests.support.site import add, dead_links, make_site, read, real, small, toy_record
from tests.support.standings import alone, seeds

UNVERIFIED = CampaignCheck("not verified")


def entry_of(tmp_path: Path, *records: object, name: str = "camp") -> CampaignEntry:
    store = ResultStore(tmp_path, name)
    return make_entry(make_campaign(store, records), UNVERIFIED)  # type: ignore[arg-type]


def board(synthetic: bool, seeds: int, rows: int) -> BoardSummary:
    return BoardSummary("mini", "mini", "title", "setting", synthetic, seeds, rows, (("", "nothing"),))


def test_real_text_and_the_firmest_campaign_come_first() -> None:
    entries = [
        CampaignEntry("broken", error="unreadable"),
        CampaignEntry("toy", boards=(board(True, 10, 50),)),
        CampaignEntry("few", boards=(board(False, 2, 3),)),
        CampaignEntry("firm", boards=(board(False, 10, 50),)),
        CampaignEntry("wide", boards=(board(False, 1, 60), board(False, 9, 9))),
        CampaignEntry("constant", boards=(board(False, 0, 5),)),
    ]
    order = [entry.campaign for entry in sort_entries(entries)]
    assert order == ["firm", "wide", "few", "constant", "toy", "broken"]


def test_the_verdict_counts_the_answers_of_the_leaderboard(tmp_path: Path) -> None:
    records = [
        *seeds("simcse", 0.50, 0.502, 0.501, 0.503, 0.5),
        *seeds("tncse", 0.55, 0.551, 0.552, 0.551, 0.55),
        *seeds("jtcse", 0.45, 0.451, 0.452, 0.451, 0.45),
        *seeds("mine", 0.50, 0.55, 0.44, 0.53, 0.47),
        *seeds("simcse[steps=3]", 0.9, 0.91),
    ]
    entry = entry_of(tmp_path, *records)
    (one,) = entry.boards
    assert [answer for answer, _ in one.verdict] == ["ahead", "behind", "open"]
    assert [text for _, text in one.verdict] == ["1 ahead of SimCSE: TNCSE", "1 behind", "1 open"]
    assert (one.seeds, one.rows, one.synthetic) == (5, 4, False)
    assert "5 seeds a row" in one.setting
    assert parse_entry(format_entry(entry), "") == entry


@pytest.mark.parametrize(
    ("records", "text"),
    [
        (seeds("simcse", 0.5) + seeds("tncse", 0.6), "one seed: nothing tested"),
        (seeds("simcse", 0.5, 0.51), "one row: nothing to compare"),
        ([alone("a", 0.5), alone("b", 0.6)], "no seeds: nothing tested"),
        (seeds("x", 0.50, 0.51, 0.505) + seeds("y", 0.51, 0.50, 0.505), "any of the 2 rows may be the best"),
        (seeds("x", 0.50, 0.51, 0.505) + seeds("y", 0.90, 0.91, 0.905), "may be the best of 2 rows: y"),
    ],
)
def test_a_leaderboard_without_answers_says_why(tmp_path: Path, records: list[object], text: str) -> None:
    (one,) = entry_of(tmp_path, *records).boards
    assert [words for _, words in one.verdict] == [text]


def test_a_long_list_of_leaders_is_cut(tmp_path: Path) -> None:
    records = seeds("simcse", 0.50, 0.502, 0.501, 0.503, 0.5)
    for i in range(9):
        records += seeds(f"better{i}", *(0.7 + 0.01 * i + 0.001 * k for k in range(5)))
    source = make_campaign(ResultStore(tmp_path, "camp"), records)
    table = make_leaderboard(source, source.records)
    names = {row.method: row.method for row in table.rows}
    (first, *_) = summarise_board(table, source.records, names).verdict
    assert first[1].startswith("9 ahead of simcse: better8, better7")
    assert first[1].endswith(" and 3 more")


def test_two_rows_of_one_printed_name_show_their_ids(tmp_path: Path) -> None:
    plain = replace(make_record("x", 1, {"STS12": 0.5, "STSB": 0.5}), method="SimCSE", name="SimCSE")
    entry = entry_of(tmp_path, *seeds("simcse", 0.5), *seeds("tncse", 0.6), plain)
    assert choose_names([entry]) == {"SimCSE": "SimCSE", "simcse": "SimCSE (simcse)", "tncse": "TNCSE"}


def test_a_row_named_differently_in_two_campaigns_shows_its_id(tmp_path: Path) -> None:
    entries = [
        entry_of(tmp_path, make_record("untrained", None, {"STS12": 0.3}, backbone=backbone, corpus=None))
        for backbone in ("one", "two")
    ]
    assert choose_names(entries) == {"untrained": "untrained"}
    assert choose_names(entries[:1]) == {"untrained": entries[0].lines[0].shown}


def test_the_first_page_shows_a_card_a_campaign(tmp_path: Path) -> None:
    real(tmp_path / "results", "synthetic")
    small(tmp_path / "results", "text", "simcse", "tncse", "jtcse", seeds=3)
    toy = ResultStore(tmp_path / "results", "text")
    for seed in (1, 2):
        toy_record(toy, "simcse", seed, 0.5)
    add(ResultStore(tmp_path / "results", "single"), make_record("simcse", 1, {"STS12": 0.5}))
    _, _, err = make_site(tmp_path / "results", tmp_path / "site")
    assert "can't be shown" not in err
    page = (tmp_path / "site/index.html").read_text()
    cards = re.findall(r'<li class="campaign">.*?</li>', page, re.DOTALL)
    assert [re.search(r"campaigns/(\w+)/", card)[1] for card in cards] == ["text", "single", "synthetic"]  # type: ignore[index]
    assert "1 more leaderboard" in cards[0]
    assert "one row: nothing to compare" in cards[1]
    assert page.index("not a benchmark") > page.index(cards[1])
    assert page.index("not a benchmark") < page.index(cards[2])
    assert "campaigns.csv" in page
    assert dead_links(tmp_path / "site") == []


def test_printed_names_stand_where_ids_stood(tmp_path: Path) -> None:
    small(tmp_path / "results", "one", "simcse", "tncse_uc")
    make_site(tmp_path / "results", tmp_path / "site")
    page = (tmp_path / "site/methods/tncse_uc.html").read_text()
    assert "<h1>TNCSE+UC</h1>" in page
    assert '<th scope="row" title="tncse_uc">TNCSE+<wbr>UC</th>' in page
    assert "Its id is tncse_uc" in read(tmp_path / "site/methods/tncse_uc.html").text
    listed = (tmp_path / "site/methods/index.html").read_text()
    assert '<a href="tncse_uc.html" title="tncse_uc">TNCSE+<wbr>UC</a>' in listed
