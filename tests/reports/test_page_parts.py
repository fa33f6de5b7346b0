"""Parts of the page without a browser: links, cards, curves, axes, critical-difference diagrams."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from html import unescape
from itertools import combinations, pairwise
from pathlib import Path
from urllib.parse import unquote
from xml.etree import ElementTree

import pytest

from bench.records.record import RunRecord
from bench.render import svg
from bench.render.critical_difference import (
    rank_ticks,
    ranking_figure,
    ranking_labels,
    ranking_picture,
    split_sides,
    stack_bars,
)
from bench.render.figure import MOST_LINES, Figure, Series
from bench.render.svg_marks import WIDTH
from bench.reports.campaign import Campaign, make_campaign
from bench.reports.figures.suite_plots import suite_figures
from bench.reports.formats.report_page import _figure_data
from bench.reports.report import render_report
from bench.reports.tables.method_cards import campaign_cards, encoder_parameters, run_tables, split_links
from bench.stats.method_ranking import PairTest, rank_methods
from bench.training.sentence_encoder import POINTS, thin_losses
from tests.support.campaigns import hostile_campaign, make_record
from tests.support.messages import numbers_in
from tests.support.standings import campaign as standing
from tests.support.standings import seeds

SCORES = {"STS12": 0.4, "STSB": 0.5}


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    store = hostile_campaign(tmp_path_factory.mktemp("links"))
    return make_campaign(store, store.records())


def test_links_of_the_page_its_rows_and_its_cards(hostile: Campaign) -> None:
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
    row = re.search(r'<tbody data-name="simcse".*?</tbody>', page, re.DOTALL)
    assert row
    assert 'href="#card-simcse"' in row[0]
    assert 'href="#runs-mini-sts7-simcse"' in row[0]
    runs = run_tables(hostile)["mini", "sts7"].methods["simcse"].runs
    assert [run.key for run in runs] == [r.key for r in hostile.records if r.method == "simcse"]
    found = {card.name: card for card in campaign_cards(hostile)}
    assert found["simcse"].card
    repository = "princeton-nlp/SimCSE"
    assert found["simcse"].code[0] == (repository, f"https://github.com/{repository}")
    assert all(card.card is None for name, card in found.items() if name != "simcse")
    assert split_links("javascript:alert(1) ftp://a//b") == (("javascript:alert(1) ftp://a//b", ""),)
    assert split_links("a/b") == (("a/b", ""),)  # a plug-in's: nobody knows whose repository that is


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


def test_no_column_is_empty_and_far_scores_stand_at_the_edge(tmp_path: Path) -> None:
    page = render_report(standing(tmp_path, *seeds("a", 0.5, 0.6), *seeds("b", 0.4, 0.7)), "html")
    assert "items 95%" not in page
    assert "seeds 95%" in page
    assert 'data-class="with-published"' not in page
    single = render_report(standing(tmp_path, *seeds("a", 0.5), *seeds("b", 0.4)), "html")
    assert "seeds 95%" not in single
    assert 'data-class="with-intervals"' not in single
    near = [record for i in range(6) for record in seeds(f"m{i}", 0.7 + 0.01 * i, 0.705 + 0.01 * i)]
    page = render_report(standing(tmp_path, *near, *seeds("far", 0.01, 0.02)), "html")
    assert 'class="far"' in page
    assert 'class="far"' not in render_report(standing(tmp_path, *near), "html")


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


def test_lines_have_room() -> None:
    usual = [curve(i) for i in range(6)]
    text = drawn(*usual, replace(curve(6), y=(1.0, 5000.0, 2.0)))
    alone = lines_of(drawn(*usual))
    heights = [max(y) - min(y) for name, y in lines_of(text).items() if name != "line 6"]
    assert min(heights) > 0.8 * (max(alone["line 1"]) - min(alone["line 1"]))
    assert text.count('class="point off') == 1
    assert "line 6: 1, 5000" in text
    assert 'class="point off' not in drawn(*usual)
    few = drawn(*(curve(i) for i in range(MOST_LINES)))
    assert len(re.findall(r'class="leader', few)) == MOST_LINES
    tops = sorted(float(y) for y in re.findall(r'y="([\d.]+)" text-anchor="start" class="name own c', few))
    assert min(b - a for a, b in pairwise(tops)) >= 12.9
    many = drawn(*(curve(i) for i in range(MOST_LINES + 1)))
    assert "leader" not in many
    assert many.count('class="axis"') > MOST_LINES
    figure = Figure("f", "s", "t", "lines", "x", "y", (), tuple(map(curve, range(11))))
    assert svg.legend_entries(figure) == []
    lines = lines_of(drawn(curve(0), replace(curve(1), y=(1e6, 2e6, 3e6)), own=True))
    assert lines["line 0"] == lines["line 1"]  # axes of their own


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


RANKED = (0.80, 0.79, 0.75, 0.74, 0.60, 0.59, 0.30)
NAMES = tuple("abcdefg")
BARS = ((0, 2), (1, 3), (4, 5))


def made(
    scores: Sequence[float] = RANKED, names: Sequence[str] = NAMES, bars: tuple[tuple[int, int], ...] = BARS
) -> Figure:
    """Methods of which two don't differ where a bar joins them."""
    joined = {pair for first, last in bars for pair in combinations(names[first : last + 1], 2)}

    def test(a: str, b: str) -> PairTest:
        return PairTest(0.1, 0.9 if (a, b) in joined else 1e-9, "Welch")

    found = rank_methods(dict(zip(names, scores, strict=True)), test)
    head = "groups", "significance", "Groups", "average x 100"
    figure = ranking_figure(found, *head, ("made here",), scale=100, note="A note.")
    assert figure.bars == bars
    return figure


