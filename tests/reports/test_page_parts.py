"""Parts of the page without a browser: links, sizes, cards, curves, axes."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote
from xml.etree import ElementTree

import pytest

from bench.records.record import RunRecord
from bench.render import svg
from bench.render.figure import BEYOND, MOST_LINES, Figure, Series
from bench.reports.campaign import Campaign, make_campaign
from bench.reports.figures.suite_plots import suite_figures
from bench.reports.report import render_report
from bench.reports.tables.cards import campaign_cards, encoder_parameters, run_tables, split_links
from bench.training.sentence_encoder import POINTS, thin_losses
from tests.support.campaigns import hostile_campaign, make_record
from tests.support.standings import campaign as standing
from tests.support.standings import seeds

SCORES = {"STS12": 0.4, "STSB": 0.5}


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    store = hostile_campaign(tmp_path_factory.mktemp("links"))
    return make_campaign(store, store.records())


def test_every_link_leads_somewhere(hostile: Campaign) -> None:
    """Within the page to an element, from the campaign's folder to a record's file, else to an address."""
    page = render_report(hostile, "html")
    ids = re.findall(r'\sid="([^"]*)"', page)
    assert len(ids) == len(set(ids))
    links = re.findall(r'<a [^>]*href="([^"]*)"([^>]*)', page)
    inside = {unescape(link[1:]) for link, _ in links if link.startswith("#")}
    assert inside <= set(map(unescape, ids))
    files = {link for link, _ in links if link.startswith("./")}
    written = {path.resolve() for path in hostile.stores[0].root.rglob("*.json")}
    assert {(hostile.stores[0].root / unquote(unescape(link))).resolve() for link in files} == written
    for link, more in links:
        if link[0] not in "#.":
            assert link.startswith("https://github.com/")
            assert 'rel="noreferrer noopener external"' in more


def test_a_row_has_its_card_its_seeds_and_its_records(hostile: Campaign) -> None:
    page = render_report(hostile, "html")
    row = re.search(r'<tbody data-name="simcse".*?</tbody>', page, re.DOTALL)
    assert row
    assert 'href="#card-simcse"' in row[0]
    assert 'href="#runs-mini-sts7-simcse"' in row[0]
    assert [f'href="./mini/simcse/seed-{seed}/sts7.json"' in row[0] for seed in range(1, 6)] == [True] * 5
    runs = run_tables(hostile)["mini", "sts7"].methods["simcse"].runs
    assert [run.key for run in runs] == [r.key for r in hostile.records if r.method == "simcse"]


def with_facts(**facts: object) -> RunRecord:
    record = make_record("simcse", 1, dict(SCORES))
    return replace(record, provenance={**record.provenance, "encoder": facts})


@pytest.mark.parametrize(
    ("facts", "count"),
    [
        ({"parameters": 5}, 5),
        ({"parameters": 5, "parts": 3}, 15),
        ({"parameters": "5+7", "parts": 2}, 12),
        ({}, None),
        ({"parameters": "5+<b>"}, None),
        ({"parameters": -5}, None),
        ({"parameters": [1]}, None),
    ],
)
def test_parameters_are_those_of_all_towers(facts: dict[str, object], count: int | None) -> None:
    record = with_facts(**facts)
    assert encoder_parameters(record) == count
    assert encoder_parameters(replace(record, probes={"cost": {"parameters": 9}})) == 9


def test_columns_that_would_be_empty_are_not_there(tmp_path: Path) -> None:
    page = render_report(standing(tmp_path, *seeds("a", 0.5, 0.6), *seeds("b", 0.4, 0.7)), "html")
    assert "items 95%" not in page
    assert "seeds 95%" in page
    assert 'data-class="with-published"' not in page
    single = render_report(standing(tmp_path, *seeds("a", 0.5), *seeds("b", 0.4)), "html")
    assert "seeds 95%" not in single
    assert 'data-class="with-intervals"' not in single


def test_a_card_holds_what_the_method_says(hostile: Campaign) -> None:
    found = {card.name: card for card in campaign_cards(hostile)}
    assert found["simcse"].card
    repository = "princeton-nlp/SimCSE"
    assert found["simcse"].code[0] == (repository, f"https://github.com/{repository}")
    assert all(card.card is None for name, card in found.items() if name != "simcse")
    assert split_links("javascript:alert(1) ftp://a//b") == (("javascript:alert(1) ftp://a//b", ""),)
    assert split_links("a/b") == (("a/b", ""),)  # a plug-in's: nobody knows whose repository that is


def curve(number: int, points: int = 3, name: str = "") -> Series:
    steps = tuple(float(step) for step in range(points))
    return Series(name or f"line {number}", steps, tuple(number + step for step in steps))


def drawn(*series: Series, kind: str = "lines", own: bool = False) -> str:
    figure = Figure("f", "curves", "t", kind, "x", "y", (), series, own=own)  # type: ignore[arg-type]
    text = svg.draw_svg(figure)
    ElementTree.fromstring(text)  # noqa: S314 - our own
    return text


def lines_of(text: str) -> dict[str, list[float]]:
    """Heights of the corners of each line."""
    found = re.findall(r'<path d="M([^"z]*)" class="line[^>]*><title>([^<]*)', text)
    return {name: [float(point.split()[1]) for point in path.split("L")] for path, name in found}


def test_no_line_flattens_the_others() -> None:
    usual = [curve(i) for i in range(6)]
    text = drawn(*usual, replace(curve(6), y=(1.0, 5000.0, 2.0)))
    alone = lines_of(drawn(*usual))
    heights = [max(y) - min(y) for name, y in lines_of(text).items() if name != "line 6"]
    assert min(heights) > 0.8 * (max(alone["line 1"]) - min(alone["line 1"]))
    assert text.count('class="point off') == 1
    assert "line 6: 1, 5000" in text
    assert 'class="point off' not in drawn(*usual)


def test_a_band_reaches_from_the_lowest_to_the_highest_seed(tmp_path: Path) -> None:
    records = [make_record("simcse", seed, dict(SCORES)) for seed in (1, 2, 3)]
    for record in records:
        value = 0.1 * (record.seed or 0)
        scores, losses = [[10, value], [20, 2 * value]], [[5, 3 - value], [10, 1.0]]
        record.training["stages"]["simcse"] |= {"dev_curve": scores, "loss_curve": losses}
    made = {one.name: one for one in suite_figures(standing(tmp_path, *records)) if one.section == "curves"}
    (dev,) = made["mini-sts7-dev"].series
    assert dev.y == pytest.approx((20, 40))
    assert [pytest.approx(pair) for pair in dev.band] == [(10, 30), (20, 60)]
    (loss,) = made["mini-sts7-loss"].series
    assert (loss.x, loss.band[1]) == ((5, 10), (1.0, 1.0))
    assert loss.y == pytest.approx((2.8, 1.0))
    page = render_report(standing(tmp_path, *records), "html")
    assert page.count('class="range c0"') == 2  # dev and loss; the ranks are equal
    assert "No losses" not in page
    assert "No losses" in render_report(standing(tmp_path, make_record("a", 1, dict(SCORES))), "html")


def test_many_lines_have_a_panel_each_and_few_their_names_at_their_ends() -> None:
    few = drawn(*(curve(i) for i in range(MOST_LINES)))
    assert len(re.findall(r'class="leader', few)) == MOST_LINES
    tops = sorted(float(y) for y in re.findall(r'y="([\d.]+)" text-anchor="start" class="name c', few))
    assert min(b - a for a, b in pairwise(tops)) >= 12.9
    many = drawn(*(curve(i) for i in range(MOST_LINES + 1)))
    assert "leader" not in many
    assert many.count('class="axis"') > MOST_LINES
    figure = Figure("f", "s", "t", "lines", "x", "y", (), tuple(map(curve, range(11))))
    assert svg.legend_entries(figure) == []
    heights = lines_of(drawn(curve(0), replace(curve(1), y=(1e6, 2e6, 3e6)), own=True))
    assert heights["line 0"] == heights["line 1"]  # axes of their own


def test_far_scores_stand_at_the_edge_with_their_value(tmp_path: Path) -> None:
    near = [record for i in range(6) for record in seeds(f"m{i}", 0.7 + 0.01 * i, 0.705 + 0.01 * i)]
    page = render_report(standing(tmp_path, *near, *seeds("far", 0.01, 0.02)), "html")
    assert BEYOND in page
    assert re.search(r'class="tick">1\.00</text>', page)
    assert BEYOND not in render_report(standing(tmp_path, *near), "html")


def test_losses_are_thinned_to_means() -> None:
    losses = [float(i) for i in range(1234)]
    points = thin_losses(losses)
    assert len(points) <= POINTS
    assert points[-1][0] == 1234
    assert points[0] == [25, 12.0]
    steps = [0, *(int(step) for step, _ in points)]
    weights = [b - a for a, b in pairwise(steps)]
    total = sum(w * mean for w, (_, mean) in zip(weights, points, strict=True))
    assert total == pytest.approx(sum(losses))
    assert thin_losses([2.0]) == [[1, 2.0]]
    assert thin_losses([]) == []
