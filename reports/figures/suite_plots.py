"""From records to figures: seeds, curves, probes, cost, gains, cosines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np

from bench.comparison.selection import group_by
from bench.errors import DataError
from bench.records.record import RunRecord, safe_name, sum_training_seconds
from bench.render.critical_difference import ranking_figure
from bench.render.figure import Figure, Kind, Series
from bench.render.grid import SCALE, summarise_values
from bench.reports.campaign import Campaign
from bench.reports.records import (
    by_method,
    by_profile_and_suite,
    describe_provenance,
    finished_records,
    is_ranked,
    main_metric,
    task_scores,
)
from bench.reports.tables.gains import LOSSES
from bench.reports.tables.mechanism import score_relations
from bench.reports.tables.pairwise_tests import describe_tests, method_averages, run_pairwise_tests
from bench.reports.tables.probes import ProbedRun, probed_runs
from bench.reports.tables.relation_grid import describe_rho
from bench.reports.tables.sweep_tables import stage_curves

Values = tuple[float, ...]
Points = Mapping[str, tuple[float, float]]


class _SuiteRecords:
    """Finished records of one profile and suite, and what all their figures say."""

    def __init__(self, campaign: Campaign, records: Sequence[RunRecord]) -> None:
        first = records[0]
        self.campaign, self.records = campaign, records
        self.runs = {campaign.shown(method): runs for method, runs in by_method(records).items()}
        self.metric = main_metric(records)
        self.average = f"average, {self.metric.capitalize()} x 100"
        self._name = f"{safe_name(first.profile)}-{safe_name(first.suite)}"
        self._on = f"{first.suite}, {first.profile}"
        self.source = describe_provenance(records, campaign.name)

    def figure(
        self, name: str, section: str, what: str, kind: Kind, axes: tuple[str, str], **shown: Any
    ) -> Figure:
        """Return a figure of these records; ``shown`` is what differs from kind to kind."""
        return Figure(self.name(name), section, self.title(what), kind, *axes, self.source, **shown)

    def name(self, name: str) -> str:
        """The name of a figure, of its file."""
        return f"{self._name}-{name}"

    def title(self, what: str) -> str:
        """The title of a figure."""
        return f"{what}: {self._on}"

    def scatter(
        self, name: str, section: str, what: str, axes: tuple[str, str], at: Points, note: str = ""
    ) -> Iterator[Figure]:
        """Yield a figure with a point a method; nothing for fewer than two."""
        if len(at) > 1:
            yield self.figure(name, section, what, "points", axes, series=point_series(at), note=note)


def point_series(at: Points) -> tuple[Series, ...]:
    """Return a series of one point a method, with its name beside it."""
    return tuple(Series(method, (x,), (y,), (), (method,)) for method, (x, y) in at.items())


def suite_figures(campaign: Campaign) -> list[Figure]:
    """Return every figure of a campaign, place by place; those that its records can't have are not there."""
    places = [
        _SuiteRecords(campaign, done)
        for r in by_profile_and_suite(campaign.records)
        if (done := finished_records(r))
    ]
    parts = (
        _group_figure,
        _seed_figure,
        _cost_figures,
        _curve_figures,
        _probe_figures,
        _gain_figure,
        _cosine_figure,
    )
    return [figure for place in places for part in parts for figure in part(place)]


def group_figures(campaign: Campaign) -> list[Figure]:
    """Return the critical-difference diagram of every profile and suite that has one."""
    places = (
        _SuiteRecords(campaign, done)
        for r in by_profile_and_suite(campaign.records)
        if (done := finished_records(r))
    )
    return [figure for place in places for figure in _group_figure(place)]


def _group_figure(place: _SuiteRecords) -> Iterator[Figure]:
    """Methods by their average, with bars over the groups: a critical-difference diagram."""
    supervised = place.campaign.rank_supervised
    ranked = {r.method for r in place.records if is_ranked(r, supervised=supervised)}
    ranking = run_pairwise_tests(place.campaign, place.records).of().among(ranked)
    if len(ranking.methods) > 1:
        note = (
            f"A bar joins methods that are not shown to differ, p > 0.05 by {describe_tests(ranking)}. "
            "Those that share none differ, or two methods from the one to the other do or were not tested."
        )
        yield ranking_figure(
            ranking.renamed(place.campaign.shown),
            place.name("groups"),
            "significance",
            place.title("Groups"),
            place.average,
            place.source,
            scale=SCALE,
            note=note,
        )


