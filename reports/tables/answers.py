"""The answers of a leaderboard: every row against each possible baseline, for the first screen of a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.comparison.method_family import find_default_baseline
from bench.errors import printable
from bench.records.record import AVERAGE, RunRecord, safe_name
from bench.render.figure import CellAxis, ForestLine, ForestPlot
from bench.render.forest import (
    SEED,
    draw_grid,
    draw_interval,
    draw_ranks,
    draw_seeds,
    draw_ticks,
    make_cell_axis,
    make_rank_axis,
)
from bench.render.grid import (
    DASH,
    SCALE,
    format_difference,
    format_interval,
    format_p_value,
    format_score,
    interval_end,
)
from bench.render.row_names import number_footnotes
from bench.reports.campaign import Campaign
from bench.reports.campaign_setting import describe_setting, describe_suite, describe_title
from bench.reports.record_groups import by_method, finished_records
from bench.reports.tables.baseline_family import (
    AHEAD,
    BEHIND,
    EQUAL,
    OPEN,
    BaselineDifference,
    BaselineFamily,
    compare_with_baseline,
    find_best,
)
from bench.reports.tables.leaderboard import Leaderboard, LeaderboardRow
from bench.reports.tables.method_cards import card_anchor, encoder_parameters, format_millions
from bench.reports.tables.pairwise_tests import PairwiseTests

ANSWERS = (AHEAD, EQUAL, OPEN, BEHIND)
"""The four answers, in the order of the cards."""
MARKS = {AHEAD: "▲", EQUAL: "≈", OPEN: "○", BEHIND: "▼"}
"""A sign beside each answer's word and colour."""
STYLES = {AHEAD: "c2", BEHIND: "c1", EQUAL: "c0", "baseline": "c0"}
"""Classes of the answers' colours in a figure; others are soft."""
HEAT_STEPS = (0.25, 1.0, 2.5)
"""Points at which a difference's colour gets darker."""


@dataclass(frozen=True)
class AnswerRow:
    """A row of the first screen.

    Args:
        method: Method id.
        anchor: Id of the row on the page; ``card``: of its method's card.
        seeds: Averages by seed, in points.
        tested: True for a row of the family, which can be a baseline.
        aside: Why it isn't tested, or "".
        size: Parameters in millions, as text.
    """

    row: LeaderboardRow
    method: str
    anchor: str
    card: str
    seeds: tuple[float, ...]
    tested: bool
    aside: str
    hidden: bool
    size: str = DASH

    @property
    def seeds_text(self) -> str:
        """The averages by seed, as printed."""
        return " ".join(f"{value:.2f}" for value in self.seeds)


@dataclass(frozen=True)
class AnswerCard:
    """One of the four answers: its word, the rows' names, the best average first."""

    answer: str
    mark: str
    title: str
    names: tuple[str, ...]


