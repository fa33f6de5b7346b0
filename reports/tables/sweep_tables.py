"""Tables of sweeps, from a campaign's records and its kept grids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from statistics import fmean

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bench.config.sweep_manifest import Manifest
from bench.config.sweeps import SWEEPS
from bench.records.record import RunRecord, last_stages
from bench.render.grid import DASH, Grid, ScoreCell, Value, no_width, summarise_values
from bench.reports.records import (
    UNREADABLE,
    check_comparable,
    failure_reasons,
    finished_records,
    missing_score_notes,
)

_NORMS = "The norms are of the last step's weights, the scores of the selected ones."


def sweep_grids(manifests: Sequence[Manifest], records: Sequence[RunRecord], campaign: str) -> list[Grid]:
    """Return a table for every sweep and suite.

    Raises:
        NotComparableError: cells of one table were measured on different data, or a method's seeds under
            different specifications.
    """
    grids = []
    for manifest in manifests:
        if SWEEPS[manifest.sweep].surface:
            grids.append(_surface_grid(manifest))
        else:
            grids += [_sweep_grid(manifest, suite, records, campaign) for suite in manifest.suites]
    return grids


def norm_factor(k: ArrayLike, t: ArrayLike) -> NDArray[np.float64]:
    """The norm factor of LTN for two vectors of length ratio k and cosine t (TNCSE, Figure 2).

    ||a - b|| / (||a|| + ||b||) = sqrt(1 + k^2 - 2 k t) / (1 + k), within [0, 1]: 0 for equal vectors alone, 1
    for opposite ones, and where one is 0.

    Args:
        k: ||a|| / ||b||, at least 0.
        t: Their cosine, in [-1, 1].
    """
    ratio, cosine = np.asarray(k, dtype=np.float64), np.asarray(t, dtype=np.float64)
    squared: NDArray[np.float64] = np.maximum(1 + ratio**2 - 2 * ratio * cosine, 0)
    return np.sqrt(squared) / (1 + ratio)


def _surface_grid(manifest: Manifest) -> Grid:
    sweep = SWEEPS[manifest.sweep]
    cosines = (-1.0, -0.5, 0.0, 0.5, 0.9, 1.0)
    ratios = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0)
    rows = tuple((f"{k:g}", *(f"{norm_factor(k, t):.3f}" for t in cosines)) for k in ratios)
    header = (sweep.axis, *(f"cos {t:g}" for t in cosines))
    return Grid(f"Sweep {sweep.name}", header, rows, (f"{sweep.question} ({sweep.source}.)",))


def records_by_cell(
    manifest: Manifest, suite: str, records: Sequence[RunRecord]
) -> dict[tuple[str, str], list[RunRecord]]:
    """Return the records at each (row, column); a deterministic method's one record counts for all seeds."""
    own = [r for r in records if (r.profile, r.suite) == (manifest.profile, suite)]
    return {
        (row, column): [r for r in own if r.method == method and r.seed in (None, *manifest.seeds)]
        for row, column, method in manifest.points
    }


def _sweep_grid(manifest: Manifest, suite: str, records: Sequence[RunRecord], campaign: str) -> Grid:
    sweep = SWEEPS[manifest.sweep]
    at = records_by_cell(manifest, suite, records)
    used = list({id(record): record for group in at.values() for record in group}.values())
    check_comparable(used, campaign)
    rows, columns = (list(dict.fromkeys(place[i] for place in at)) for i in (0, 1))
    task = sweep_task(sweep.task, used)
    cells = {place: summarise_values([r.score(task) for r in group]) for place, group in at.items()}
    header = [sweep.axis, *columns]
    body: list[list[Value]] = [
        [row, *(cells.get((row, column), ScoreCell(None, None, 0)) for column in columns)] for row in rows
    ]
    for wanted, name, measure in ((sweep.norms, "||CLS||", _mean_norm), (sweep.curves, "rank", _mean_rank)):
        if wanted:
            header += [f"{name} {column}" for column in columns]
            for line, row in zip(body, rows, strict=True):
                line += [measure(at.get((row, column), [])) for column in columns]
    notes = [
        f"{sweep.question} ({sweep.source}.)",
        f"Spearman x 100 ({task}), mean and standard deviation over seeds "
        f"{', '.join(map(str, manifest.seeds))}.",
        *dict.fromkeys(note for record in used for note in record.notes),
        *missing_score_notes(failure_reasons(used), failure_reasons(used, UNREADABLE)),
        *(_collapse_notes(at, rows, columns) if sweep.curves else []),
        *([_NORMS] if sweep.norms else []),
    ]
    missing = [place for place, group in at.items() if not group]
    if missing:
        notes.append("Not run yet: " + "; ".join(f"{row}, {column}" for row, column in missing) + ".")
    title = f"Sweep {sweep.name}, {suite}, profile {manifest.profile}, campaign {campaign}"
    return Grid(title, tuple(header), tuple(map(tuple, body)), tuple(notes))


def sweep_task(wanted: str, records: Sequence[RunRecord]) -> str:
    """The sweep's own task where every record has it, else the average."""
    done = finished_records(records)
    return wanted if done and all(record.score(wanted) is not None for record in done) else "avg"


def _mean_norm(records: Sequence[RunRecord]) -> str:
    """Mean norm of [CLS] over towers and seeds, where the joint stage measured it."""
    joints = [r.training["stages"]["joint"] for r in records if "joint" in r.training.get("stages", {})]
    norms = [norm for joint in joints for norm in joint.get("mean_cls_norm", ())]
    return f"{fmean(norms):.2f}" if norms else DASH


def stage_curves(records: Sequence[RunRecord], name: str) -> list[list[list[float]]]:
    """The curve of each stage that ends a record's training, rows (step, values ...)."""
    return [list(stage.get(name, ())) for record in records for stage in last_stages(record).values()]


def _final_collapse(records: Sequence[RunRecord], column: int) -> list[float]:
    """A column of the collapse curve (1 effective rank, 2 mean cosine) at each record's last evaluation."""
    return [curve[-1][column] for curve in stage_curves(records, "collapse_curve") if curve]


def _mean_rank(records: Sequence[RunRecord]) -> str:
    ranks = _final_collapse(records, 1)
    return f"{fmean(ranks):.1f}" if ranks else DASH


def _collapse_notes(
    at: Mapping[tuple[str, str], Sequence[RunRecord]], rows: Sequence[str], columns: Sequence[str]
) -> list[str]:
    """How every row's collapse figures differ from the first row's, with Welch's intervals over seeds."""
    from bench.stats.seeds import welch  # scipy.stats is slow to load

    notes = [
        "rank: effective rank of the dev sentences' vectors at the last evaluation, mean over seeds. "
        f"Below: its difference from {rows[0]}, and that of their mean cosine, with 95% intervals (Welch)."
    ]
    for column, row in product(columns, rows[1:]):
        told = []
        for index, shown, digits in ((1, "rank", 1), (2, "cosine", 3)):
            a, b = (_final_collapse(at.get((place, column), ()), index) for place in (row, rows[0]))
            if min(len(a), len(b)) > 1:
                found = welch(a, b)
                values = (found.difference, found.low, found.high)
                difference, low, high = (f"{value:+.{digits}f}" for value in values)
                ends = "" if no_width(found.low, found.high) else f" [{low}, {high}]"
                told.append(f"{shown} {difference}{ends}")
        if told:
            notes.append(f"{column}, {row} minus {rows[0]}: {'; '.join(told)}.")
    return notes
