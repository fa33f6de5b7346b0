"""Figures of sweeps: scores over the grid, curves, and the surface of a formula."""

from __future__ import annotations

import numpy as np

from bench.records.record import RunRecord, safe_name
from bench.reports.campaign import Campaign
from bench.reports.figures.figure import Figure, Series
from bench.reports.figures.of_records import curve_figures
from bench.reports.grid import SCALE, summarise
from bench.reports.records import provenance, values
from bench.reports.tables.sweeps import norm_ratio, points, shown_task
from bench.sweeps.grids import SWEEPS
from bench.sweeps.manifest import Manifest


def sweep_figures(campaign: Campaign) -> list[Figure]:
    """Return the figures of a campaign's sweeps."""
    return [figure for manifest in campaign.sweeps for figure in _sweep(manifest, campaign)]


def _sweep(manifest: Manifest, campaign: Campaign) -> list[Figure]:
    sweep = SWEEPS[manifest.sweep]
    if sweep.surface:
        return [_surface(manifest, campaign)]
    made: list[Figure] = []
    for suite in manifest.suites:
        records = [r for r in campaign.records if (r.profile, r.suite) == (manifest.profile, suite)]
        at = points(manifest, records)
        used = list({id(r): r for group in at.values() for r in group if r.status == "ok"}.values())
        name = f"{safe_name(manifest.profile)}-{manifest.sweep}-{safe_name(suite)}"
        if used:
            made.append(_sweep_scores(manifest, name, suite, at, provenance(used, campaign.name)))
        if used and sweep.curves:
            made += _sweep_curves(manifest, name, suite, at, provenance(used, campaign.name))
    return made


def _sweep_scores(
    manifest: Manifest,
    name: str,
    suite: str,
    at: dict[tuple[str, str], list[RunRecord]],
    source: tuple[str, ...],
) -> Figure:
    sweep = SWEEPS[manifest.sweep]
    rows, columns = (list(dict.fromkeys(place[i] for place in at)) for i in (0, 1))
    task = shown_task(sweep.task, [r for group in at.values() for r in group])
    series = []
    for column in columns:
        cells = [summarise(values(at.get((row, column), []), task)) for row in rows]
        there = [(i, cell, cell.mean) for i, cell in enumerate(cells) if cell.mean is not None]
        places = [float(rows[i]) if sweep.numeric else float(i) for i, _, _ in there]
        means = tuple(SCALE * mean for _, _, mean in there)
        spread = tuple(SCALE * (cell.sd or 0.0) for _, cell, _ in there)
        x, y = (tuple(places), means) if sweep.numeric else (means, tuple(places))
        if means:
            series.append(Series(column, x, y, spread))
    title, label = f"{sweep.question} ({suite}, {manifest.profile})", f"Spearman x 100, {task}"
    note = f"{sweep.source}. Bars are standard deviations over seeds."
    if sweep.numeric:
        axes = sweep.axis, label
        return Figure(name, "sweeps", title, "lines", *axes, source, tuple(series), note=note)
    axes = label, sweep.axis
    return Figure(name, "sweeps", title, "strip", *axes, source, tuple(series), rows=tuple(rows), note=note)


def _sweep_curves(
    manifest: Manifest,
    name: str,
    suite: str,
    at: dict[tuple[str, str], list[RunRecord]],
    source: tuple[str, ...],
) -> list[Figure]:
    """Dev score and effective rank against the step, a figure a column, a line a row."""
    made = []
    for column in dict.fromkeys(place[1] for place in at):
        title = f"{SWEEPS[manifest.sweep].question} {column} ({suite}, {manifest.profile})"
        lines = {row: runs for (row, other), runs in at.items() if other == column}
        of = f"{name}-{safe_name(column)}", "sweeps", source
        made += curve_figures(lines, {"dev": title, "rank": title}, of)
    return made


def _surface(manifest: Manifest, campaign: Campaign) -> Figure:
    """The norm ratio over the ratio of two lengths and their cosine (TNCSE, Figure 2; JTCSE, Figure 3)."""
    ratios, cosines = np.linspace(0, 4, 41), np.linspace(1, -1, 41)
    grid = norm_ratio(*np.meshgrid(ratios, cosines))
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