@dataclass(frozen=True)
class Answers:
    """One profile and suite: its rows, and the families of all baselines.

    Args:
        seeds_axis: Of the averages by seed, in points.
        number: Of its place on the page, from 1.
        place: How the names of its figures begin.
        best: Printed names of the rows that may be the best on average.
        marks: Mark of each printed name that has a footnote.
        footnotes: The options that those names leave out.
        over_tasks: True if rows have no seeds, and tests are over tasks.
    """

    title: str
    short: str
    setting: str
    margin: float
    rows: tuple[AnswerRow, ...]
    shown: Mapping[str, str]
    baseline: str
    families: Mapping[str, BaselineFamily]
    seeds_axis: CellAxis
    tasks: tuple[str, ...]
    number: int
    place: str
    best: tuple[str, ...]
    marks: Mapping[str, str]
    footnotes: tuple[str, ...]
    over_tasks: bool = False

    @property
    def family(self) -> BaselineFamily | None:
        """The family of the chosen baseline, if it has one."""
        return self.families.get(self.baseline)

    @property
    def hidden(self) -> int:
        """Number of rows that are shown on request."""
        return sum(row.hidden for row in self.rows)

    @property
    def margin_text(self) -> str:
        """The margin in points."""
        return f"{SCALE * self.margin:g}"

    @property
    def cards(self) -> tuple[AnswerCard, ...]:
        """The four cards for the chosen baseline."""
        if not self.families:
            return ()
        titles = card_titles(self.shown.get(self.baseline, "the baseline"), self.margin_text)
        cards = []
        for answer in ANSWERS:
            names = [row.method for row in self.rows if self.answer(row) == answer]
            cards.append(
                AnswerCard(answer, MARKS[answer], titles[answer], tuple(map(self.shown.__getitem__, names)))
            )
        return tuple(cards)

    @property
    def choices(self) -> tuple[str, ...]:
        """Ids of possible baselines, in the rows' order."""
        return tuple(row.method for row in self.rows if row.method in self.families)

    def difference(self, row: AnswerRow) -> BaselineDifference | None:
        """Return a row's difference from the chosen baseline, if it has one."""
        return self.family.rows.get(row.method) if self.family else None

    def answer(self, row: AnswerRow) -> str:
        """Return one of ANSWERS, "baseline", or "" for an untested row."""
        if row.method == self.baseline and self.family:
            return "baseline"
        difference = self.difference(row)
        return "" if difference is None or difference.p is None else difference.answer

    def text(self, row: AnswerRow) -> str:
        """Return the words of a row's last column."""
        answer, difference = self.answer(row), self.difference(row)
        if answer == "baseline":
            return answer
        if difference is None:
            return row.aside or "not tested"
        number = format_difference(difference.difference)
        return f"{number} {MARKS[answer]} {answer}" if answer else f"{number} not tested"

    def axis(self, baseline: str) -> CellAxis:
        """Return the axis of differences from a baseline, in points."""
        estimates, ends = [], []
        for one in self.families[baseline].rows.values():
            low, high = one.interval or (one.difference, one.difference)
            estimates.append(SCALE * one.difference)
            ends.append((SCALE * low, SCALE * high))
        return make_cell_axis(estimates, ends, (-SCALE * self.margin, 0.0, SCALE * self.margin))

    @property
    def rank_axis(self) -> CellAxis | None:
        """The axis of ranks, which rows that are tested over tasks have in place of differences."""
        lasts = [row.row.rank[1] for row in self.rows if row.row.rank]
        if self.family or not self.over_tasks or not lasts:
            return None
        return make_rank_axis(max(lasts))

    @property
    def grids(self) -> str:
        """The grid lines of both columns, as definitions that every cell uses."""
        grids = [SEED] if self.number == 1 else []
        grids.append(draw_grid(self.seeds_axis, f"grid-seeds-{self.number}"))
        name, band = f"grid-difference-{self.number}", (-SCALE * self.margin, SCALE * self.margin)
        if self.family:
            grids.append(draw_grid(self.axis(self.baseline), name, band))
        elif self.rank_axis:
            grids.append(draw_grid(self.rank_axis, name))
        elif self.families:
            grids.append(f'<g id="{name}"></g>')  # for the baseline that a reader picks
        return "".join(grids)

    @property
    def seed_ticks(self) -> str:
        """Tick labels of the seeds."""
        return draw_ticks(self.seeds_axis, sign=False)

    @property
    def difference_ticks(self) -> str:
        """Tick labels of the differences."""
        if self.rank_axis:
            return draw_ticks(self.rank_axis, sign=False)
        return draw_ticks(self.axis(self.baseline), sign=True) if self.family else ""

    def strip(self, row: AnswerRow) -> str:
        """Return a row's dots."""
        return draw_seeds(row.seeds, self.seeds_axis)

    def bar(self, row: AnswerRow) -> str:
        """Return a row's interval, or its ranks."""
        if self.rank_axis:
            return draw_ranks(row.row.rank, self.rank_axis) if row.row.rank else ""
        difference = self.difference(row)
        if difference is None:
            return ""
        interval = None  # drawn as printed, as the page's script does
        if difference.interval:
            low, high = map(float, map(interval_end, difference.interval))
            interval = low, high
        estimate = float(format_difference(difference.difference))
        return draw_interval(estimate, interval, self.axis(self.baseline))

    def estimate(self, row: AnswerRow) -> str:
        """Return a row's printed difference, with its interval if it has one, or its ranks."""
        if self.rank_axis:
            return row.row.rank_text
        difference = self.difference(row)
        if difference is None:
            return DASH
        text = format_difference(difference.difference)
        return f"{text} {format_interval(*difference.interval)}" if difference.interval else text

    def hint(self, row: AnswerRow) -> str:
        """Return the interval and p of a row."""
        difference = self.difference(row)
        return "" if difference is None else describe_test(difference)

    def task_differences(self, row: AnswerRow) -> list[tuple[str, str]]:
        """Return the differences from the baseline's means, the average first, each with its style.

        The baseline's own row has its scores; all rows have theirs without a baseline.
        """
        base = next((other for other in self.rows if other.method == self.baseline), row)
        cells = []
        for task in (AVERAGE, *self.tasks):
            mean, of_base = row.row.cells[task].mean, base.row.cells[task].mean
            if row is base or mean is None or of_base is None:
                cells.append((format_score(mean) if row is base else DASH, ""))
                continue
            cells.append((format_difference(mean - of_base), heat_style(SCALE * (mean - of_base))))
        return cells

    @property
    def steps(self) -> list[str]:
        """The points from which colours are darker."""
        return [f"{step:g}" for step in HEAT_STEPS]

    @property
    def plot(self) -> ForestPlot | None:
        """The first screen's rows as a forest plot, without the hidden ones; None without a baseline."""
        if self.family is None:
            return None
        lines = []
        for row in self.rows:
            difference = self.difference(row)
            if row.hidden or not row.seeds:
                continue
            estimate = None if difference is None else SCALE * difference.difference
            interval = None
            if difference is not None and difference.interval:
                interval = SCALE * difference.interval[0], SCALE * difference.interval[1]
            texts = self.shown[row.method], format_score(row.row.average)
            style = STYLES.get(self.answer(row), "soft-ink")
            lines.append(ForestLine(*texts, row.seeds, estimate, interval, self.text(row), style))
        heading = f"difference from {self.shown[self.baseline]}, 95% for all rows"
        axes = self.seeds_axis, self.axis(self.baseline)
        dots = "average" if self.over_tasks else "each seed"
        return ForestPlot(tuple(lines), *axes, heading, (-SCALE * self.margin, SCALE * self.margin), dots)

    @property
    def data(self) -> dict[str, Any]:
        """All baselines' tests for the page's script, numbers as printed, in hundredths of a point."""
        place = {row.method: number for number, row in enumerate(self.rows)}
        against = {}
        for baseline, family in self.families.items():
            axis = self.axis(baseline)
            lines = []
            for method, one in family.rows.items():
                ends = map(interval_end, one.interval) if one.interval else ("", "")
                numbers = map(_pack_number, (format_difference(one.difference), *ends))
                p, code = (_pack_p_value(one.p), ANSWERS.index(one.answer)) if one.p is not None else (-1, -1)
                lines.append([place[method], *numbers, p, code])
            ticks = [f"{tick:g}" for tick in axis.ticks]
            against[place[baseline]] = {
                "axis": [axis.low, axis.high, *axis.ends],
                "ticks": ticks,
                "rows": lines,
            }
        means = [
            [_round_mean(row.row.cells[task].mean) for task in (AVERAGE, *self.tasks)] for row in self.rows
        ]
        return {
            "margin": self.margin_text,
            "ids": [row.method for row in self.rows],
            "names": [printable(self.shown[row.method]) for row in self.rows],
            "aside": [row.aside for row in self.rows],
            "means": means,
            "steps": HEAT_STEPS,
            "against": against,
        }


