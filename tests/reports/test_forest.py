"""The cells of a forest plot, and the answers that they draw."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

from bench.records.store import ResultStore
from bench.render.forest import draw_interval, draw_seeds, draw_ticks, make_cell_axis
from bench.reports.campaign import Campaign, make_campaign
from bench.reports.figures.forest import forest_figures
from bench.reports.tables.answers import ANSWERS, Answers
from bench.reports.tables.baseline_family import compare_with_baseline
from bench.reports.tables.leaderboard_page import page_boards
from bench.reports.tables.row_tests import run_pairwise_tests
from tests.support.campaigns import make_record

AXIS = make_cell_axis([-1.0, 0.0, 1.0], [(-2.0, 0.0), (-1.0, 1.0), (0.0, 2.0)], [0.0])


def make_source(tmp_path: Path) -> Campaign:
    records = []
    for place, method in enumerate(("simcse", "tncse", "jtcse", "met")):
        for seed in range(1, 6):
            scores = {
                task: 0.5 + 0.03 * place + 0.002 * ((seed * (place + 2)) % 5) for task in ("STS12", "STSB")
            }
            records.append(make_record(method, seed, scores))
    return make_campaign(ResultStore(tmp_path, "camp"), records)


def answers_of(campaign: Campaign) -> Answers:
    (board,) = page_boards(campaign)
    return board.answers


def test_ticks_stand_at_even_distances_though_values_end_before() -> None:
    places = [float(x) for x in re.findall(r'x="([-\d.]+)%"', draw_ticks(AXIS, sign=True))]
    steps = [round(after - before, 1) for before, after in pairwise(places)]
    assert max(steps) - min(steps) <= 0.1


def test_what_leaves_the_axis_ends_in_an_arrow() -> None:
    assert "far" not in draw_interval(0.0, (-1.0, 1.0), AXIS)
    both = draw_interval(0.0, (-90.0, 90.0), AXIS)
    assert re.findall("[◂▸]", both) == ["◂", "▸"]
    assert "estimate" in both
    beyond = draw_interval(-50.0, None, AXIS)
    assert re.findall("[◂▸]", beyond) == ["◂"]
    assert "estimate" not in beyond
    assert re.findall("[◂▸]", draw_seeds([-99.0, -98.0, 0.0], AXIS)) == ["◂"]


def test_far_estimates_do_not_squeeze_the_others() -> None:
    near = [0.1 * i for i in range(8)]
    axis = make_cell_axis([*near, -30.0], [(value - 0.2, value + 0.2) for value in [*near, -30.0]])
    assert axis.low > -3
    assert axis.place(-30.0) == axis.place(axis.ends[0])


def test_every_row_may_be_picked_and_has_the_tests_of_its_own_family(tmp_path: Path) -> None:
    campaign = make_source(tmp_path)
    answers, tests = answers_of(campaign), run_pairwise_tests(campaign, campaign.records)
    assert answers.baseline == "simcse"
    assert set(answers.choices) == {"simcse", "tncse", "jtcse", "met"}
    for baseline, family in answers.families.items():
        other = compare_with_baseline(tests, baseline, margin=campaign.margin)
        assert other is not None
        assert family.rows == other.rows
        assert baseline not in family.rows


def test_the_cards_hold_every_tested_row_but_the_baseline(tmp_path: Path) -> None:
    answers = answers_of(make_source(tmp_path))
    named = [name for card in answers.cards for name in card.names]
    assert sorted(named) == ["jtcse", "met", "tncse"]
    assert [card.answer for card in answers.cards] == list(ANSWERS)


def test_the_figure_draws_the_rows_of_the_page(tmp_path: Path) -> None:
    (figure,) = forest_figures(make_source(tmp_path))
    assert figure.forest is not None
    assert [line.name for line in figure.forest.lines] == ["MET", "JTCSE", "TNCSE", "SimCSE"]
    assert figure.forest.lines[-1].answer == "baseline"
    assert all(line.answer.startswith("+") for line in figure.forest.lines[:-1])
