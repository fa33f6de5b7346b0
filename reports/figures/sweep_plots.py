"""Draw sweeps: scores over the grid, curves, and the surface of a formula."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

import numpy as np

from bench.config.sweep_manifest import Manifest
from bench.config.sweeps import SWEEPS, Sweep
from bench.records.record import RunRecord, safe_name
from bench.render.figure import Figure, Series
from bench.render.grid import SCALE
from bench.reports.campaign import Campaign
from bench.reports.figures.suite_plots import curve_series
from bench.reports.record_groups import describe_provenance, finished_records, summarise_scores
from bench.reports.tables.sweep_tables import (
    distinct_records,
    grid_axes,
    norm_factor,
    records_by_cell,
    sweep_task,
)


def sweep_figures(campaign: Campaign) -> list[Figure]:
    """Return the figures of a campaign's sweeps."""
    return list(chain.from_iterable(_manifest_figures(manifest, campaign) for manifest in campaign.sweeps))


def _manifest_figures(manifest: Manifest, campaign: Campaign) -> Iterator[Figure]:
    sweep = SWEEPS[manifest.sweep]
    if sweep.surface:
        yield _surface_figure(manifest, campaign)
        return
    for suite in manifest.suites:
        cells = records_by_cell(manifest, suite, campaign.records)
        used = finished_records(distinct_records(cells.values()))
        if not used:
            continue
        name = f"{safe_name(manifest.profile)}-{manifest.sweep}-{safe_name(suite)}"
        on, source = f"({suite}, {manifest.profile})", describe_provenance(used, campaign.name)
        yield _score_figure(sweep, cells, name, f"{sweep.question} {on}", source)
        for column in grid_axes(cells)[1] if sweep.curves else ():
            lines = {row: runs for (row, other), runs in cells.items() if other == column}
            file, title = f"{name}-{safe_name(column)}", f"{sweep.question} {column} {on}"
            for short, label, series in curve_series(lines):
                names = f"{file}-{short}", "sweeps", title
                yield Figure(*names, "lines", "step", label, source, series=series)


def _score_figure(
    sweep: Sweep,
    cells: Mapping[tuple[str, str], Sequence[RunRecord]],
    name: str,
    title: str,
    source: tuple[str, ...],
) -> Figure:
    """The scores over the grid, a series a column: lines over numbers, else a strip."""
    rows, columns = grid_axes(cells)
    task = sweep_task(sweep.task, list(chain.from_iterable(cells.values())))
    series = []
    for column in columns:
        points = []
        for i, row in enumerate(rows):
            cell = summarise_scores(cells.get((row, column), []), task)
            if cell.mean is not None:
                place = float(row) if sweep.numeric else float(i)
                points.append((place, SCALE * cell.mean, SCALE * (cell.sd or 0.0)))
        if points:
            places, means, spread = zip(*points, strict=True)
            x, y = (places, means) if sweep.numeric else (means, places)
            series.append(Series(column, x, y, spread))
    label, note = f"Spearman x 100, {task}", f"{sweep.source}. Bars are standard deviations over seeds."
    head = name, "sweeps", title
    if sweep.numeric:
        return Figure(*head, "lines", sweep.axis, label, source, tuple(series), note=note)
    return Figure(*head, "strip", label, sweep.axis, source, tuple(series), rows=tuple(rows), note=note)


def _surface_figure(manifest: Manifest, campaign: Campaign) -> Figure:
    """The norm ratio over the ratio of two lengths and their cosine (TNCSE, Figure 2; JTCSE, Figure 3)."""
    ratios, cosines = np.linspace(0, 4, 41), np.linspace(1, -1, 41)
    return Figure(
        f"{safe_name(manifest.profile)}-{manifest.sweep}",
        "sweeps",
        SWEEPS[manifest.sweep].question,
        "heat",
        "k, ratio of the lengths",
        "t, cosine",
        (f"campaign: {campaign.name}", "a formula, no records"),
        rows=tuple(f"{t:.2f}" for t in cosines),
        columns=tuple(f"{k:.1f}" for k in ratios),
        cells=tuple(map(tuple, norm_factor(*np.meshgrid(ratios, cosines)).tolist())),
    )
