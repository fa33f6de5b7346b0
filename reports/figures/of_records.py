"""From records to figures: seeds, curves, probes, cost, sweeps, gains."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, stdev

import numpy as np

from bench.errors import DataError
from bench.records.record import RunRecord
from bench.records.store import safe_name
from bench.reports.campaign import Campaign
from bench.reports.figures.figure import Figure, Series, provenance
from bench.reports.records import SCALE, by_method, by_profile_and_suite, main_metric
from bench.reports.tables.papers import LOSSES
from bench.reports.tables.probes import EnergyAgainstScore, Probed, energy_against_score, from_records
from bench.reports.tables.significance import averages
from bench.reports.tables.sweeps import curves, norm_ratio, points, shown_task
from bench.reports.tables.table import summarise
from bench.sweeps.grids import SWEEPS
from bench.sweeps.manifest import Manifest

Values = tuple[float, ...]


def figures(campaign: Campaign) -> list[Figure]:
    """Return every figure of a campaign, place by place; those that its records can't have are not there."""
    found: list[Figure | None] = []
    for records in by_profile_and_suite(campaign.records):
        done = [record for record in records if record.status == "ok"]
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
    found += [figure for manifest in campaign.sweeps for figure in _sweep(manifest, campaign)]
    return [figure for figure in found if figure is not None]


def _seeds(records: Sequence[RunRecord], where: str, source: tuple[str, ...]) -> Figure:
    """Every seed's average, a row a method."""
    metric, runs = main_metric(records), by_method(records)
    names = [one.method for one in averages(records)]
    series = []
    for kind, wanted in (("seed", False), ("no seed", True)):
        found = [
            (SCALE * value, float(row), f"{name}, seed {r.seed}: {SCALE * value:.2f}")
            for row, name in enumerate(names)
            for r in runs[name]
            if (r.seed is None) == wanted and (value := r.score("avg", metric=metric)) is not None
        ]
        if found:
            x, y, labels = zip(*found, strict=True)
            series.append(Series(kind, x, y, (), labels))
    first = records[0]
    title = f"Seeds: {first.suite}, {first.profile}"
    label = f"average, {metric.capitalize()} x 100"
    return Figure(f"{where}-seeds", title, "strip", label, "", source, tuple(series), rows=tuple(names))


def _scatter(
    name: str, title: str, axes: tuple[str, str], at: dict[str, tuple[float, float]], source: tuple[str, ...]
) -> Figure | None:
    """A point a method; None for fewer than two."""
    if len(at) < 2:
        return None
    series = tuple(Series(method, (x,), (y,), (), (method,)) for method, (x, y) in at.items())
    return Figure(name, title, "points", axes[0], axes[1], source, series)


def _cost(records: Sequence[RunRecord], where: str, source: tuple[str, ...]) -> list[Figure | None]:
    """Average against CPU seconds of training, and against GMAC where they were measured."""
    metric = main_metric(records)
    training: dict[str, tuple[float, float]] = {}
    gmac: dict[str, tuple[float, float]] = {}
    for method, runs in by_method(records).items():
        mean = summarise([run.score("avg", metric=metric) for run in runs]).mean
        if mean is None:
            continue
        seconds = [sum(r.timing["training_cpu_seconds"].values()) for r in runs if r.training.get("stages")]
        costs = [r.probes["cost"]["gmac"] for r in runs if "gmac" in r.probes.get("cost", {})]
        if seconds:
            training[method] = fmean(seconds), SCALE * mean
        if costs:
            gmac[method] = fmean(costs), SCALE * mean
    y = f"average, {metric.capitalize()} x 100"
    title = f"{records[0].suite}, {records[0].profile}"
    return [
        _scatter(
            f"{where}-training",
            f"Score and training: {title}",
            ("CPU seconds of training", y),
            training,
            source,
        ),
        _scatter(f"{where}-gmac", f"Score and inference: {title}", ("GMAC of a sentence", y), gmac, source),
    ]


def _curves(records: Sequence[RunRecord], where: str, source: tuple[str, ...]) -> list[Figure | None]:
    """Dev score and effective rank against the step of each method's last stage, means over seeds."""
    kinds = (
        ("dev_curve", "dev", "Dev curves", "dev score x 100", SCALE),
        ("collapse_curve", "rank", "Collapse", "effective rank of the dev vectors", 1.0),
    )
    made: list[Figure | None] = []
    for key, short, title, label, scale in kinds:
        series = []
        for method, runs in by_method(records).items():
            line = _mean_curve(runs, key, scale)
            if line is not None:
                series.append(Series(method, *line))
        name = f"{title}: {records[0].suite}, {records[0].profile}"
        note = "Of the last stage; mean over seeds."
        if series:
            made.append(
                Figure(f"{where}-{short}", name, "lines", "step", label, source, tuple(series), note=note)
            )
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
    groups: dict[str, list[Probed]] = {}
    for one in found:
        groups.setdefault(one.method, []).append(one)

    def mean(runs: Sequence[Probed], *path: str | int) -> float | None:
        values = [value for run in runs if (value := run.value(*path)) is not None]
        return fmean(values) if values else None

    plane = {}
    for method, runs in groups.items():
        alignment, uniformity = mean(runs, "alignment", "value"), mean(runs, "uniformity", "value")
        if alignment is not None and uniformity is not None:
            plane[method] = uniformity, alignment
    name = f"Alignment and uniformity: {title}"
    made = [_scatter(f"{where}-plane", name, ("uniformity", "alignment"), plane, source)]
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
    figure = _scatter(
        f"{where}-energy", f"CLS energy and score: {relation.suite}, {relation.profile}", axes, at, source
    )
    return None if figure is None else Figure(**{**vars(figure), "note": relation.sentence() + "."})


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
        name, title, "heat", "layer", "method", source, rows=names, columns=columns, cells=cells, note=note
    )