def parse_diagram(figure: Figure) -> ElementTree.Element:
    return ElementTree.fromstring(svg.draw_svg(figure))  # noqa: S314 - our own


def places(figure: Figure) -> dict[str, tuple[float, float, float]]:
    """Where each method's line leaves the axis, how far down it goes, and where it ends."""
    root = parse_diagram(figure)
    paths = [e.get("d", "") for e in root.iter("path") if e.get("class") == "elbow"]
    names = [str(e.text).rpartition(" ")[0] for e in root.iter("text") if e.get("class") == "name"]
    found = {}
    for name, path in zip(names, paths, strict=True):
        match = re.fullmatch(r"M([\d.]+) 46V([\d.]+)H([\d.]+)", path)
        assert match
        found[name] = (float(match[1]), float(match[2]), float(match[3]))
    return found


def test_methods_stand_at_their_ranks_and_bars_join_the_groups() -> None:
    at = places(made())
    assert set(at) == set(NAMES)
    step = (at["g"][0] - at["a"][0]) / 6
    assert step > 0  # the best is on the left
    for rank, name in enumerate(NAMES):
        assert at[name][0] == pytest.approx(at["a"][0] + step * rank, abs=0.1)
    lines = [line for line in parse_diagram(made()).iter("line") if line.get("class") == "bar"]
    bars = [{key: float(line.get(key, "")) for key in ("x1", "x2", "y1")} for line in lines]
    assert [(bar["x1"] + 2, bar["x2"] - 2) for bar in bars] == [
        pytest.approx((at[NAMES[first]][0], at[NAMES[last]][0]), abs=0.11) for first, last in BARS
    ]
    assert bars[0]["y1"] < bars[1]["y1"]  # they overlap
    assert bars[0]["y1"] == bars[2]["y1"]  # they don't
    assert max(bar["y1"] for bar in bars) < min(y for _, y, _ in at.values())


def test_no_two_lines_cross() -> None:
    at = places(made())
    for name, (x, y, end) in at.items():
        assert min(x, end) > 0
        assert max(x, end) < WIDTH
        for other, (down, bottom, _) in at.items():
            crosses = min(x, end) < down < max(x, end) and y < bottom
            assert other == name or not crosses


