"""From records to figures: seeds, curves, probes, cost, sweeps, gains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean

import numpy as np

from bench.errors import DataError
from bench.records.record import RunRecord, safe_name
from bench.reports.campaign import Campaign
from bench.reports.figures.figure import Figure, Series
from bench.reports.grid import SCALE, summarise
from bench.reports.records import (
    by_method,
    by_profile_and_suite,
    finished,
    grouped,
    main_metric,
    provenance,
    values,
)
from bench.reports.tables.gains import LOSSES
from bench.reports.tables.probes import EnergyAgainstScore, Probed, energy_against_score, from_records
from bench.reports.tables.significance import averages
from bench.reports.tables.sweeps import curves

Values = tuple[float, ...]


def figures(campaign: Campaign) -> list[Figure]:
    """Return every figure of a campaign, place by place; those that its records can't have are not there."""
    found: list[Figure | None] = []
    for records in by_profile_and_suite(campaign.records):
        done = finished(records)
        if not done:
            continue
        where = f"{safe_name(done[0].profile)}-{safe_name(done[0].suite)}"
        source = provenance(done, campaign.name)
        found.append(_seeds(done, where, source))
        found += _cost(done, where, source)
        found += _curves(done, where, source)
        found += _probes(from_records(done), where, source)
        found.append(_gains(done, where, source))
        found.append(_cosines(campaign, done, where, source))
    return [figure for figure in found if figure is not None]


def _seeds(records: Sequence[RunRecord], where: str, source: tuple[str, ...]) -> Figure:
    """Every seed's average, a row a method."""
    runs = by_method(records)
    names = [one.method for one in averages(records)]
    series = []
    for kind, wanted in (("seed", False), ("no seed", True)):
        found = [
            (SCALE * value, float(row), f"{name}, seed {r.seed}: {SCALE * value:.2f}")
            for row, name in enumerate(names)
            for r in runs[name]
            if (r.seed is None) == wanted and (value := r.score("avg")) is not None
        ]
        if found:
            x, y, labels = zip(*found, strict=True)
            series.append(Series(kind, x, y, (), labels))
    return Figure(
        f"{where}-seeds",
        "seeds",
        f"Seeds: {_on(records)}",
        "strip",
        _average(records),
        "",
        source,
        tuple(series),
        rows=tuple(names),
    )


def _on(records: Sequence[RunRecord]) -> str:
    """Suite and profile, for titles."""
    return f"{records[0].suite}, {records[0].profile}"


def _average(records: Sequence[RunRecord]) -> str:
    """The label of an axis of averages."""
    return f"average, {main_metric(records).capitalize()} x 100"


def _scatter(
    name: str,
    section: str,
    title: str,
    axes: tuple[str, str],
    at: dict[str, tuple[float, float]],
    source: tuple[str, ...],
) -> Figure | None:
    """A point a method; None for fewer than two."""
    if len(at) < 2:
        return None
    series = tuple(Series(method, (x,), (y,), (), (method,)) for method, (x, y) in at.items())
    return Figure(name, section, title, "points", *axes, source, series)


def _cost(records: Sequence[RunRecord], where: str, source: tuple[str, ...]) -> list[Figure | None]:
    """Average against CPU seconds of training, and against GMAC where they were measured."""
    training: dict[str, tuple[float, float]] = {}
    gmac: dict[str, tuple[float, float]] = {}
    for method, runs in by_method(records).items():
        mean = summarise(values(runs)).mean
        if mean is None:
            continue
        seconds = [sum(r.timing["training_cpu_seconds"].values()) for r in runs if r.training.get("stages")]
        costs = [r.probes["cost"]["gmac"] for r in runs if "gmac" in r.probes.get("cost", {})]
        if seconds:
            training[method] = fmean(seconds), SCALE * mean
        if costs:
            gmac[method] = fmean(costs), SCALE * mean
    kinds = (
        ("training", "training", "CPU seconds of training", training),
        ("gmac", "inference", "GMAC of a sentence", gmac),
    )
    return [
        _scatter(
            f"{where}-{short}",
            "efficiency",
            f"Score and {what}: {_on(records)}",
            (label, _average(records)),
            at,
            source,
        )
        for short, what, label, at in kinds
    ]


def _curves(records: Sequence[RunRecord], where: str, source: tuple[str, ...]) -> list[Figure]:
    """Dev score and effective rank against the step of each method's last stage, means over seeds."""
    return curve_figures(
        by_method(records),
        {"dev": f"Dev curves: {_on(records)}", "rank": f"Collapse: {_on(records)}"},
        (where, "curves", source),
        "Of the last stage; mean over seeds.",
    )


def curve_figures(
    lines: Mapping[str, Sequence[RunRecord]],
    titles: Mapping[str, str],
    of: tuple[str, str, tuple[str, ...]],
    note: str = "",
) -> list[Figure]:
    """A figure of the dev scores and one of the effective ranks, with a line for each group of runs.

    Args:
        lines: Runs of each line.
        titles: Of the figures "dev" and "rank".
        of: Beginning of the figures' names, their section, their provenance.
        note: What one must know to read them.
    """
    kinds = (
        ("dev_curve", "dev", "dev score x 100", SCALE),
        ("collapse_curve", "rank", "effective rank of the dev vectors", 1.0),
    )
    name, section, source = of
    made = []
    for key, short, label, scale in kinds:
        found = {line: _mean_curve(runs, key, scale) for line, runs in lines.items()}
        series = tuple(Series(line, *curve) for line, curve in found.items() if curve is not None)
        if series:
            file, title = f"{name}-{short}", titles[short]
            made.append(Figure(file, section, title, "lines", "step", label, source, series, note=note))
    return made


