"""Draw records: seeds, curves, probes, cost, gains, cosines, settings against each other, and sweeps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.comparison.selection import group_by
from bench.config.sweep_manifest import Manifest
from bench.config.sweeps import SWEEPS, Sweep
from bench.data.imported_names import is_imported_suite
from bench.errors import DataError
from bench.records.record import RunRecord, safe_name
from bench.render.critical_difference import ranking_figure
from bench.render.figure import MOST_ROWS, Figure, Series
from bench.render.grid import SCALE, summarise_values
from bench.reports.campaign import Campaign
from bench.reports.figures.cost_plots import cost_figures
from bench.reports.figures.suite_records import SuiteRecords, figure_names, point_series
from bench.reports.record_groups import (
    by_method,
    by_profile_and_suite,
    describe_provenance,
    finished_records,
    is_ranked,
    summarise_scores,
    task_list,
    task_scores,
)
from bench.reports.tables.differences import LOSSES
from bench.reports.tables.method_order import correlate_settings
from bench.reports.tables.pairwise_tests import describe_tests, method_averages
from bench.reports.tables.probe_correlations import describe_rho, score_relations
from bench.reports.tables.probes import ProbedRun, probed_runs
from bench.reports.tables.row_tests import run_pairwise_tests
from bench.reports.tables.sweep_tables import (
    distinct_records,
    grid_axes,
    norm_factor,
    records_by_cell,
    stage_curves,
    sweep_task,
)

if TYPE_CHECKING:
    from bench.stats.method_ranking import Ranking

Values = tuple[float, ...]
_MOST_ORDERS = 2
_CURVE_TITLES = {"loss": "Losses", "dev": "Dev curves", "rank": "Collapse"}
CURVES = (
    "Of the last stage, or of all that end a training, such as the submodels of a sum: mean over seeds; the "
    "band goes from the lowest to the highest."
)
_LOSSES = "Losses of methods are different quantities: each has axes of its own."
_FEWER = (
    "Losses have a panel each, for at most {most} methods: bench report --campaign {campaign} --methods A,B "
    "--figures FOLDER."
)
_MOST_STRETCH = 1.5
"""Ratio of the longest curve to the shortest that share an axis of steps."""
_NO_LOSSES = "No losses are kept in these records, so there is no loss curve; runs by this version keep them."


def _suites(campaign: Campaign) -> Iterator[SuiteRecords]:
    for records in map(finished_records, by_profile_and_suite(campaign.records)):
        if campaign.listed(records):
            yield SuiteRecords(campaign, records)


def suite_figures(campaign: Campaign) -> list[Figure]:
    """Return every figure of each profile and suite."""
    tables = (_task_figure, _seed_figure)
    drawn = [figure for suite in _suites(campaign) for part in tables for figure in part(suite)]
    return [*page_suite_figures(campaign), *drawn]


def page_suite_figures(campaign: Campaign) -> list[Figure]:
    """Return the figures of each profile and suite that a page doesn't show as a table."""
    parts = (
        *(_group_figure, _rank_figure, cost_figures, _curve_figures),
        *(_probe_figures, _gain_figure, _cosine_figure),
    )
    return [figure for suite in _suites(campaign) for part in parts for figure in part(suite)]


def group_figures(campaign: Campaign) -> list[Figure]:
    """Return the critical-difference diagram of every profile and suite that has one."""
    return list(chain.from_iterable(map(_group_figure, _suites(campaign))))


def _group_figure(suite: SuiteRecords) -> Iterator[Figure]:
    """Methods by their average, with bars over the groups: a critical-difference diagram."""
    ranking = _ranked_rows(suite)
    if not 2 <= len(ranking.methods) <= MOST_ROWS:
        return
    note = (
        f"A bar joins methods that are not shown to differ, p > 0.05 by {describe_tests(ranking)}. "
        "Methods without a common bar differ, or two from the one to the other do or were not tested."
    )
    names = suite.name("groups"), "significance", suite.title("Groups"), suite.average
    renamed = ranking.renamed(lambda method: suite.names.get(method, method))
    yield ranking_figure(renamed, *names, suite.source, scale=SCALE, note=suite.note(note))


