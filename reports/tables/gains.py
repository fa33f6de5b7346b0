"""What the modified losses gain over their originals (gradient paradigm, Tables 3 and 4)."""

from __future__ import annotations

from collections.abc import Sequence

from bench.data.published import Line, lines
from bench.records.record import RunRecord
from bench.reports.campaign import Campaign
from bench.reports.grid import DASH, Grid, Quoted, Value, interval, signed, summarise
from bench.reports.records import by_method, by_profile_and_suite, task_list, values
from bench.reports.tables.published import GREY
from bench.reports.tables.significance import Averages, compare_pair
from bench.reports.tables.suites import TASK_NAMES

LOSSES = ("mhe", "mhs", "barlow", "vicreg")
_BACKBONES = ("bert-base", "roberta-base")


def gain_grids(campaign: Campaign) -> list[Grid]:
    """Return a table for every profile and suite with such a pair."""
    return [grid for group in by_profile_and_suite(campaign.records) if (grid := _grid(group, campaign.name))]


def _grid(records: Sequence[RunRecord], campaign: str) -> Grid | None:
    runs, tasks = by_method(records), task_list(records)
    printed = {(line.first.method, line.first.backbone): line for line in lines(records[0].suite)}
    rows: list[tuple[Value, ...]] = []
    for loss in LOSSES:
        gains = _gains(runs.get(loss, []), runs.get(f"m_{loss}", []), tasks)
        if gains is None:
            continue
        rows.append((f"m_{loss} - {loss}", *gains))
        for backbone in _BACKBONES:
            if line := printed.get((f"m_{loss}", backbone)):
                rows.append((f"published, {backbone}", *(_printed_gain(line, task) for task in tasks), DASH))
    if not rows:
        return None
    title = (
        f"Gains of the modified losses: {records[0].suite}, profile {records[0].profile}, campaign {campaign}"
    )
    header = ("gain", *(TASK_NAMES.get(task, task) for task in tasks), "95% of Avg.")
    notes = ["Points, means over seeds; interval: Welch's, over seeds, not corrected.", GREY]
    if printed:
        notes.append(
            "Gradient paradigm, Tables 3 to 5: the Barlow Twins and VICReg rows may have been exchanged."
        )
    return Grid(title, header, tuple(rows), tuple(notes))


def _gains(before: Sequence[RunRecord], after: Sequence[RunRecord], tasks: Sequence[str]) -> list[str] | None:
    """Differences of the means by task, and the interval of the average's; None where a mean is missing."""
    means = [[summarise(values(runs, task)).mean for task in tasks] for runs in (before, after)]
    gains = [signed(b - a) for a, b in zip(*means, strict=True) if a is not None and b is not None]
    if len(gains) < len(tasks):
        return None
    sides = (Averages(runs[0].method, tuple(values(runs)), False) for runs in (after, before))
    pair = compare_pair(*sides)
    return [*gains, interval(pair.low, pair.high)]


def _printed_gain(line: Line, task: str) -> Quoted | str:
    note = line.figures[task].note if task in line.figures else ""
    gain = note.partition("printed gain ")[2].partition(";")[0].split(" ")[0]
    return Quoted(gain) if gain else DASH