def _seed_figure(place: _SuiteRecords) -> Iterator[Figure]:
    """Every seed's average, a row a method."""
    names = [place.campaign.shown(one.method) for one in method_averages(place.campaign, place.records)]
    series = []
    for kind, wanted in (("seed", False), ("no seed", True)):
        found = [
            (SCALE * value, float(row), f"{name}{seed}: {SCALE * value:.2f}")
            for row, name in enumerate(names)
            for r in place.runs[name]
            for seed in ["" if r.seed is None else f", seed {r.seed}"]
            if (r.seed is None) == wanted and (value := r.score("avg")) is not None
        ]
        if found:
            x, y, labels = zip(*found, strict=True)
            series.append(Series(kind, x, y, (), labels))
    axes = place.average, ""
    yield place.figure("seeds", "seeds", "Seeds", "strip", axes, series=tuple(series), rows=tuple(names))


def _cost_figures(place: _SuiteRecords) -> Iterator[Figure]:
    """Average against CPU seconds of training, and against GMAC where they were measured."""
    training: dict[str, tuple[float, float]] = {}
    gmac: dict[str, tuple[float, float]] = {}
    for method, runs in place.runs.items():
        mean = summarise_values(task_scores(runs)).mean
        seconds = [sum_training_seconds(run) for run in runs if run.training.get("stages")]
        costs = [r.probes["cost"]["gmac"] for r in runs if "gmac" in r.probes.get("cost", {})]
        for at, found in ((training, seconds), (gmac, costs)):
            if found and mean is not None:
                at[method] = fmean(found), SCALE * mean
    axes = "CPU seconds of training", place.average
    yield from place.scatter("training", "leaderboard", "Score and training", axes, training)
    axes = "GMAC of a sentence", place.average
    yield from place.scatter("gmac", "efficiency", "Score and inference", axes, gmac)


def _curve_figures(place: _SuiteRecords) -> Iterator[Figure]:
    """Loss, dev score and effective rank against the step of each method's last stage, over seeds."""
    for name, label, series in curve_series(place.runs):
        note, own = CURVES, name == "loss"
        if own:
            note = f"{note} {_LOSSES}"
        elif name == "dev" and not any(stage_curves(place.records, "loss_curve")):
            note = f"{note} {_NO_LOSSES}"
        what = _CURVE_TITLES[name]
        yield place.figure(name, "curves", what, "lines", ("step", label), series=series, note=note, own=own)


_CURVE_TITLES = {"loss": "Losses", "dev": "Dev curves", "rank": "Collapse"}
CURVES = (
    "Of the last stage, or of all that end a training, such as the submodels of a sum: mean over seeds; the "
    "band goes from the lowest to the highest."
)
_LOSSES = "Losses of methods are different quantities: each has axes of its own."
_NO_LOSSES = "No losses are kept in these records, so there is no loss curve; runs by this version keep them."


def curve_series(
    lines: Mapping[str, Sequence[RunRecord]],
) -> Iterator[tuple[str, str, tuple[Series, ...]]]:
    """Yield the losses, the dev scores and the effective ranks against the step, each where there are some.

    Args:
        lines: Runs of each line; it shows their mean, and a band from the lowest to the highest.

    Yields:
        "loss", "dev" or "rank", the label of the y axis, and the lines.
    """
    kinds = (
        ("loss_curve", "loss", "training loss", 1.0),
        ("dev_curve", "dev", "dev score x 100", SCALE),
        ("collapse_curve", "rank", "effective rank of the dev vectors", 1.0),
    )
    for key, name, label, scale in kinds:
        found = ((line, _curve_band(runs, key, scale)) for line, runs in lines.items())
        if series := tuple(Series(line, x, y, band=band) for line, (x, y, band) in found if x):
            yield name, label, series


def _curve_band(
    runs: Sequence[RunRecord], key: str, scale: float
) -> tuple[Values, Values, tuple[tuple[float, float], ...]]:
    """Steps, means, and least and largest values of a curve; no band for one run."""
    points = (point for curve in stage_curves(runs, key) for point in curve)
    at = group_by(points, lambda point: float(point[0]))
    steps = tuple(sorted(at))
    values = [[scale * point[1] for point in at[step]] for step in steps]
    several = any(len(each) > 1 for each in values)
    return (
        steps,
        tuple(map(fmean, values)),
        tuple((min(each), max(each)) for each in values) if several else (),
    )