def _mean_curve(runs: Sequence[RunRecord], key: str, scale: float) -> tuple[Values, Values] | None:
    found: dict[float, list[float]] = {}
    for curve in curves(runs, key):
        for step, value, *_ in curve:
            found.setdefault(float(step), []).append(scale * value)
    steps = sorted(found)
    return (tuple(steps), tuple(fmean(found[step]) for step in steps)) if steps else None


def _probes(found: Sequence[Probed], where: str, source: tuple[str, ...]) -> list[Figure | None]:
    if not found:
        return []
    title = f"{found[0].suite}, {found[0].profile}"
    groups = grouped(found, lambda one: one.method)

    def mean(runs: Sequence[Probed], *path: str | int) -> float | None:
        values = [value for run in runs if (value := run.value(*path)) is not None]
        return fmean(values) if values else None

    plane = {}
    for method, runs in groups.items():
        alignment, uniformity = mean(runs, "alignment", "value"), mean(runs, "uniformity", "value")
        if alignment is not None and uniformity is not None:
            plane[method] = uniformity, alignment
    name = f"Alignment and uniformity: {title}"
    made = [_scatter(f"{where}-plane", "probes", name, ("uniformity", "alignment"), plane, source)]
    made += [_energy(relation, where, source) for relation in energy_against_score(found)]
    for number, what in enumerate(("[CLS]", "[SEP]", "final punctuation")):
        rows = {
            m: [mean(runs, "attention_sink", "layers", i, number) for i in range(_layers(runs))]
            for m, runs in groups.items()
        }
        made.append(
            _layer_map(f"{where}-attention-{number + 1}", f"Attention on {what}: {title}", rows, source)
        )
    return made


def _layers(runs: Sequence[Probed]) -> int:
    return max(len(run.probes.get("attention_sink", {}).get("layers", ())) for run in runs)


def _energy(relation: EnergyAgainstScore, where: str, source: tuple[str, ...]) -> Figure | None:
    at = {method: (energy, SCALE * average) for method, (energy, average) in relation.methods.items()}
    axes = ("E_CLS", "average x 100")
    title = f"CLS energy and score: {relation.suite}, {relation.profile}"
    figure = _scatter(f"{where}-energy", "probes", title, axes, at, source)
    return None if figure is None else replace(figure, note=relation.sentence() + ".")


def _layer_map(
    name: str, title: str, rows: dict[str, list[float | None]], source: tuple[str, ...]
) -> Figure | None:
    depth = max(map(len, rows.values()), default=0)
    if not depth:
        return None
    cells = tuple(tuple(row) + (None,) * (depth - len(row)) for row in rows.values() if row)
    names = tuple(method for method, row in rows.items() if row)
    columns = tuple(str(layer + 1) for layer in range(depth))
    note = "Share of the attention, 0 to 1; mean over heads, sentences and seeds."
    return Figure(
        name,
        "attention",
        title,
        "heat",
        "layer",
        "method",
        source,
        rows=names,
        columns=columns,
        cells=cells,
        note=note,
    )


def _gains(records: Sequence[RunRecord], where: str, source: tuple[str, ...]) -> Figure | None:
    """Losses before and after their modification (gradient paradigm, Figure 1)."""
    runs = by_method(records)
    there = [loss for loss in LOSSES if loss in runs and f"m_{loss}" in runs]
    series = []
    for name, prefix in (("original", ""), ("modified", "m_")):
        found = [summarise(values(runs[f"{prefix}{loss}"])) for loss in there]
        rows = [(i, cell) for i, cell in enumerate(found) if cell.mean is not None]
        if rows:
            series.append(
                Series(
                    name,
                    tuple(SCALE * cell.mean for _, cell in rows if cell.mean is not None),
                    tuple(float(i) for i, _ in rows),
                    tuple(SCALE * (cell.sd or 0.0) for _, cell in rows),
                )
            )
    if not there or not series:
        return None
    title = f"Losses before and after their modification: {_on(records)}"
    label = _average(records)
    return Figure(
        f"{where}-gains", "gains", title, "strip", label, "", source, tuple(series), rows=tuple(there)
    )


def _cosines(
    campaign: Campaign, records: Sequence[RunRecord], where: str, source: tuple[str, ...]
) -> Figure | None:
    """Densities of the similarities of all test pairs, a line a method, from the kept predictions."""
    if main_metric(records) != "spearman":  # predictions of other suites aren't similarities
        return None
    edges = np.linspace(-1, 1, 81)
    middles = tuple(float(x) for x in (edges[:-1] + edges[1:]) / 2)
    series = []
    for method, runs in by_method(records).items():
        heights = []
        for run in runs:
            try:
                values = np.concatenate(list(campaign.store.predictions(run).values()))
            except (DataError, ValueError):  # missing, or of a suite that isn't of pairs
                continue
            if values.ndim == 1 and len(values) and float(np.abs(values).max()) <= 1 + 1e-5:
                heights.append(np.histogram(np.clip(values, -1, 1), edges, density=True)[0])
        if heights:
            series.append(Series(method, middles, tuple(float(y) for y in np.mean(heights, axis=0))))
    if not series:
        return None
    title, note = f"Cosines of the test pairs: {_on(records)}", "All tasks together; mean over seeds."
    return Figure(
        f"{where}-cosines", "cosines", title, "lines", "cosine", "density", source, tuple(series), note=note
    )
