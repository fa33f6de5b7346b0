"""Figures of ``bench gradient``'s runs: each alone, and several of one folder together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench.records.record import safe_name
from bench.render.figure import Figure, Series
from bench.reports.campaign import GRADIENT, read_json

JOINT = "gradient-runs"
"""Begins the names of figures of several runs."""
_WHEN = {"before": "before training", "after": "after training"}
_LEMMA_BINS = 30


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
