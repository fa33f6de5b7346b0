"""Tables of sweeps, with the papers' figures next to ours."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, product

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bench.config.sweep_manifest import Manifest
from bench.config.sweeps import SWEEPS
from bench.data.published_tables import ablation_figures
from bench.errors import InputError
from bench.records.record import AVERAGE, RunRecord, last_stages
from bench.render.grid import Grid, Value, format_number, mean_or_none, no_width
from bench.reports.campaign import Campaign
from bench.reports.record_groups import (
    by_method,
    check_comparable,
    finished_records,
    record_notes,
    summarise_scores,
)
from bench.reports.tables.published_figures import GREY, Footnotes, quote_figures

_NORMS = "The norms are of the last step's weights, the scores of the selected ones."


def ablation_grids(campaign: Campaign) -> list[Grid]:
    """Return the tables of the campaign's sweeps, sweep by sweep."""
    grids = []
    for name, manifests in campaign.sweeps_by_name().items():
        for grid in sweep_grids(manifests, campaign.records, campaign.name):
            grids.append(_add_published(grid, name))
    return grids


def select_sweep(campaign: Campaign, name: str) -> Campaign:
    """Return the campaign with only this sweep; raises InputError for a missing one."""
    by_name = campaign.sweeps_by_name()
    if name not in by_name:
        known = ", ".join(by_name)
        raise InputError(
            f"no sweep '{name}' ran here",
            where=f"--table ablation:{name}",
            expected=f"one of {known}" if known else None,
            hint=f"bench sweep {name if name in SWEEPS else 'NAME'} --campaign {campaign.stores[0].campaign}",
        )
    return replace(campaign, sweeps=tuple(by_name[name]))


def _add_published(grid: Grid, sweep: str) -> Grid:
    """The table with the papers' figures of the same cells."""
    printed, footnotes = ablation_figures(sweep), Footnotes()
    _, known = grid_axes(printed)
    columns = list(filter(known.__contains__, grid.header[1:]))
    if not columns:
        return grid
    rows = []
    for label, *cells in grid.rows:
        quotes = (quote_figures(printed.get((str(label), column), ()), footnotes) for column in columns)
        rows.append((label, *cells, *quotes))
    sources = "; ".join(dict.fromkeys(f.source for figures in printed.values() for f in figures))
    notes = (*grid.notes, f"Published: {sources}, bert-base.", GREY, *footnotes.notes)
    header = (*grid.header, *(f"published {column}" for column in columns))
    return replace(grid, header=header, rows=tuple(rows), notes=notes)


def sweep_grids(manifests: Sequence[Manifest], records: Sequence[RunRecord], campaign: str) -> list[Grid]:
    """Return a table for every sweep and suite; raises NotComparableError as ``check_comparable``."""
    grids = []
    for manifest in manifests:
        if SWEEPS[manifest.sweep].surface:
            grids.append(_surface_grid(manifest))
        else:
            grids += [_sweep_grid(manifest, suite, records, campaign) for suite in manifest.suites]
    return grids


def norm_factor(k: ArrayLike, t: ArrayLike) -> NDArray[np.float64]:
    """Return the norm factor of LTN for two vectors (TNCSE, Figure 2) of length ratio k >= 0 and cosine t.

    ||a - b|| / (||a|| + ||b||) = sqrt(1 + k^2 - 2 k t) / (1 + k), within [0, 1]: 0 only for equal vectors,
    1 for opposite ones, and where one is 0.
    """
    ratio, cosine = np.asarray(k, dtype=np.float64), np.asarray(t, dtype=np.float64)
    squared: NDArray[np.float64] = np.maximum(1 + ratio**2 - 2 * ratio * cosine, 0)
    return np.sqrt(squared) / (1 + ratio)


def _surface_grid(manifest: Manifest) -> Grid:
    sweep = SWEEPS[manifest.sweep]
    cosines = (-1.0, -0.5, 0.0, 0.5, 0.9, 1.0)
    rows = []
    for k in (0.0, 0.25, 0.5, 1.0, 2.0, 4.0):
        rows.append((f"{k:g}", *(f"{norm_factor(k, t):.3f}" for t in cosines)))
    header = (sweep.axis, *(f"cos {t:g}" for t in cosines))
    return Grid(f"Sweep {sweep.name}", header, tuple(rows), (f"{sweep.question} ({sweep.source}.)",))


def records_by_cell(
    manifest: Manifest, suite: str, records: Sequence[RunRecord]
) -> dict[tuple[str, str], list[RunRecord]]:
    """Return the records at each (row, column); a deterministic method's one record counts for all seeds."""
    own = []
    for record in records:
        place = record.profile, record.suite
        if place == (manifest.profile, suite) and record.seed in (None, *manifest.seeds):
            own.append(record)
    methods = by_method(own)
    cells = {}
    for row, column, method in manifest.points:
        cells[row, column] = methods.get(method, [])
    return cells