def _gains(records: Sequence[RunRecord], where: str, source: tuple[str, ...]) -> Figure | None:
    """Losses before and after their modification (gradient paradigm, Figure 1)."""
    metric, runs = main_metric(records), by_method(records)
    there = [loss for loss in LOSSES if loss in runs and f"m_{loss}" in runs]
    series = []
    for name, prefix in (("original", ""), ("modified", "m_")):
        found = [
            summarise([r.score("avg", metric=metric) for r in runs[f"{prefix}{loss}"]]) for loss in there
        ]
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
    title = f"Losses before and after their modification: {records[0].suite}, {records[0].profile}"
    label = f"average, {metric.capitalize()} x 100"
    return Figure(f"{where}-gains", title, "strip", label, "", source, tuple(series), rows=tuple(there))


def _cosines(
    campaign: Campaign, records: Sequence[RunRecord], where: str, source: tuple[str, ...]
) -> Figure | None:
    """Densities of the similarities of all test pairs, a line a method, from the kept predictions."""
    if main_metric(records) != "spearman":  # predictions of other suites are no similarities
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
    title = f"Cosines of the test pairs: {records[0].suite}, {records[0].profile}"
    note = "All tasks together; mean over seeds."
    return Figure(f"{where}-cosines", title, "lines", "cosine", "density", source, tuple(series), note=note)


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
        values = {row: _values(at.get((row, column), []), task) for row in rows}
        places = [float(row) if sweep.numeric else float(i) for i, row in enumerate(rows) if values[row]]
        means = tuple(fmean(v) for v in values.values() if v)
        spread = tuple(stdev(v) if len(v) > 1 else 0.0 for v in values.values() if v)
        x, y = (tuple(places), means) if sweep.numeric else (means, tuple(places))
        if means:
            series.append(Series(column, x, y, spread))
    title, label = f"{sweep.question} ({suite}, {manifest.profile})", f"Spearman x 100, {task}"
    note = f"{sweep.source}. Bars are standard deviations over seeds."
    if sweep.numeric:
        return Figure(name, title, "lines", sweep.axis, label, source, tuple(series), note=note)
    return Figure(name, title, "strip", label, sweep.axis, source, tuple(series), rows=tuple(rows), note=note)


def _values(records: Sequence[RunRecord], task: str) -> list[float]:
    return [SCALE * value for r in records if (value := r.score(task)) is not None]


def _sweep_curves(
    manifest: Manifest,
    name: str,
    suite: str,
    at: dict[tuple[str, str], list[RunRecord]],
    source: tuple[str, ...],
) -> list[Figure]:
    """Dev score and effective rank against the step, a figure a column, a line a row."""
    rows, columns = (list(dict.fromkeys(place[i] for place in at)) for i in (0, 1))
    kinds = (
        ("dev_curve", "dev", "dev score x 100", SCALE),
        ("collapse_curve", "rank", "effective rank", 1.0),
    )
    made = []
    for column in columns:
        for key, short, label, scale in kinds:
            lines = {row: _mean_curve(at.get((row, column), []), key, scale) for row in rows}
            series = tuple(Series(row, *line) for row, line in lines.items() if line is not None)
            if series:
                title = f"{SWEEPS[manifest.sweep].question} {column} ({suite}, {manifest.profile})"
                file = f"{name}-{safe_name(column)}-{short}"
                made.append(Figure(file, title, "lines", "step", label, source, series))
    return made


def _surface(manifest: Manifest, campaign: Campaign) -> Figure:
    """The norm ratio over the ratio of two lengths and their cosine (TNCSE, Figure 2; JTCSE, Figure 3)."""
    ratios, cosines = np.linspace(0, 4, 41), np.linspace(1, -1, 41)
    grid = norm_ratio(*np.meshgrid(ratios, cosines))
    return Figure(
        f"{safe_name(manifest.profile)}-{manifest.sweep}",
        SWEEPS[manifest.sweep].question,
        "heat",
        "k, ratio of the lengths",
        "t, cosine",
        (f"campaign: {campaign.name}", "a formula, no records"),
        rows=tuple(f"{t:.2f}" for t in cosines),
        columns=tuple(f"{k:.1f}" for k in ratios),
        cells=tuple(tuple(float(v) for v in row) for row in grid),
    )
