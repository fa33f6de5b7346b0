"""Probes of several methods side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from bench.comparison.selection import group_by
from bench.errors import NotComparableError
from bench.probes import PROBES
from bench.probes.interface import Probe, ProbeColumn
from bench.records.record import RunRecord
from bench.render.grid import DASH, Grid, summarise_values
from bench.reports.campaign import Campaign
from bench.reports.record_groups import finished_records

_AS_RECORDED = "As recorded: no check repeats what probes found; bench probe measures it again."


@dataclass(frozen=True)
class ProbedRun:
    """The probes of one encoder (:mod:`bench.probes.measurement`), and its average, if recorded."""

    profile: str
    method: str
    seed: int | None
    suite: str
    average: float | None
    probes: dict[str, Any]
    timing: dict[str, Any]

    def value(self, *path: str | int) -> float | None:
        """Return a number of the probes by its path, if any."""
        return number_at(self.probes, path)


def probed_runs(records: Sequence[RunRecord], shown: Callable[[str], str] = str) -> list[ProbedRun]:
    """Return the probes of finished records, with methods' printed names."""
    runs = []
    for r in finished_records(records):
        if r.probes:
            timing = r.timing.get("probes", {})
            average = r.score("avg")
            runs.append(ProbedRun(r.profile, shown(r.method), r.seed, r.suite, average, r.probes, timing))
    return runs


def probe_tables(campaign: Campaign) -> list[Grid]:
    """Return two tables a profile and suite."""
    grids = probe_grids(probed_runs(campaign.records, campaign.shown))
    return [replace(grid, notes=(*grid.notes, _AS_RECORDED)) for grid in grids]


def probe_grids(runs: Sequence[ProbedRun]) -> list[Grid]:
    """Return two tables for each profile and suite: the vectors; attention and cost. Means over seeds."""
    grids, tables = [], group_by(PROBES.values(), lambda probe: probe.table)
    for (profile, suite), group in group_by(runs, lambda run: (run.profile, run.suite)).items():
        check_same_sentences(group)
        sentences = describe_sentences(group[0].probes)
        rows = group_by(group, lambda run: run.method)
        for title, probes in tables.items():
            columns = [(probe, column) for probe in probes for column in probe.columns]
            lines = []
            for method, own in rows.items():
                cells = (_column_cell(own, probe, column) for probe, column in columns)
                lines.append((method, str(len(own)), *cells))
            header = ("method", "seeds", *(column.heading for _, column in columns))
            names = [probe.name for probe in probes]
            notes = (*_missing_notes(rows, names), *_convention_notes(group, names))
            head = f"{title}: {sentences}; {suite}, profile {profile}"
            grids.append(Grid(head, header, tuple(lines), notes))
    return grids


def _column_cell(runs: Sequence[ProbedRun], probe: Probe, column: ProbeColumn) -> str:
    values = []
    for run in runs:
        block = run.timing if column.timing else run.probes.get(probe.name)
        values.append(number_at(block, column.path))
    cell = summarise_values(values)
    if cell.mean is None:
        return DASH
    spread = "" if cell.sd is None else f"±{format(column.scale * cell.sd, column.form)}"
    return format(column.scale * cell.mean, column.form) + spread


def number_at(block: Any, path: Sequence[str | int]) -> float | None:
    """Return a number inside nested dicts and lists, if any."""
    for key in path:
        try:
            block = block[key]
        except (KeyError, IndexError, TypeError):
            return None
    return float(block) if isinstance(block, int | float) and not isinstance(block, bool) else None


def describe_sentences(probes: Mapping[str, Any]) -> str:
    """Return the sentences of probes: tasks and number."""
    data = probes.get("data", {})
    return f"{', '.join(data.get('tasks', {}))}, {data.get('sentences', 0):,} sentences"


def check_same_sentences(runs: Sequence[ProbedRun]) -> None:
    """Raise NotComparableError for probes of different sentences in one profile and suite."""
    if any(run.probes.get("data") != runs[0].probes.get("data") for run in runs):
        raise NotComparableError(
            f"the probes of {runs[0].method} and others were measured on different sentences",
            where=f"profile {runs[0].profile}, suite {runs[0].suite}",
            hint="run bench run --probes all with the same data",
        )


def _missing_notes(rows: dict[str, list[ProbedRun]], names: Sequence[str]) -> list[str]:
    """Reasons of missing probes, one line for each method and reason."""
    lines = []
    for method, runs in rows.items():
        reasons: dict[str, list[str]] = {}
        for name in names:
            block = runs[0].probes.get(name, {})
            if "missing" in block:
                reasons.setdefault(str(block["missing"]), []).append(name)
        lines += [f"{method}, no {', '.join(lacking)}: {reason}" for reason, lacking in reasons.items()]
    return lines


def _convention_notes(runs: Sequence[ProbedRun], names: Sequence[str]) -> list[str]:
    """Definitions of the probes."""
    notes: dict[str, None] = {}
    for name, run in product(names, runs):
        if (convention := run.probes.get(name, {}).get("convention")) is not None:
            notes[f"{name}: {convention}"] = None
    return list(notes)