def _ranked_rows(suite: SuiteRecords) -> Ranking:
    """Tests of all pairs of the suite's ranked rows."""
    supervised = suite.campaign.rank_supervised
    ranked = set(by_method(filter(partial(is_ranked, supervised=supervised), suite.records)))
    return run_pairwise_tests(suite.campaign, suite.every_record).of().among(ranked)


def _rank_figure(suite: SuiteRecords) -> Iterator[Figure]:
    """Every method's confidence set of ranks, the best first."""
    ranking = _ranked_rows(suite)
    rows, bars, places = [], [], []
    for place, method in enumerate(ranking.methods, start=1):
        if (ends := ranking.intervals.get(method)) is not None:
            rows.append(suite.names.get(method, method))
            bars.append(ends)
            places.append(float(place))
    if len(rows) < 2:
        return
    series = (Series("rank of the mean", tuple(places), tuple(map(float, range(len(rows))))),)
    note = (
        f"Bars: 95% confidence sets of the ranks, by {describe_tests(ranking)}. Points: ranks of the means."
    )
    facts = {"rows": tuple(rows), "bars": tuple(bars), "highlight": suite.baseline, "note": note}
    axes = f"rank by {suite.average}", ""
    yield suite.figure("ranks", "ranks", "Rank, 95% confidence set", "ranks", axes, series=series, **facts)


def _task_figure(suite: SuiteRecords) -> Iterator[Figure]:
    """Every method's score minus the baseline's, by task."""
    if suite.baseline not in suite.runs or len(suite.runs) < 2:
        return
    tasks = task_list(suite.records)
    reference = suite.runs[suite.baseline]
    cells = {}
    for method, runs in suite.runs.items():
        if method != suite.baseline:
            cells[method] = tuple(_mean_difference(runs, reference, task) for task in tasks)
    if not any(value is not None for row in cells.values() for value in row):
        return
    averages = method_averages(suite.campaign, suite.records)
    order = [name for name in (suite.names[one.method] for one in averages) if name in cells]
    subject, axes = f"Score minus {suite.baseline}, by task", ("task", "")
    note = "Points; means over the seeds in common."
    facts = {"rows": tuple(order), "columns": tasks, "cells": tuple(cells[name] for name in order)}
    yield suite.figure("tasks", "tasks", subject, "heat", axes, signed=True, note=note, **facts)


def _mean_difference(runs: Sequence[RunRecord], reference: Sequence[RunRecord], task: str) -> float | None:
    """Mean of the differences over the seeds in common, or the difference of the means."""
    common = {run.seed for run in runs} & {run.seed for run in reference}
    means = []
    for side in (runs, reference):
        chosen = [run for run in side if run.seed in common] if common else side
        means.append(summarise_values(task_scores(chosen, task)).mean)
    if means[0] is None or means[1] is None:
        return None
    return SCALE * (means[0] - means[1])


def _seed_figure(suite: SuiteRecords) -> Iterator[Figure]:
    """Every seed's average, a row a method."""
    averages = method_averages(suite.campaign, suite.records)
    names = [suite.names[average.method] for average in averages]
    points: dict[str, list[tuple[float, float, str]]] = {"seed": [], "no seed": []}
    for row, name in enumerate(names):
        for record in suite.runs[name]:
            kind, seed = ("no seed", "") if record.seed is None else ("seed", f", seed {record.seed}")
            for value in task_scores([record]):
                points[kind].append((SCALE * value, float(row), f"{name}{seed}: {SCALE * value:.2f}"))
    series = []
    for kind, entries in points.items():
        if entries:
            x, y, labels = zip(*entries, strict=True)
            series.append(Series(kind, x, y, (), labels))
    axes = suite.average, ""
    yield suite.figure("seeds", "seeds", "Seeds", "strip", axes, series=tuple(series), rows=tuple(names))


def _curve_figures(suite: SuiteRecords) -> Iterator[Figure]:
    """Loss, dev score and effective rank against the step of each method's last stage, over seeds."""
    for name, label, series in curve_series(suite.runs):
        note, axis = CURVES, "step"
        if name == "loss":
            if len(series) > MOST_ROWS:
                continue
            note = f"{note} {_LOSSES}"
        else:
            series, axis = _share_steps(series)
        if name == "dev" and not any(stage_curves(suite.records, "loss_curve")):
            note = f"{note} {_NO_LOSSES}"
        elif name == "dev" and len(series) > MOST_ROWS:
            note = f"{note} {_FEWER.format(campaign=suite.campaign.name, most=MOST_ROWS)}"
        facts: dict[str, Any] = {"series": series, "note": note}
        facts |= {"own": True} if name == "loss" else {"highlight": suite.baseline}
        yield suite.figure(name, "curves", _CURVE_TITLES[name], "lines", (axis, label), **facts)


