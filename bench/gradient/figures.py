"""Figures of `bench gradient`: sampled angles, and held-out text before, during and after training."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bench.comparison.selection import group_by
from bench.records.record import safe_name
from bench.records.store import ResultStore
from bench.render.figure import Figure, Series
from bench.reports.campaign import GRADIENT, Campaign, read_json, read_table
from bench.reports.figures.campaign_files import check_figures

JOINT = "gradient-runs"
"""Prefix of the names of figures of several runs."""
_WHEN = {"before": "before training", "after": "after training"}
_LEMMA_BINS = 30
_GRID = ("mu_pos", "mu_neg")
_HARDEST = ("mu_neg", "tau", "share", "share_released")
_RUNS = "*/gradient.json"  # measured trainings; those of one folder share figures
_MOST_CELLS = 50  # a side of a drawn grid
_SOURCE = "bench gradient: sampled angles"
_NAMES = {
    "gd": "Gradient dissipation",
    "ratio": "Ratio of positive to negative",
    "shaded": "Where the ratio doesn't matter",
}
_SHARES = ("Share of the hardest negative", ("tau", "share"))
_LEMMA = (
    "Of the anchors that the baseline keeps, those whose bound is between 0 and 3, in intervals of 0.1; an "
    "anchor whose root is imaginary has no bound and counts in the whole."
)


def campaign_gradient_figures(campaign: Campaign) -> list[tuple[ResultStore, list[Figure]]]:
    """Return the figures of each store's folder of gradients; raises DataError for a damaged file."""
    files = [file for name in (*_SAMPLED, _RUNS) for file in campaign.files(f"{GRADIENT}/{name}")]
    figures = []
    for store in campaign.stores:
        paths = [path for home, path in files if home is store]
        figures.append((store, select_gradient_figures(store.root / GRADIENT, paths)))
    return figures


def gradient_figures(folder: Path) -> list[Figure]:
    """Return the figures of a folder of ``bench gradient``; raises DataError for a damaged file."""
    files = [path for name in (*_SAMPLED, _RUNS) for path in sorted(folder.glob(name))]
    return select_gradient_figures(folder, files)


def select_gradient_figures(folder: Path, files: Sequence[Path]) -> list[Figure]:
    """Return the figures of some of the files in such a folder; raises DataError for a damaged one."""
    figures, runs = [], []
    for path in files:
        if path.name in _SAMPLED:
            figures += check_figures(path, partial(_SAMPLED[path.name], path))
        else:
            runs.append(path)
    for path in runs:
        figures += check_figures(path, partial(_run_figures, path))
    return figures + check_figures(folder, partial(_joint_figures, runs))


def _sampled_grids(path: Path) -> Iterator[Figure]:
    """Gradient dissipation and ratios over the means of the angles (gradient paradigm, Figures 2, 4, 10)."""
    table = read_table(path, _GRID)
    source = (f"file: {GRADIENT}/{path.name}", _SOURCE)
    lines = {(float(line["mu_pos"]), float(line["mu_neg"])): line for line in table}
    rows = _thin_values(sorted({positive for positive, _ in lines}, reverse=True))
    columns = _thin_values(sorted({negative for _, negative in lines}))
    row_labels = tuple(f"{angle:.2f}" for angle in rows)
    column_labels = tuple(f"{angle:.2f}" for angle in columns)
    axes = "mean angle of negatives", "mean angle of positives"
    for key in table[0]:
        if key not in _GRID:
            kind, _, loss = key.partition("_")
            file = f"gradient-{safe_name(key.replace('_', '-'))}"
            title = f"{_NAMES.get(kind, kind)}: {loss.replace('_', ' ')}"
            cells = []
            for positive in rows:
                cells.append(tuple(float(lines[positive, negative][key]) for negative in columns))
            labels = row_labels, column_labels
            yield Figure(file, "gradient", title, "heat", *axes, source, (), *labels, tuple(cells))


def _thin_values(values: Sequence[float]) -> list[float]:
    """At most _MOST_CELLS of them, ends included."""
    if len(values) <= _MOST_CELLS:
        return list(values)
    return [values[round(i)] for i in np.linspace(0, len(values) - 1, _MOST_CELLS)]


def _hardest_shares(path: Path) -> Iterator[Figure]:
    """Share of the hardest negative by temperature (Figure 3)."""
    table = read_table(path, _HARDEST)
    axes = "mean angle of negatives", "share"
    for key, form in (("share", "as the paper writes it"), ("share_released", "as the released code")):
        series = []
        for tau, lines in group_by(table, lambda line: line["tau"]).items():
            shares = tuple(float(line[key]) for line in lines)
            series.append(Series(f"tau {tau}", tuple(float(line["mu_neg"]) for line in lines), shares))
        name, title = f"gradient-hardest-{key.replace('_', '-')}", f"Share of the hardest negative, {form}"
        source = (f"file: {GRADIENT}/{path.name}", _SOURCE)
        yield Figure(name, "gradient", title, "lines", *axes, source, tuple(series))


_SAMPLED: dict[str, Callable[[Path], Iterable[Figure]]] = {
    "gradient-grid.csv": _sampled_grids,
    "gradient-hardest.csv": _hardest_shares,
}


