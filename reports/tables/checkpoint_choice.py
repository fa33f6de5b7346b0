"""The worth of choosing the checkpoint on the dev set: the selected one's average against the last one's."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from statistics import fmean

from bench.records.record import RunRecord
from bench.render.grid import DASH, SCALE, Grid, Value, format_difference, format_interval, summarise_values
from bench.reports.campaign import Campaign
from bench.reports.record_groups import finished_records, last_average
from bench.stats.correlations import rank_correlation
from bench.stats.seed_pairs import paired_t

_HEADER = ("method", "selected", "last", "selected - last", "95% interval", "unlike", "rank", "rank by last")
_AS_RECORDED = "As recorded: scores of the last checkpoint, of which no predictions are kept."
_SIZES = (0.01, 0.02)
"""Sizes of differences that the notes count, in the metric's unit."""
Both = tuple[float, float]


def checkpoint_grid(campaign: Campaign, records: Sequence[RunRecord]) -> Grid | None:
    """Return the table of trained records that have both averages, if any."""
    runs: dict[str, list[Both]] = {}
    for record in finished_records(records):
        selected, last = record.score("avg"), last_average(record)
        if selected is not None and last is not None:
            runs.setdefault(record.method, []).append((selected, last))
    if not runs:
        return None
    means = {method: tuple(map(fmean, zip(*pairs, strict=True))) for method, pairs in runs.items()}
    ranked = dict(means)
    for method in campaign.apart.intersection(means):
        del ranked[method]
    order = sorted(means, key=lambda method: campaign.place(method, means[method][0]))
    rows = []
    for method in order:
        ranks = [DASH, DASH]
        if method in ranked:  # equal means share the first of their ranks
            columns = zip(*ranked.values(), strict=True)
            ranks = list(map(_rank_text, columns, means[method]))
        rows.append((campaign.shown(method), *_method_cells(runs[method]), *ranks))
    pairs = list(chain.from_iterable(map(runs.__getitem__, ranked)))
    notes = [_AS_RECORDED, *_grid_notes(pairs, list(ranked.values())), *campaign.apart_note(order)]
    return Grid(campaign.title("Choice of checkpoint", records), _HEADER, tuple(rows), tuple(notes))


def _rank_text(column: Sequence[float], mean: float) -> str:
    return str(1 + sum(other > mean for other in column))


def _method_cells(pairs: Sequence[Both]) -> tuple[Value, ...]:
    selected, last = zip(*pairs, strict=True)
    unlike = sum(a != b for a, b in pairs)
    ends = DASH
    if len(pairs) > 1:
        test = paired_t(selected, last)
        ends = format_interval(test.low, test.high)
    difference = format_difference(fmean(selected) - fmean(last))
    return summarise_values(selected), summarise_values(last), difference, ends, f"{unlike} of {len(pairs)}"


def _grid_notes(pairs: Sequence[Both], means: Sequence[Sequence[float]]) -> list[str]:
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
    distances = [abs(a - b) for a, b in pairs]
    shares = ", ".join(f"by more than {SCALE * size:g} in {_share_above(distances, size)}" for size in _SIZES)
    differ = f"the averages differ in {_share_above(distances, 0)}"
    notes.append(f"Of {len(distances)} runs {differ}, {shares} (points).")
    selected, last = zip(*means, strict=True)
    order = rank_correlation(selected, last)
    if order.rho is not None:
        notes.append(f"Order of the {order.n} methods by both: rho = {order.rho:+.2f}.")
    return notes


def _share_above(distances: Sequence[float], size: float) -> str:
    return f"{100 * fmean(x > size for x in distances):.0f}%"