def test_what_it_says_to_those_who_do_not_see_it() -> None:
    root = parse_diagram(made())
    assert root.get("role") == "img"
    label = root.get("aria-label", "")
    assert label.startswith("Groups. average x 100")
    assert numbers_in(label)[1:] == [100 * score for score in RANKED]
    assert label.endswith(": a, b, c; b, c, d; e, f.")
    assert parse_diagram(made(bars=())).get("aria-label", "").rpartition(". ")[2].startswith("No group")
    titles = [e.text for e in root.iter("title")]
    assert titles[0] == "a: 80.00"
    assert _figure_data(made())[0] == ("a", "mean", "80.00")
    assert any(str(e.text).startswith("rank by average") for e in root.iter("text"))


def test_long_names_lose_their_middle_and_stay_apart() -> None:
    names = (f"{'x' * 60}[{'y' * 30}=1]", f"{'x' * 60}z[{'y' * 30}=1]", "short")
    figure = made((0.7, 0.6, 0.5), names, ())
    shown = ranking_labels(figure)
    assert [len(text) for text in shown] == [36 + 6, 36 + 6, 5 + 6]
    assert len(set(shown)) == 3
    assert [text[:3] + text[-9:] for text in shown[:2]] == ["xxx=1] 70.00", "xxx=1] 60.00"]
    assert next(parse_diagram(figure).iter("title")).text == f"{names[0]}: 70.00"
    assert min(end for *_, end in places(figure).values()) > 6 * (36 + 6)  # of 6 points a letter, none is cut


def test_sides_levels_ticks_and_equal_bytes() -> None:
    assert split_sides(1) == ([0], [])
    assert split_sides(4) == ([0, 1], [3, 2])
    assert stack_bars([], 1) == []
    assert stack_bars([(0, 1), (1.5, 2), (1.9, 3)], gap=1) == [0, 1, 2]
    assert stack_bars([(5, 6), (0, 1)], gap=1) == [0, 0]
    spans = [(i / 2, i / 2 + 3) for i in range(12)]
    found = stack_bars(spans, gap=0.25)
    for level in set(found):
        own = [span for span, its in zip(spans, found, strict=True) if its == level]
        assert all(low > high + 0.25 for (_, high), (low, _) in pairwise(own))
    assert rank_ticks(2) == [1, 2]
    assert rank_ticks(64) == [1, 20, 40, 60]
    assert all(len(rank_ticks(count)) <= 8 and rank_ticks(count)[0] == 1 for count in range(2, 400))
    assert svg.draw_svg(made()) == svg.draw_svg(made())
    assert ranking_picture(made()) == ranking_picture(made())


def test_latex_is_a_picture_with_inert_names_on_one_page() -> None:
    text = ranking_picture(made((0.8, 0.7, 0.6), (r"\input{x}", "a_b%", "c"), ((0, 1),)))
    assert text.startswith("\\begin{figure}[!htbp]\n\\centering\n")
    assert r"\caption{Groups. A note.}" in text
    assert r"\strut \textbackslash{}input\{x\} 80.00" in text
    assert r"\strut a\_b\% 70.00" in text
    assert text.count(r"\rule{") == 1
    assert text.count("{") == text.count("}")
    # ranks from 54 to 120 mm, 3% of the range free on either side: the first is at 54 + 66 x 0.03 / 1.06
    assert r"\put(55.87," in text
    bar = re.search(r"\\put\(([\d.]+),[\d.]+\)\{\\rule\{([\d.]+)mm\}", text)
    assert bar
    assert (float(bar[1]), float(bar[2])) == pytest.approx((55.87 - 0.5, 66 / 1.06 / 2 + 1), abs=0.01)
    many = tuple(f"m{i:03}" for i in range(120))
    tall = ranking_picture(made(tuple(1 - i / 200 for i in range(120)), many, ()))
    assert r"\resizebox{!}{210mm}{%" in tall
    assert tall.count("{") == tall.count("}")
    assert r"\linewidth" in ranking_picture(made())