def grid_axes(places: Iterable[tuple[str, str]]) -> tuple[list[str], list[str]]:
    """Return the rows and the columns of places."""
    rows: dict[str, None] = {}
    columns: dict[str, None] = {}
    for row, column in places:
        rows[row] = columns[column] = None
    return list(rows), list(columns)


def distinct_records(groups: Iterable[Iterable[RunRecord]]) -> list[RunRecord]:
    """Return the records of groups, each once."""
    return list({id(record): record for record in chain.from_iterable(groups)}.values())


def _sweep_grid(manifest: Manifest, suite: str, records: Sequence[RunRecord], campaign: str) -> Grid:
    sweep = SWEEPS[manifest.sweep]
    cells = records_by_cell(manifest, suite, records)
    used = distinct_records(cells.values())
    check_comparable(used, campaign)
    rows, columns = grid_axes(cells)
    task = sweep_task(sweep.task, used)
    measures: list[tuple[str, Callable[[Sequence[RunRecord]], Value]]]
    measures = [("", partial(summarise_scores, task=task)), *[("||CLS|| ", _mean_norm)] * bool(sweep.norms)]
    measures += [("rank ", _mean_rank)] * bool(sweep.curves)
    header = [sweep.axis, *(f"{name}{column}" for name, _ in measures for column in columns)]
    body: list[tuple[Value, ...]] = []
    for row in rows:
        groups = [cells.get((row, column), []) for column in columns]
        body.append((row, *(measure(group) for _, measure in measures for group in groups)))
    notes = [
        f"{sweep.question} ({sweep.source}.)",
        f"Spearman x 100 ({task}), mean and standard deviation over seeds "
        f"{', '.join(map(str, manifest.seeds))}.",
        *record_notes(used, failures=True),
        *(_collapse_notes(cells, rows, columns) if sweep.curves else []),
        *[_NORMS] * bool(sweep.norms),
    ]
    missing = "; ".join(f"{row}, {column}" for (row, column), group in cells.items() if not group)
    if missing:
        notes.append(f"Not run yet: {missing}.")
    title = f"Sweep {sweep.name}, {suite}, profile {manifest.profile}, campaign {campaign}"
    return Grid(title, tuple(header), tuple(body), tuple(notes))


def sweep_task(wanted: str, records: Sequence[RunRecord]) -> str:
    """Return the sweep's own task if every record has it, otherwise the average."""
    done = finished_records(records)
    if not done or any(record.score(wanted) is None for record in done):
        return AVERAGE
    return wanted


def _mean_norm(records: Sequence[RunRecord]) -> str:
    """Mean norm of [CLS] over towers and seeds, where the joint stage measured it."""
    joints = (record.training.get("stages", {}).get("joint", {}) for record in records)
    norms = [norm for joint in joints for norm in joint.get("mean_cls_norm", ())]
    return format_number(mean_or_none(norms), ".2f")


def stage_curves(records: Sequence[RunRecord], name: str) -> list[list[list[float]]]:
    """Return the curve of each stage that ends a record's training, rows (step, values ...)."""
    return [list(stage.get(name, ())) for record in records for stage in last_stages(record).values()]


def _final_collapse(records: Sequence[RunRecord], column: int) -> list[float]:
    """A column of the collapse curve (1 effective rank, 2 mean cosine) at each record's last evaluation."""
    return [curve[-1][column] for curve in stage_curves(records, "collapse_curve") if curve]


def _mean_rank(records: Sequence[RunRecord]) -> str:
    return format_number(mean_or_none(_final_collapse(records, 1)), ".1f")


def _collapse_notes(
    cells: Mapping[tuple[str, str], Sequence[RunRecord]], rows: Sequence[str], columns: Sequence[str]
) -> list[str]:
    """Differences of every row's collapse figures from the first row's, with Welch's intervals over seeds."""
    from bench.stats.seeds import welch  # scipy.stats is slow to load

    notes = [
        "rank: effective rank of the dev sentences' vectors at the last evaluation, mean over seeds. "
        f"Below: its difference from {rows[0]}, and that of their mean cosine, with 95% intervals (Welch)."
    ]
    for column, row in product(columns, rows[1:]):
        texts = []
        for index, quantity, digits in ((1, "rank", 1), (2, "cosine", 3)):
            a, b = (_final_collapse(cells.get((place, column), ()), index) for place in (row, rows[0]))
            if min(len(a), len(b)) > 1:
                test = welch(a, b)
                ends = f" [{test.low:+.{digits}f}, {test.high:+.{digits}f}]"
                text = f"{quantity} {test.difference:+.{digits}f}"
                texts.append(text if no_width(test.low, test.high) else text + ends)
        if texts:
            notes.append(f"{column}, {row} minus {rows[0]}: {'; '.join(texts)}.")
    return notes
