"""Figures of sweeps as SVG, from the same records as their tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.errors import InputError
from bench.record import RunRecord
from bench.reports.sweeps import curves, norm_ratio, points, shown_task
from bench.reports.table import SCALE, Cell, summarise
from bench.sweeps import SWEEPS, Manifest, Sweep


def draw(manifests: Sequence[Manifest], records: Sequence[RunRecord], folder: Path) -> list[Path]:
    """Draw every sweep's figures into a folder; the same records give the same bytes.

    Returns:
        The files, ``PROFILE-SWEEP-SUITE.svg``.

    Raises:
        InputError: there is no sweep, or the folder can't be written.
    """
    if not manifests:
        raise InputError("no sweep has run here", where="--figures", hint="bench sweep NAME runs one")
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "bench"  # ids in the file, random otherwise
    paths = []
    for manifest in manifests:
        sweep = SWEEPS[manifest.sweep]
        for suite in manifest.suites:
            found = [r for r in records if (r.profile, r.suite) == (manifest.profile, suite)]
            draw_figure = _curves if sweep.curves else _scores
            figure = _surface() if sweep.surface else draw_figure(sweep, manifest, found)
            path = folder / f"{manifest.profile}-{manifest.sweep}-{suite}.svg"
            paths.append(_save(figure, path))
    return paths


def _save(figure: Any, path: Path) -> Path:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, metadata={"Date": None})
    except OSError as error:
        raise InputError(f"a figure can't be written: {error.strerror}", where=str(path)) from error
    return path


def _scores(sweep: Sweep, manifest: Manifest, records: Sequence[RunRecord]) -> Any:
    """Lines over numbered rows, else bars in groups; whiskers are standard deviations over seeds."""
    from matplotlib.figure import Figure

    at = points(manifest, records)
    rows, columns = (list(dict.fromkeys(place[i] for place in at)) for i in (0, 1))
    task = shown_task(sweep.task, [record for group in at.values() for record in group])
    figure = Figure(figsize=(1.6 + 0.9 * len(rows), 3.2), layout="constrained")
    axes = figure.add_subplot()
    for number, column in enumerate(columns):
        cells = [summarise([r.score(task) for r in at.get((row, column), [])]) for row in rows]
        means = [np.nan if cell.mean is None else SCALE * cell.mean for cell in cells]
        spread = [_spread(cell) for cell in cells]
        if sweep.numeric:
            places = [float(row) for row in rows]
            axes.errorbar(places, means, yerr=spread, marker="o", capsize=3, label=column)
        else:
            width = 0.8 / len(columns)
            offsets = np.arange(len(rows)) + (number - (len(columns) - 1) / 2) * width
            axes.bar(offsets, means, width, yerr=spread, capsize=2, label=column)
    if not sweep.numeric:
        axes.set_xticks(range(len(rows)), rows, rotation=30, ha="right")
    axes.set_xlabel(sweep.axis)
    axes.set_ylabel(f"Spearman x 100, {task}")
    if len(columns) > 1:
        axes.legend()
    return figure


def _curves(sweep: Sweep, manifest: Manifest, records: Sequence[RunRecord]) -> Any:
    """A column of panels for each method: dev score above, effective rank below, a line for each row."""
    from matplotlib.figure import Figure

    at = points(manifest, records)
    rows, columns = (list(dict.fromkeys(place[i] for place in at)) for i in (0, 1))
    figure = Figure(figsize=(1 + 2.4 * len(columns), 4.4), layout="constrained")
    panels = figure.subplots(2, len(columns), squeeze=False, sharex="col")
    lines = (("dev_curve", SCALE, "Spearman x 100, dev"), ("collapse_curve", 1.0, "effective rank"))
    for (name, scale, label), across in zip(lines, panels, strict=True):
        across[0].set_ylabel(label)
        for column, axes in zip(columns, across, strict=True):
            for row in rows:
                found = [curve for curve in curves(at.get((row, column), []), name) if curve]
                steps = sorted({step for curve in found for step, *_ in curve})
                values = [[v for curve in found for s, v, *_ in curve if s == step] for step in steps]
                axes.plot(steps, [scale * float(np.mean(v)) for v in values], marker=".", label=row)
    for column, axes in zip(columns, panels[0], strict=True):
        axes.set_title(column)
    for axes in panels[1]:
        axes.set_xlabel("step")
    panels[0][-1].legend(title=sweep.axis)
    return figure


def _spread(cell: Cell) -> float:
    return 0.0 if cell.sd is None else SCALE * cell.sd


def _surface() -> Any:
    """The norm ratio over the ratio of two lengths and their cosine (TNCSE, Figure 2; JTCSE, Figure 3)."""
    from matplotlib.figure import Figure

    k, t = np.meshgrid(np.linspace(0, 4, 161), np.linspace(-1, 1, 81))
    figure = Figure(figsize=(4.8, 3.2), layout="constrained")
    axes = figure.add_subplot()
    contours = axes.contourf(k, t, norm_ratio(k, t), levels=np.linspace(0, 1, 21))
    figure.colorbar(contours, label="norm ratio")
    axes.set_xlabel("k, ratio of the lengths")
    axes.set_ylabel("t, cosine")
    return figure
