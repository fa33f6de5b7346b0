"""Kinds of figures: ranks, tasks, the Pareto front, curves in a crowd, and how many rows each has."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench.records.record import RunRecord
from bench.render import svg
from bench.render.figure import MOST_ROWS, Figure, Series
from bench.render.point_plots import NamePlaces, front_series
from bench.render.svg_marks import Axis, text_width
from bench.reports.campaign import Campaign
from bench.reports.figures.suite_plots import suite_figures
from bench.reports.figures.suite_records import figure_names
from tests.support.campaigns import make_record
from tests.support.standings import campaign as standing

TASKS = {"STS12": 0.5, "STSB": 0.6}
POINTS = {"cheap": (10.0, 70.0), "fair": (40.0, 75.0), "worse": (50.0, 71.0), "dear": (4000.0, 80.0)}


def rows(count: int, name: str = "m{}") -> list[RunRecord]:
    """Three seeds of so many methods and of the baseline, the first the best."""
    records = []
    for number, method in enumerate(["simcse", *(name.format(i) for i in range(1, count))]):
        for seed in (1, 2, 3):
            shift = 0.001 * seed * (number % 3 + 1) - 0.01 * number
            records.append(make_record(method, seed, {task: value + shift for task, value in TASKS.items()}))
    return records


def figures(source: Campaign) -> dict[str, Figure]:
    return {figure.name.removeprefix("mini-sts7-"): figure for figure in suite_figures(source)}


def elements(figure: Figure, tag: str, style: str) -> list[ElementTree.Element]:
    root = ElementTree.fromstring(svg.draw_svg(figure))  # noqa: S314 - our own
    return [one for one in root.iter(tag) if style in one.get("class", "").split()]


def lines(count: int, highlight: str = "line 3") -> Figure:
    series = []
    for i in range(count):
        series.append(Series(f"line {i}", (0.0, 1.0, 2.0), (0.0, 1.0, float(i)), band=((0.0, 3.0),) * 3))
    return Figure("f", "curves", "t", "lines", "x", "y", (), tuple(series), highlight=highlight)


def test_many_lines_are_a_grey_crowd_below_the_baseline() -> None:
    crowd = lines(MOST_ROWS + 1)
    drawn = elements(crowd, "path", "line")
    assert len(drawn) == MOST_ROWS + 1
    assert [one.findtext("title") for one in drawn if "faint" not in one.get("class", "")] == ["line 3"]
    assert drawn[-1].get("class") == "line main c0"
    assert len(elements(crowd, "path", "range")) == 1
    named = elements(crowd, "text", "name")
    assert {"line 3", "line 0", f"line {MOST_ROWS}"} <= {str(one.text) for one in named}
    heights = sorted(float(one.get("y", "")) for one in named)
    assert min(b - a for a, b in pairwise(heights)) >= 12.9
    assert svg.legend_entries(crowd) == []


def test_few_lines_have_colours_and_a_legend() -> None:
    few = lines(MOST_ROWS)
    assert len(svg.legend_entries(few)) == MOST_ROWS
    assert elements(few, "path", "faint") == []
    assert [one.findtext("title") for one in elements(few, "path", "main")] == ["line 3"]


def test_the_front_joins_what_no_other_beats() -> None:
    series = front_series(POINTS)
    assert [one.labels for one in series] == [("cheap", "fair", "dear"), ("worse",)]
    figure = Figure("f", "s", "t", "front", "cost", "score", (), series, log=True, highlight="worse")
    (path,) = elements(figure, "path", "front")
    heights = [float(y) for y in re.findall(r"V([\d.]+)", path.get("d", ""))]
    assert heights == sorted(heights, reverse=True)
    assert {str(one.text) for one in elements(figure, "text", "strong")} == set(POINTS)
    assert len(svg.legend_entries(figure)) == 2
    ticks = {str(one.text) for one in elements(figure, "text", "tick")}
    assert {"10", "100", "1000"} <= ticks


def test_a_logarithmic_axis_has_equal_steps_for_equal_ratios() -> None:
    axis = Axis((10, 1000), 0, 300, log=True)
    assert axis.at(100) - axis.at(10) == pytest.approx(axis.at(1000) - axis.at(100))
    assert Axis((1, 9), 0, 300, log=True).ticks() == [1, 2, 5, 10]
    assert len(Axis((1, 1e9), 0, 300, log=True).ticks()) == 10


def test_names_cover_neither_points_nor_names() -> None:
    at = [(200.0 + 10 * i, 100.0) for i in range(8)]
    places = NamePlaces(at)
    boxes = []
    for i, point in enumerate(at):
        if (place := places.take(f"name {i}", point)) is not None:
            x, y, anchor = place
            wide = text_width(f"name {i}")
            left = x - {"start": 0, "middle": 0.5, "end": 1}[anchor] * wide
            boxes.append((left, y - 9, left + wide, y + 2))
    assert 2 <= len(boxes) < 8
    for number, (left, top, right, bottom) in enumerate(boxes):
        assert not [p for p in at if left < p[0] < right and top < p[1] < bottom]
        for other in boxes[:number]:
            assert right <= other[0] or other[2] <= left or bottom <= other[1] or other[3] <= top


def test_ranks_and_tasks_have_every_row_and_the_diagram_at_most_fifteen(tmp_path: Path) -> None:
    for count, there in ((MOST_ROWS, True), (MOST_ROWS + 1, False)):
        made = figures(standing(tmp_path / str(count), *rows(count)))
        assert ("groups" in made) is there
        ranks = made["ranks"]
        assert (len(ranks.rows), ranks.rows[0], ranks.highlight) == (count, "SimCSE", "SimCSE")
        assert [
            first <= place <= last for (first, last), place in zip(ranks.bars, ranks.series[0].x, strict=True)
        ]
        assert len(elements(ranks, "rect", "set")) == count
        assert [one.text for one in elements(ranks, "text", "strong")] == ["SimCSE"]
        tasks = made["tasks"]
        assert (len(tasks.rows), tasks.columns) == (count - 1, ("STS12", "STSB", "avg"))
        assert tasks.cells[0] == pytest.approx((-0.8, -0.8, -0.8))
        assert "-0.80" in svg.draw_svg(tasks)


def test_signed_cells_have_two_colours_and_their_signs() -> None:
    cells = ((1.0, -1.0), (0.0, None))
    head = "f", "tasks", "t", "heat", "task", "", ()
    figure = Figure(*head, rows=("a", "b"), columns=("x", "y"), cells=cells, signed=True)  # type: ignore[arg-type]
    drawn = svg.draw_svg(figure)
    assert [text in drawn for text in (">+1.00<", ">-1.00<", ">+0.00<")] == [True] * 3
    fills = re.findall(r'fill="(#\w+)" shape', drawn)
    assert fills == ["#c05600", "#ffffff", "#0067a5"]


def test_rows_are_those_of_tables_by_their_printed_names(tmp_path: Path) -> None:
    records = [*rows(4), *(make_record("simcse[lr=1e-05]", seed, dict(TASKS)) for seed in (1, 2, 3))]
    source = standing(tmp_path, *records)
    names = ["SimCSE", "m1", "m2", "m3"]
    made = figures(source)
    assert list(made["seeds"].rows) == names
    assert [one.name for one in made["dev"].series] == names
    assert figure_names(source, ["tncse_uc", "simcse[lr=1e-05]"]) == {
        "tncse_uc": "TNCSE+UC",
        "simcse[lr=1e-05]": "SimCSE, lr=1e-05",
    }


def test_losses_are_drawn_for_few_rows_and_long_runs_by_their_share(tmp_path: Path) -> None:
    for count, there in ((MOST_ROWS, True), (MOST_ROWS + 1, False)):
        records = rows(count)
        for record in records:
            stage = next(iter(record.training["stages"].values()))
            stage["loss_curve"] = [[10, 2.0], [20, 1.0]]
            if record.method == "simcse":
                stage["dev_curve"] = [[10, 0.5], [100, 0.6]]
        made = figures(standing(tmp_path / str(count), *records))
        assert ("loss" in made) is there
        assert ("--methods A,B" in made["dev"].note) is not there
        assert made["dev"].x == "share of training, %"
        assert {one.x[-1] for one in made["dev"].series} == {100}
