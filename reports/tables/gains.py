"""Gains of the modified losses over their originals (gradient paradigm, Tables 3 and 4)."""

from __future__ import annotations

from collections.abc import Sequence

from bench.data.published_tables import PublishedRow, published_rows
from bench.records.record import RunRecord
from bench.render.grid import DASH, Grid, Quoted, Value, format_difference, format_number
from bench.reports.campaign import Campaign
from bench.reports.record_groups import by_method, summarise_scores, task_list
from bench.reports.tables.pairwise_tests import describe_tests, run_pairwise_tests
from bench.reports.tables.published_figures import GREY
from bench.reports.tables.suite_tables import task_headings

LOSSES = ("mhe", "mhs", "barlow", "vicreg")
_BACKBONES = ("bert-base", "roberta-base")


def gain_grids(campaign: Campaign) -> list[Grid]:
    """Return a table for every profile and suite with such a pair."""
    return campaign.grids(_gain_grid)


def _gain_grid(campaign: Campaign, records: Sequence[RunRecord]) -> Grid | None:
    runs, tasks, ranking = by_method(records), task_list(records), run_pairwise_tests(campaign, records).of()
    printed = {(line.first.method, line.first.backbone): line for line in published_rows(records[0].suite)}
    rows: list[tuple[Value, ...]] = []
    for loss in LOSSES:
        gains = _mean_gains(runs.get(loss, []), runs.get(f"m_{loss}", []), tasks)
        if gains is None:
            continue
        names = f"m_{loss}", loss
        pair = ranking.pair(*names)
        p = format_number(pair.adjusted, ".4f")
        average = f"{gains[-1]}{'*' * pair.differs}"
        rows.append((" - ".join(map(campaign.shown, names)), *gains[:-1], average, p))
        for backbone in _BACKBONES:
            if line := printed.get((f"m_{loss}", backbone)):
                rows.append((f"published, {backbone}", *(_printed_gain(line, task) for task in tasks), DASH))
    if not rows:
        return None
    header = ("gain", *task_headings(tasks), "p corrected")
    notes = ["Points, means over seeds.", GREY]
    if ranking.methods:
        notes[1:1] = [
            f"*: the average differs, p <= 0.05 by {describe_tests(ranking)}.",
            "p corrected: of the average, among all these pairs. A pair that was chosen before any score was "
            "seen can be tested by itself, with its interval: bench compare A B.",
        ]
    if printed:
        notes.append(
            "Gradient paradigm, Tables 3 to 5: the Barlow Twins and VICReg rows may have been exchanged."
        )
    return Grid(campaign.title("Gains of the modified losses", records), header, tuple(rows), tuple(notes))


def _mean_gains(
    before: Sequence[RunRecord], after: Sequence[RunRecord], tasks: Sequence[str]
) -> list[str] | None:
    """Differences of the means by task; None where a mean is missing."""
    gains = []
    for task in tasks:
        first, second = (summarise_scores(runs, task).mean for runs in (before, after))
        if first is None or second is None:
            return None
        gains.append(format_difference(second - first))
    return gains


def _printed_gain(line: PublishedRow, task: str) -> Quoted | str:
    note = line.figures[task].note if task in line.figures else ""
    gain = note.partition("printed gain ")[2].partition(";")[0].split(" ")[0]
    return Quoted(gain) if gain else DASH
