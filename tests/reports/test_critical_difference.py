"""Critical-difference diagrams, as parts of the page and as LaTeX."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import combinations, pairwise
from xml.etree import ElementTree

import pytest

from bench.render import svg
from bench.render.critical_difference import (
    rank_ticks,
    ranking_figure,
    ranking_labels,
    ranking_picture,
    split_sides,
    stack_bars,
)
from bench.render.figure import Figure
from bench.render.svg_marks import WIDTH
from bench.reports.formats.report_page import _figure_data
from bench.stats.ranks import PairTest, rank_methods
from tests.support.messages import numbers_in

SCORES = (0.80, 0.79, 0.75, 0.74, 0.60, 0.59, 0.30)
NAMES = tuple("abcdefg")
BARS = ((0, 2), (1, 3), (4, 5))


def made(
    scores: Sequence[float] = SCORES, names: Sequence[str] = NAMES, bars: tuple[tuple[int, int], ...] = BARS
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


def drawn(figure: Figure) -> ElementTree.Element:
    return ElementTree.fromstring(svg.draw_svg(figure))  # noqa: S314 - our own


def places(figure: Figure) -> dict[str, tuple[float, float, float]]:
    """Where each method's line leaves the axis, how far down it goes, and where it ends."""
    root = drawn(figure)
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
    lines = [line for line in drawn(made()).iter("line") if line.get("class") == "bar"]
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
    root = drawn(made())
    assert root.get("role") == "img"
    label = root.get("aria-label", "")
    assert label.startswith("Groups. average x 100")
    assert numbers_in(label)[1:] == [100 * score for score in SCORES]
    assert label.endswith(": a, b, c; b, c, d; e, f.")
    assert drawn(made(bars=())).get("aria-label", "").rpartition(". ")[2].startswith("No group")
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
    assert next(drawn(figure).iter("title")).text == f"{names[0]}: 70.00"
    assert min(end for *_, end in places(figure).values()) > 6 * (36 + 6)  # of 6 points a letter, none is cut


def test_sides_levels_and_ticks() -> None:
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


def test_latex_is_a_picture_with_inert_names() -> None:
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


def test_a_tall_picture_fits_on_a_page() -> None:
    many = tuple(f"m{i:03}" for i in range(120))
    tall = ranking_picture(made(tuple(1 - i / 200 for i in range(120)), many, ()))
    assert r"\resizebox{!}{210mm}{%" in tall
    assert tall.count("{") == tall.count("}")
    assert r"\linewidth" in ranking_picture(made())


def test_the_same_methods_give_the_same_bytes() -> None:
    assert svg.draw_svg(made()) == svg.draw_svg(made())
    assert ranking_picture(made()) == ranking_picture(made())