def _pack_number(text: str) -> int | str:
    """A printed number of two digits as hundredths, where these give the text again."""
    hundredths = round(100 * float(text)) if text else 0
    return hundredths if f"{hundredths / 100:+.2f}" == text else text


def _round_mean(mean: float | None) -> float | None:
    """A mean with digits enough for any difference of two, as printed."""
    return None if mean is None else round(mean, 9)


def _pack_p_value(p: float) -> int:
    """A printed p value in ten-thousandths, 0 where it is less than one."""
    text = format_p_value(p)
    return 0 if text.startswith("<") else round(10_000 * float(text))


def describe_test(difference: BaselineDifference) -> str:
    """Return an interval and its p as one short text, or why there is none.

    >>> describe_test(BaselineDifference(0.01, (0.002, 0.018), 0.01, "ahead", "paired t"))
    '[+0.20, +1.80], p 0.0100'
    """
    if difference.p is None:
        return difference.test
    interval = format_interval(*(difference.interval or (None, None)))
    return f"{interval}, p {format_p_value(difference.p)}"


def heat_style(points: float) -> str:
    """Return the class of a difference's colour.

    >>> heat_style(0.1), heat_style(1.2), heat_style(-9.0)
    ('', 'up2', 'down3')
    """
    level = sum(abs(points) >= step for step in HEAT_STEPS)
    way = "up" if points > 0 else "down"
    return f"{way}{level}" if level else ""


