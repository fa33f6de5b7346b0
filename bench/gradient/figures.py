"""Figures of `bench gradient`: sampled angles, and held-out text before, during and after training."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
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
"""Begins the names of figures of several runs."""
_WHEN = {"before": "before training", "after": "after training"}
_LEMMA_BINS = 30
_GRID = ("mu_pos", "mu_neg")
_HARDEST = ("mu_neg", "tau", "share", "share_released")
_RUNS = "*/gradient.json"
"""Files of measured trainings; those of one folder share figures."""
_MOST_CELLS = 50  # a side of a drawn grid
_NAMES = {
    "gd": "Gradient dissipation",
    "ratio": "Ratio of positive to negative",
    "shaded": "Where the ratio doesn't matter",
}


def campaign_gradient_figures(campaign: Campaign) -> list[tuple[ResultStore, list[Figure]]]:
    """Return the figures of each store's folder of gradients; raises DataError for a damaged file."""
    names = (*_SAMPLED, _RUNS)
    files = [file for name in names for file in campaign.files(f"{GRADIENT}/{name}")]
    return [
        (
            store,
            select_gradient_figures(store.root / GRADIENT, [path for home, path in files if home is store]),
        )
        for store in campaign.stores
    ]


def gradient_figures(folder: Path) -> list[Figure]:
    """Return the figures of what ``bench gradient`` wrote into a folder; raises DataError if damaged."""
    return select_gradient_figures(
        folder, [p for name in (*_SAMPLED, _RUNS) for p in sorted(folder.glob(name))]
    )


def select_gradient_figures(folder: Path, files: Sequence[Path]) -> list[Figure]:
    """Return the figures of some of the files in such a folder; raises DataError for a damaged one."""
    sampled, runs = ([p for p in files if (p.name in _SAMPLED) == alone] for alone in (True, False))
    return _folder_figures(folder, sampled, runs)


def _folder_figures(folder: Path, sampled: Iterable[Path], runs: Sequence[Path]) -> list[Figure]:
    found = [figure for path in sampled for figure in check_figures(path, partial(_SAMPLED[path.name], path))]
    found += [figure for path in runs for figure in check_figures(path, partial(run_figures, path))]
    return found + check_figures(folder, partial(joint_figures, runs))


def _sampled_grids(path: Path) -> Iterator[Figure]:
    """Gradient dissipation and ratios over the means of the angles (gradient paradigm, Figures 2, 4, 10)."""
    table = read_table(path, _GRID)
    source = (f"file: {GRADIENT}/{path.name}", "bench gradient: sampled angles")
    rows, columns = (
        _thin_values(sorted({float(line[key]) for line in table}, reverse=key == "mu_pos")) for key in _GRID
    )
    at = {(float(line["mu_pos"]), float(line["mu_neg"])): line for line in table}
    labels = tuple(f"{angle:.2f}" for angle in rows), tuple(f"{angle:.2f}" for angle in columns)
    axes = "mean angle of negatives", "mean angle of positives"
    for key in table[0]:
        if key not in _GRID:
            kind, _, loss = key.partition("_")
            file = f"gradient-{safe_name(key.replace('_', '-'))}"
            title = f"{_NAMES.get(kind, kind)}: {loss.replace('_', ' ')}"
            cells = tuple(tuple(float(at[(p, n)][key]) for n in columns) for p in rows)
            yield Figure(file, "gradient", title, "heat", *axes, source, (), *labels, cells)


def _thin_values(values: Sequence[float]) -> list[float]:
    """At most _MOST_CELLS of them, ends included."""
    if len(values) <= _MOST_CELLS:
        return list(values)
    return [values[round(i)] for i in np.linspace(0, len(values) - 1, _MOST_CELLS)]