def _share_steps(series: tuple[Series, ...]) -> tuple[tuple[Series, ...], str]:
    """Return curves against the step, or against the share of training if lengths differ much."""
    lasts = [one.x[-1] for one in series]
    if min(lasts) <= 0 or max(lasts) <= _MOST_STRETCH * min(lasts):
        return series, "step"
    shares = []
    for one in series:
        shares.append(replace(one, x=tuple(100 * step / one.x[-1] for step in one.x)))
    return tuple(shares), "share of training, %"


def curve_series(
    lines: Mapping[str, Sequence[RunRecord]],
) -> Iterator[tuple[str, str, tuple[Series, ...]]]:
    """Yield "loss", "dev" or "rank", the label of the y axis and the lines against the step, each if any.

    A line is the mean of its runs, with a band from the lowest to the highest.
    """
    kinds = (
        ("loss_curve", "loss", "training loss", 1.0),
        ("dev_curve", "dev", "dev score x 100", SCALE),
        ("collapse_curve", "rank", "effective rank of the dev vectors", 1.0),
    )
    for key, name, label, scale in kinds:
        curves = [_mean_curve(line, runs, key, scale) for line, runs in lines.items()]
        if series := tuple(curve for curve in curves if curve.x):
            yield name, label, series


def _mean_curve(line: str, runs: Sequence[RunRecord], key: str, scale: float) -> Series:
    """Means of a curve by step, with a band from the least to the largest value of several runs."""
    values: dict[float, list[float]] = {}
    for curve in stage_curves(runs, key):
        for step, value, *_ in curve:
            values.setdefault(float(step), []).append(scale * value)
    steps = tuple(sorted(values))
    columns = [values[step] for step in steps]
    band = tuple((min(column), max(column)) for column in columns)
    several = any(len(column) > 1 for column in columns)
    return Series(line, steps, tuple(map(fmean, columns)), band=band if several else ())


def _probe_figures(suite: SuiteRecords) -> Iterator[Figure]:
    """Alignment and uniformity, CLS energy, and attention by layer."""
    runs = [] if suite.campaign.last else probed_runs(suite.records, suite.names.__getitem__)
    groups = group_by(runs, lambda run: run.method)
    plane = {}
    for method, group in groups.items():
        alignment, uniformity = (_mean_value(group, name, "value") for name in ("alignment", "uniformity"))
        if alignment is not None and uniformity is not None:
            plane[method] = uniformity, alignment
    axes = "uniformity", "alignment"
    yield from suite.scatter("plane", "probes", "Alignment and uniformity", axes, plane)
    shown = {suite.campaign.shown(method): name for method, name in suite.names.items()}
    for relation in score_relations(suite.campaign, suite.every_record):
        if relation.quantity == "E_CLS":
            points = {}
            for method, one in relation.points.items():
                if method in shown:
                    points[shown[method]] = one.value, SCALE * one.score
            axes, note = ("E_CLS", "average x 100"), f"Spearman's rho {describe_rho(relation.rho)}."
            yield from suite.scatter("energy", "probes", "CLS energy and score", axes, points, note)
    depths = {method: max(map(_attention_depth, group)) for method, group in groups.items()}
    deepest = max(depths.values(), default=0)
    for number, target in enumerate(("[CLS]", "[SEP]", "final punctuation") if deepest else ()):
        cells = []
        for method, depth in depths.items():
            row = [_mean_value(groups[method], "attention_sink", "layers", i, number) for i in range(depth)]
            if depth:
                cells.append((*row, *[None] * (deepest - depth)))
        yield suite.figure(
            f"attention-{number + 1}",
            "attention",
            f"Attention on {target}",
            "heat",
            ("layer", "method"),
            rows=tuple(filter(depths.__getitem__, depths)),
            columns=tuple(map(str, range(1, deepest + 1))),
            cells=tuple(cells),
            note="Share of the attention, 0 to 1; mean over heads, sentences and seeds.",
        )