def _probe_figures(place: _SuiteRecords) -> Iterator[Figure]:
    """Alignment and uniformity, CLS energy, and attention by layer."""
    found = [] if place.campaign.last else probed_runs(place.records, place.campaign.shown)
    groups = group_by(found, lambda one: one.method)
    plane = {}
    for method, runs in groups.items():
        alignment, uniformity = (
            _mean_value(runs, "alignment", "value"),
            _mean_value(runs, "uniformity", "value"),
        )
        if alignment is not None and uniformity is not None:
            plane[method] = uniformity, alignment
    axes = "uniformity", "alignment"
    yield from place.scatter("plane", "probes", "Alignment and uniformity", axes, plane)
    for relation in score_relations(place.campaign, place.records):
        if relation.quantity == "E_CLS":
            at = {method: (one.value, SCALE * one.score) for method, one in relation.points.items()}
            axes, note = ("E_CLS", "average x 100"), f"Spearman's rho {describe_rho(relation.rho)}."
            yield from place.scatter("energy", "probes", "CLS energy and score", axes, at, note)
    for number, what in enumerate(("[CLS]", "[SEP]", "final punctuation")):
        layers = {
            method: [_mean_value(runs, "attention_sink", "layers", i, number) for i in range(depth)]
            for method, runs in groups.items()
            if (depth := max(len(run.probes.get("attention_sink", {}).get("layers", ())) for run in runs))
        }
        if layers:
            deepest = max(map(len, layers.values()))
            yield place.figure(
                f"attention-{number + 1}",
                "attention",
                f"Attention on {what}",
                "heat",
                ("layer", "method"),
                rows=tuple(layers),
                columns=tuple(str(layer + 1) for layer in range(deepest)),
                cells=tuple((*row, *[None] * (deepest - len(row))) for row in layers.values()),
                note="Share of the attention, 0 to 1; mean over heads, sentences and seeds.",
            )


def _mean_value(runs: Iterable[ProbedRun], *path: str | int) -> float | None:
    return summarise_values([run.value(*path) for run in runs]).mean


def _gain_figure(place: _SuiteRecords) -> Iterator[Figure]:
    """Losses before and after their modification (gradient paradigm, Figure 1)."""
    ids, shown = by_method(place.records), place.campaign.shown
    there = [loss for loss in LOSSES if loss in ids and f"m_{loss}" in ids]
    series = []
    for name, prefix in (("original", ""), ("modified", "m_")):
        cells = [summarise_values(task_scores(ids[f"{prefix}{loss}"])) for loss in there]
        found = [
            (SCALE * cell.mean, float(row), SCALE * (cell.sd or 0.0))
            for row, cell in enumerate(cells)
            if cell.mean is not None
        ]
        if found:
            series.append(Series(name, *zip(*found, strict=True)))
    if series:
        what, axes = "Losses before and after their modification", (place.average, "")
        yield place.figure(
            "gains", "gains", what, "strip", axes, series=tuple(series), rows=tuple(map(shown, there))
        )


def _cosine_figure(place: _SuiteRecords) -> Iterator[Figure]:
    """Densities of the similarities of all test pairs, a line a method, from the kept predictions."""
    if place.metric != "spearman":  # predictions of other suites aren't similarities
        return
    edges = np.linspace(-1, 1, 81)
    middles = tuple(float(x) for x in (edges[:-1] + edges[1:]) / 2)
    series = []
    for method, runs in place.runs.items():
        heights = []
        for run in runs:
            try:
                values = np.concatenate(list(place.campaign.home(run).predictions(run).values()))
            except (DataError, ValueError):  # missing, or of a suite that isn't of pairs
                continue
            if values.ndim == 1 and len(values) and float(np.abs(values).max()) <= 1 + 1e-5:
                heights.append(np.histogram(np.clip(values, -1, 1), edges, density=True)[0])
        if heights:
            series.append(Series(method, middles, tuple(float(y) for y in np.mean(heights, axis=0))))
    if series:
        what, note = "Cosines of the test pairs", "All tasks together; mean over seeds."
        axes = "cosine", "density"
        yield place.figure("cosines", "cosines", what, "lines", axes, series=tuple(series), note=note)