def _hardest_shares(path: Path) -> Iterator[Figure]:
    """Share of the hardest negative by temperature (Figure 3)."""
    table = read_table(path, _HARDEST)
    source = (f"file: {GRADIENT}/{path.name}", "bench gradient: sampled angles")
    axes = "mean angle of negatives", "share"
    for key, how in (("share", "as the paper writes it"), ("share_released", "as the released code")):
        series = tuple(
            Series(f"tau {tau}", *_columns([(line["mu_neg"], line[key]) for line in lines]))
            for tau, lines in group_by(table, lambda line: line["tau"]).items()
        )
        name, title = f"gradient-hardest-{key.replace('_', '-')}", f"Share of the hardest negative, {how}"
        yield Figure(name, "gradient", title, "lines", *axes, source, series)


def _columns(pairs: Sequence[tuple[Any, Any]]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    return tuple(float(x) for x, _ in pairs), tuple(float(y) for _, y in pairs)


_SAMPLED: dict[str, Callable[[Path], Iterable[Figure]]] = {
    "gradient-grid.csv": _sampled_grids,
    "gradient-hardest.csv": _hardest_shares,
}
"""Files of sampled angles and what makes their figures."""


@dataclass(frozen=True)
class GradientRun:
    """One run of ``bench gradient METHOD``.

    Args:
        path: Its file.
        data: What the file says.
    """

    path: Path
    data: dict[str, Any]

    @property
    def name(self) -> str:
        """Method and seed."""
        return f"{self.data['method']}, seed {self.data['seed']}"


def run_figures(path: Path) -> Iterator[Figure]:
    """Yield the figures of one run (Figures 5, 7, 8 and 9).

    Args:
        path: The run's file.
    """
    run = GradientRun(path, read_json(path))
    file = f"gradient-{safe_name(path.parent.name)}"
    yield from _RunFigures(file, run.name, (run,)).figures()


def joint_figures(paths: Sequence[Path]) -> Iterator[Figure]:
    """Yield figures with a line a run of one folder (5, 7, 8b and 8c), nothing for a single run.

    Args:
        paths: The runs' files.
    """
    if len(paths) > 1:
        runs = tuple(GradientRun(path, read_json(path)) for path in paths)
        yield from _RunFigures(JOINT, "runs", runs).joint()


@dataclass(frozen=True)
class _RunFigures:
    """Runs that share figures.

    Args:
        file: What the figures' names begin with.
        title: What their titles end with.
        runs: The runs.
    """

    file: str
    title: str
    runs: tuple[GradientRun, ...]

    def lines(
        self, short: str, what: str, axes: tuple[str, str], series: Sequence[Series], note: str = ""
    ) -> Figure:
        """Return a figure of these runs."""
        files = ", ".join(f"{GRADIENT}/{run.path.parent.name}/{run.path.name}" for run in self.runs)
        held = ", ".join(dict.fromkeys(str(run.data["sentences"]) for run in self.runs))
        source = (f"file: {files}", f"held-out sentences: {held}")
        title = f"{what}: {self.title}"
        return Figure(
            *(f"{self.file}-{short}", "gradient", title, "lines", *axes, source, tuple(series)), note=note
        )

    def figures(self) -> Iterator[Figure]:
        """Yield all of one run."""
        (run,) = self.runs
        both = [
            _density_series(run, when, kind, f"{kind}, {said}")
            for when, said in _WHEN.items()
            for kind in ("positive", "negative")
        ]
        yield self.lines("density", "Cosines", ("cosine", "density"), both)
        shares = [_share_series(run, when, said) for when, said in _WHEN.items()]
        yield self.lines("hardest", "Share of the hardest negative", ("tau", "share"), shares)
        for when, said in _WHEN.items():
            if lemma := _lemma_series(run, when):
                what, axes = f"Least ratio that Lemma 1 asks for, {said}", ("ratio", "share of anchors")
                yield self.lines(f"lemma-{when}", what, axes, lemma, _LEMMA)
        kinds = (
            ("ratio", "ratio", {"ArcCon": "arccon_ratio", "MET": "met_ratio"}),
            ("cosine", "mean cosine of positive pairs", {"positive": "positive_cosine"}),
        )
        for short, label, keys in kinds:
            series = [line for name, key in keys.items() if (line := _step_series(run, key, name)).x]
            if series:
                yield self.lines(short, f"{label.capitalize()} against the step", ("step", label), series)
        note = "Bars are standard deviations over pairs."
        yield self.lines("angles", "Angles", ("step", "angle"), _angle_series(run), note)

    def joint(self) -> Iterator[Figure]:
        """Yield those of several runs."""
        axes = "cosine", "density"
        for kind in ("negative", "positive"):
            lines = [_density_series(run, "after", kind, run.name) for run in self.runs]
            yield self.lines(f"density-{kind}", f"Cosines of {kind} pairs after training", axes, lines)
        originals = [_share_series(run, "before", f"before training, {run.name}") for run in self.runs]
        if len({line.y for line in originals}) == 1:
            originals = [_share_series(self.runs[0], "before", "before training")]
        shares = [*originals, *(_share_series(run, "after", run.name) for run in self.runs)]
        yield self.lines("hardest", "Share of the hardest negative", ("tau", "share"), shares)
        kinds = (
            ("ratio-arccon", "ratio of ArcCon", "arccon_ratio"),
            ("ratio-met", "ratio of MET", "met_ratio"),
            ("cosine", "mean cosine of positive pairs", "positive_cosine"),
        )
        for short, label, key in kinds:
            series = [line for run in self.runs if (line := _step_series(run, key, run.name)).x]
            if series:
                what = f"{label[0].upper()}{label[1:]} against the step"
                yield self.lines(short, what, ("step", label), series)


_LEMMA = (
    "Of the anchors that the baseline keeps, those whose bound is between 0 and 3, in intervals of 0.1; an "
    "anchor whose root is imaginary has no bound and counts in the whole."
)


def _density_series(run: GradientRun, when: str, kind: str, name: str) -> Series:
    """The density of cosines (Figure 5)."""
    heights = run.data[when]["density"][kind]
    width = 2 / len(heights)
    middles = tuple(-1 + width * (i + 0.5) for i in range(len(heights)))
    return Series(name, middles, tuple(map(float, heights)))


def _share_series(run: GradientRun, when: str, name: str) -> Series:
    """The hardest negative's share of the weight by temperature (Figure 7)."""
    share = run.data[when]["hardest_share"]
    return Series(name, tuple(share["taus"]), tuple(share["paper"]))


def _lemma_series(run: GradientRun, when: str) -> list[Series]:
    """Lower bounds of the ratio by lambda, as shares of the anchors (Figure 8a)."""
    edges = np.linspace(0, 3, _LEMMA_BINS + 1)
    middles = tuple(float(x) for x in (edges[:-1] + edges[1:]) / 2)
    found = []
    for one in run.data[when]["lemma"]:
        if one["kept"]:
            heights = np.histogram(np.array(one["lower"], dtype=float), edges)[0] / one["kept"]
            found.append(Series(f"lambda {one['lambda']:g}", middles, tuple(map(float, heights))))
    return found


def _step_series(run: GradientRun, key: str, name: str) -> Series:
    """A mean against the step, without the steps that have none (Figures 8b and 8c)."""
    there = [(float(s["step"]), float(s[key])) for s in run.data["steps"] if s[key] is not None]
    return Series(name, tuple(x for x, _ in there), tuple(y for _, y in there))


def _angle_series(run: GradientRun) -> list[Series]:
    """Angles of pairs against the step, with standard deviations (Figure 9)."""
    steps = run.data["steps"]
    at = tuple(float(step["step"]) for step in steps)
    found = []
    for kind in ("positive", "negative"):
        means, spread = zip(*(step[f"{kind}_angle"] for step in steps), strict=True)
        found.append(Series(kind, at, tuple(map(float, means)), tuple(map(float, spread))))
    return found