def _attention_depth(run: ProbedRun) -> int:
    return len(run.probes.get("attention_sink", {}).get("layers", ()))


def _mean_value(runs: Sequence[ProbedRun], *path: str | int) -> float | None:
    return summarise_values([run.value(*path) for run in runs]).mean


def _gain_figure(suite: SuiteRecords) -> Iterator[Figure]:
    """Losses before and after their modification (gradient paradigm, Figure 1)."""
    runs = by_method(suite.records)
    losses = [loss for loss in LOSSES if loss in runs and f"m_{loss}" in runs]
    series = []
    for name, prefix in (("original", ""), ("modified", "m_")):
        points = []
        for row, loss in enumerate(losses):
            cell = summarise_values(task_scores(runs[f"{prefix}{loss}"]))
            if cell.mean is not None:
                points.append((SCALE * cell.mean, float(row), SCALE * (cell.sd or 0.0)))
        if points:
            series.append(Series(name, *zip(*points, strict=True)))
    if series:
        title, axes = "Losses before and after their modification", (suite.average, "")
        rows = tuple(map(suite.names.__getitem__, losses))
        yield suite.figure("gains", "gains", title, "strip", axes, series=tuple(series), rows=rows)


def _cosine_figure(suite: SuiteRecords) -> Iterator[Figure]:
    """Densities of the similarities of all test pairs, a line a method, from the kept predictions."""
    # only these predictions are similarities
    made_elsewhere = is_imported_suite(suite.every_record[0].suite)
    if suite.metric != "spearman" or made_elsewhere or len(suite.runs) > MOST_ROWS:
        return
    edges = np.linspace(-1, 1, 81)
    middles = tuple(((edges[:-1] + edges[1:]) / 2).tolist())
    series = []
    for method, runs in suite.runs.items():
        heights = []
        for run in runs:
            try:
                values = np.concatenate(list(suite.campaign.home(run).predictions(run).values()))
            except (DataError, ValueError):  # missing, or of another kind of suite
                continue
            if values.ndim == 1 and len(values) and float(np.abs(values).max()) <= 1 + 1e-5:
                heights.append(np.histogram(np.clip(values, -1, 1), edges, density=True)[0])
        if heights:
            series.append(Series(method, middles, tuple(np.mean(heights, axis=0).tolist())))
    if series:
        title, note = "Cosines of the test pairs", "All tasks together; mean over seeds."
        axes = "cosine", "density"
        facts = {"series": tuple(series), "note": note, "highlight": suite.baseline}
        yield suite.figure("cosines", "cosines", title, "lines", axes, **facts)


def order_figures(campaign: Campaign) -> list[Figure]:
    """Return scatters of two settings' averages, of the six pairs with most methods in common."""
    correlations, _ = correlate_settings(campaign)
    drawn = sorted(range(len(correlations)), key=lambda place: -correlations[place].found.n)[:_MOST_ORDERS]
    remark = ""
    if len(correlations) > _MOST_ORDERS:
        remark = f" {_MOST_ORDERS} of {len(correlations)} pairs of settings are drawn: "
        remark += "those with most methods in common."
    figures = []
    for place in sorted(drawn):
        correlation = correlations[place]
        pair, a, b = correlation.pair, correlation.pair.first, correlation.pair.second
        points, names = {}, figure_names(campaign, pair.methods)
        for method, x, y in zip(pair.methods, *pair.scores, strict=True):
            points[names[method]] = SCALE * x, SCALE * y
        records = [*a.records, *b.records]
        source = describe_provenance(records, campaign.name) if records else (f"campaign: {campaign.name}",)
        if b.published:  # published settings stand last
            source = (*source, "published: the papers' STS tables")
        title, axes = f"{a.name} against {b.name}", (f"{a.name}: average x 100", f"{b.name}: average x 100")
        rho = f"Spearman's rho {correlation.rho}, 95% interval {correlation.interval}"
        note = f"{correlation.found.n} methods: {rho}.{remark}"
        head = f"order-{a.file}-{b.file}", "order", title
        figures.append(Figure(*head, "points", *axes, source, point_series(points), note=note))
    return figures


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
    """The scores over the grid, a series a column: lines over numbers, otherwise a strip."""
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