def _run_figures(path: Path) -> Iterator[Figure]:
    """Figures of one run (Figures 5, 7, 8 and 9)."""
    run = read_json(path)
    make = partial(_line_figure, {path: run}, f"gradient-{safe_name(path.parent.name)}", _run_name(run))
    both = []
    for when, label in _WHEN.items():
        both += [_density_series(run, when, kind, f"{kind}, {label}") for kind in ("positive", "negative")]
    yield make("density", "Cosines", ("cosine", "density"), both)
    yield make("hardest", *_SHARES, [_share_series(run, when, label) for when, label in _WHEN.items()])
    for when, label in _WHEN.items():
        if lemma := _lemma_series(run, when):
            what, axes = f"Least ratio that Lemma 1 asks for, {label}", ("ratio", "share of anchors")
            yield make(f"lemma-{when}", what, axes, lemma, _LEMMA)
    kinds = (
        ("ratio", "ratio", {"ArcCon": "arccon_ratio", "MET": "met_ratio"}),
        ("cosine", "mean cosine of positive pairs", {"positive": "positive_cosine"}),
    )
    for short, label, keys in kinds:
        lines = [_step_series(run, key, name) for name, key in keys.items()]
        yield from _step_figure(make, short, label, lines)
    note = "Bars are standard deviations over pairs."
    yield make("angles", "Angles", ("step", "angle"), _angle_series(run), note)


def _joint_figures(paths: Sequence[Path]) -> Iterator[Figure]:
    """Figures with a line a run of one folder (5, 7, 8b and 8c), none for a single run."""
    if len(paths) < 2:
        return
    files = {path: read_json(path) for path in paths}
    make = partial(_line_figure, files, JOINT, "runs")
    runs = [(_run_name(run), run) for run in files.values()]
    for kind in ("negative", "positive"):
        lines = [_density_series(run, "after", kind, name) for name, run in runs]
        yield make(f"density-{kind}", f"Cosines of {kind} pairs after training", ("cosine", "density"), lines)
    shares = [_share_series(run, "before", f"before training, {name}") for name, run in runs]
    if len({line.y for line in shares}) == 1:
        shares = [replace(shares[0], name="before training")]
    shares += [_share_series(run, "after", name) for name, run in runs]
    yield make("hardest", *_SHARES, shares)
    for short, label, key in (
        ("ratio-arccon", "ratio of ArcCon", "arccon_ratio"),
        ("ratio-met", "ratio of MET", "met_ratio"),
        ("cosine", "mean cosine of positive pairs", "positive_cosine"),
    ):
        yield from _step_figure(make, short, label, [_step_series(run, key, name) for name, run in runs])


def _run_name(run: dict[str, Any]) -> str:
    return f"{run['method']}, seed {run['seed']}"


def _line_figure(
    runs: dict[Path, dict[str, Any]],
    file: str,
    title: str,
    short: str,
    what: str,
    axes: tuple[str, str],
    series: Sequence[Series],
    note: str = "",
) -> Figure:
    """Return a figure of these files' runs."""
    files = ", ".join(f"{GRADIENT}/{path.parent.name}/{path.name}" for path in runs)
    held = ", ".join(dict.fromkeys(str(run["sentences"]) for run in runs.values()))
    source = (f"file: {files}", f"held-out sentences: {held}")
    name, title = f"{file}-{short}", f"{what}: {title}"
    return Figure(name, "gradient", title, "lines", *axes, source, tuple(series), note=note)


def _step_figure(
    make: Callable[..., Figure], short: str, label: str, lines: Sequence[Series]
) -> Iterator[Figure]:
    """Draw the lines that have steps, if any, against the step."""
    if series := [line for line in lines if line.x]:
        yield make(short, f"{label[0].upper()}{label[1:]} against the step", ("step", label), series)


def _density_series(run: dict[str, Any], when: str, kind: str, name: str) -> Series:
    """Density of cosines (Figure 5)."""
    heights = run[when]["density"][kind]
    width = 2 / len(heights)
    middles = tuple(-1 + width * (i + 0.5) for i in range(len(heights)))
    return Series(name, middles, tuple(map(float, heights)))


def _share_series(run: dict[str, Any], when: str, name: str) -> Series:
    """The hardest negative's share of the weight by temperature (Figure 7)."""
    share = run[when]["hardest_share"]
    return Series(name, tuple(share["taus"]), tuple(share["paper"]))


def _lemma_series(run: dict[str, Any], when: str) -> list[Series]:
    """Lower bounds of the ratio by lambda, as shares of the anchors (Figure 8a)."""
    edges = np.linspace(0, 3, _LEMMA_BINS + 1)
    middles = tuple(float(x) for x in (edges[:-1] + edges[1:]) / 2)
    series = []
    for lemma in run[when]["lemma"]:
        if lemma["kept"]:
            heights = np.histogram(np.array(lemma["lower"], dtype=float), edges)[0] / lemma["kept"]
            series.append(Series(f"lambda {lemma['lambda']:g}", middles, tuple(map(float, heights))))
    return series


def _step_series(run: dict[str, Any], key: str, name: str) -> Series:
    """A mean against the step, without the steps that have none (Figures 8b and 8c)."""
    steps = [step for step in run["steps"] if step[key] is not None]
    values = tuple(float(step[key]) for step in steps)
    return Series(name, tuple(float(step["step"]) for step in steps), values)


def _angle_series(run: dict[str, Any]) -> list[Series]:
    """Angles of pairs against the step, with standard deviations (Figure 9)."""
    steps = tuple(float(step["step"]) for step in run["steps"])
    series = []
    for kind in ("positive", "negative"):
        means, spread = zip(*(step[f"{kind}_angle"] for step in run["steps"]), strict=True)
        series.append(Series(kind, steps, tuple(map(float, means)), tuple(map(float, spread))))
    return series