def card_titles(baseline: str, margin: str) -> dict[str, str]:
    """Return the titles of the four cards.

    >>> card_titles("SimCSE", "0.5")["equal"]
    'equal to SimCSE within 0.5'
    """
    return {
        AHEAD: f"ahead of {baseline}",
        EQUAL: f"equal to {baseline} within {margin}",
        OPEN: "still open",
        BEHIND: f"behind {baseline}",
    }


def collect_answers(
    campaign: Campaign,
    records: Sequence[RunRecord],
    table: Leaderboard,
    tests: PairwiseTests,
    number: int,
    *,
    pickable: bool = True,
) -> Answers:
    """Return the answers of one profile and suite; ``table`` has all its rows, by id.

    ``pickable`` tests every row as a baseline; otherwise only the campaign's baseline, or simcse.
    """
    families = {}
    baseline = campaign.baseline or find_default_baseline(tests.of().methods) or ""
    if campaign.family_kind != "all":
        for method in tests.of().methods if pickable else (baseline,):
            family = compare_with_baseline(tests, method, margin=campaign.margin)
            if family is not None:
                families[method] = family
    family_rows = campaign.family(records)
    runs, rows = by_method(records), []
    for row in table.rows:
        method = row.method
        done = sorted(finished_records(runs[method]), key=lambda record: record.seed or 0)
        values = [record.score("avg") for record in done]
        seeds = tuple(SCALE * value for value in values if value is not None)
        aside = family_rows.aside.get(method, "") or ("no finished run" if not seeds else "")
        if tests.over_tasks and row.rank is not None:
            aside = DASH  # its ranks have a column
        hidden = method in family_rows.hidden and not campaign.all_rows
        anchor = f"row-{number}-{safe_name(method)}"
        card = card_anchor(runs[method][0].name)
        size = format_millions(encoder_parameters(runs[method][0]))
        rows.append(AnswerRow(row, method, anchor, card, seeds, method in families, aside, hidden, size))
    averages = [seed for row in rows if not row.hidden for seed in row.seeds]
    shown = {row.method: campaign.shown(row.method) for row in rows}
    return Answers(
        describe_title(records),
        describe_suite(records[0].suite),
        describe_setting([record for record in records if record.method not in family_rows.hidden]),
        campaign.margin,
        tuple(rows),
        shown,
        baseline if baseline in families else "",
        families,
        make_cell_axis(averages),
        tuple(task for task in table.tasks if task != AVERAGE),
        number,
        f"{safe_name(records[0].profile)}-{safe_name(records[0].suite)}-",
        tuple(campaign.shown(method) for method in tests.of().methods if method in find_best(tests)),
        *number_footnotes(shown.values(), campaign.footnotes),
        over_tasks=tests.over_tasks,
    )
