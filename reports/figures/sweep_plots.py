"""Figures of sweeps: scores over the grid, curves, and the surface of a formula."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from bench.config.sweep_manifest import Manifest
from bench.config.sweeps import SWEEPS, Sweep
from bench.records.record import RunRecord, safe_name
from bench.render.figure import Figure, Kind, Series
from bench.render.grid import SCALE, summarise_values
from bench.reports.campaign import Campaign
from bench.reports.figures.suite_plots import curve_series
from bench.reports.records import describe_provenance, task_scores
from bench.reports.tables.sweep_tables import norm_factor, records_by_cell, sweep_task


def sweep_figures(campaign: Campaign) -> list[Figure]:
    """Return the figures of a campaign's sweeps."""
    return [figure for manifest in campaign.sweeps for figure in _manifest_figures(manifest, campaign)]


def _manifest_figures(manifest: Manifest, campaign: Campaign) -> Iterator[Figure]:
    sweep = SWEEPS[manifest.sweep]
    if sweep.surface:
        yield _surface_figure(manifest, campaign)
        return
    for suite in manifest.suites:
        at = records_by_cell(manifest, suite, campaign.records)
        used = list({id(r): r for group in at.values() for r in group if r.status == "ok"}.values())
        if not used:
            continue
        name = f"{safe_name(manifest.profile)}-{manifest.sweep}-{safe_name(suite)}"
        on, source = f"({suite}, {manifest.profile})", describe_provenance(used, campaign.name)
        yield _score_figure(sweep, at, name, f"{sweep.question} {on}", source)
        for column in dict.fromkeys(place[1] for place in at) if sweep.curves else ():
            lines = {row: runs for (row, other), runs in at.items() if other == column}
            file, title = f"{name}-{safe_name(column)}", f"{sweep.question} {column} {on}"
            for short, label, series in curve_series(lines):
                yield Figure(
                    f"{file}-{short}", "sweeps", title, "lines", "step", label, source, series=series
                )


def _score_figure(
    sweep: Sweep,
    at: Mapping[tuple[str, str], Sequence[RunRecord]],
    name: str,
    title: str,
    source: tuple[str, ...],
) -> Figure:
    """The scores over the grid, a series a column: lines over numbers, else a strip."""
    rows, columns = (list(dict.fromkeys(place[i] for place in at)) for i in (0, 1))
    task = sweep_task(sweep.task, [r for group in at.values() for r in group])
    series = []
    for column in columns:
        cells = [summarise_values(task_scores(at.get((row, column), []), task)) for row in rows]
        found = [
            (float(row) if sweep.numeric else float(i), SCALE * cell.mean, SCALE * (cell.sd or 0.0))
            for i, (row, cell) in enumerate(zip(rows, cells, strict=True))
            if cell.mean is not None
        ]
        if found:
            places, means, spread = zip(*found, strict=True)
            x, y = (places, means) if sweep.numeric else (means, places)
            series.append(Series(column, x, y, spread))
    label, note = f"Spearman x 100, {task}", f"{sweep.source}. Bars are standard deviations over seeds."
    kind: Kind = "lines" if sweep.numeric else "strip"
    axes = (sweep.axis, label) if sweep.numeric else (label, sweep.axis)
    names = () if sweep.numeric else tuple(rows)
    return Figure(name, "sweeps", title, kind, *axes, source, tuple(series), rows=names, note=note)


def _surface_figure(manifest: Manifest, campaign: Campaign) -> Figure:
    """The norm ratio over the ratio of two lengths and their cosine (TNCSE, Figure 2; JTCSE, Figure 3)."""
    ratios, cosines = np.linspace(0, 4, 41), np.linspace(1, -1, 41)
    grid = norm_factor(*np.meshgrid(ratios, cosines))
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
        cells=tuple(tuple(float(v) for v in row) for row in grid),
    )
