"""What choosing the checkpoint on the dev set is worth: the selected one's average against the last one's."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from bench.records.record import RunRecord
from bench.render.grid import DASH, SCALE, Grid, Value, format_difference, format_interval, summarise_values
from bench.reports.campaign import Campaign
from bench.reports.records import by_method, by_profile_and_suite, finished_records, last_average
from bench.stats.correlations import rank_correlation
from bench.stats.seed_pairs import paired_t

_HEADER = ("method", "selected", "last", "selected - last", "95% interval", "unlike", "rank", "rank by last")
_SIZES = (0.01, 0.02)
"""What the notes count differences above, in the metric's unit."""
Both = tuple[float, float]


def checkpoint_grids(campaign: Campaign) -> list[Grid]:
    """Return a table for every profile and suite with trained records that have both averages.

    None of a report of last checkpoints alone.
    """
    if campaign.last:
        return []
    found = (_checkpoint_grid(campaign, records) for records in by_profile_and_suite(campaign.records))
    return [grid for grid in found if grid is not None]


def _checkpoint_grid(campaign: Campaign, records: Sequence[RunRecord]) -> Grid | None:
    runs = {method: _average_pairs(own) for method, own in by_method(finished_records(records)).items()}
    means = {method: _mean_pair(both) for method, both in runs.items() if both}
    if not means:
        return None
    ranked = {method: mean for method, mean in means.items() if method not in campaign.apart}
    ranks = [_rank_values({method: mean[side] for method, mean in ranked.items()}) for side in (0, 1)]
    order = sorted(means, key=lambda method: campaign.place(method, means[method][0]))
    rows = [
        _method_row(campaign.shown(m), runs[m], tuple(str(rank.get(m, DASH)) for rank in ranks))
        for m in order
    ]
    notes = [*_grid_notes({m: runs[m] for m in ranked}, list(ranked.values())), *campaign.apart_note(order)]
    title = (
        f"Choice of checkpoint: {records[0].suite}, profile {records[0].profile}, campaign {campaign.name}"
    )
    return Grid(title, _HEADER, tuple(rows), tuple(notes))


def _average_pairs(runs: Sequence[RunRecord]) -> list[Both]:
    """Both averages of each run that has them."""
    found = ((run.score("avg"), last_average(run)) for run in runs)
    return [(selected, last) for selected, last in found if selected is not None and last is not None]


def _mean_pair(both: Sequence[Both]) -> Both:
    selected, last = zip(*both, strict=True)
    return fmean(selected), fmean(last)


def _rank_values(values: dict[str, float]) -> dict[str, int]:
    """1 for the best; equal ones share the first of their ranks."""
    return {method: 1 + sum(other > own for other in values.values()) for method, own in values.items()}


def _method_row(name: str, both: Sequence[Both], ranks: tuple[str, ...]) -> tuple[Value, ...]:
    selected, last = zip(*both, strict=True)
    unlike = sum(a != b for a, b in both)
    ends = DASH
    if len(both) > 1:
        found = paired_t(selected, last)
        ends = format_interval(found.low, found.high)
    difference = format_difference(fmean(selected) - fmean(last))
    cells = (summarise_values(selected), summarise_values(last), difference, ends, f"{unlike} of {len(both)}")
    return (name, *cells, *ranks)


def _grid_notes(runs: dict[str, list[Both]], means: Sequence[Both]) -> list[str]:
    notes = [
        "selected: the checkpoint with the best dev score, on which all other tables rest; last: the end of "
        "the training (--checkpoint last makes the other tables of it). Mean and standard deviation over "
        "seeds.",
        "Interval: of pairs, the two checkpoints of a run, for further seeds; uncorrected for the others.",
        "unlike: runs of which the last checkpoint wasn't the selected one. What trains nothing itself isn't "
        "here.",
        "Predictions of the last checkpoint aren't kept, so no check computes its scores again.",
    ]
    if not means:
        return notes
    apart = [abs(a - b) for both in runs.values() for a, b in both]
    above = ", ".join(f"by more than {SCALE * size:g} in {_share_above(apart, size)}" for size in _SIZES)
    notes.append(f"Of {len(apart)} runs the averages differ in {_share_above(apart, 0)}, {above} (points).")
    selected, last = zip(*means, strict=True)
    found = rank_correlation(selected, last)
    if found.rho is not None:
        notes.append(f"Order of the {found.n} methods by both: rho = {found.rho:+.2f}.")
    return notes


def _share_above(apart: Sequence[float], size: float) -> str:
    return f"{100 * fmean(x > size for x in apart):.0f}%"
