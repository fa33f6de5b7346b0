"""Probes of several methods side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.comparison.selection import group_by
from bench.errors import NotComparableError
from bench.probes import PROBES
from bench.probes.interface import Probe, ProbeColumn
from bench.records.record import RunRecord
from bench.render.grid import DASH, Grid, summarise_values
from bench.reports.campaign import Campaign
from bench.reports.records import finished_records


@dataclass(frozen=True)
class ProbedRun:
    """What the probes found of one encoder.

    Args:
        profile: Profile label.
        method: Method id, or what it is called.
        seed: Its seed, None for none.
        suite: Suite of the average.
        average: Its average there, in the metric's unit; None without a record.
        probes: See :mod:`bench.probes.measurement`.
        timing: What it took by the clock.
    """

    profile: str
    method: str
    seed: int | None
    suite: str
    average: float | None
    probes: dict[str, Any]
    timing: dict[str, Any]

    def value(self, *path: str | int) -> float | None:
        """Return a number of the probes by its path; None where there is none."""
        return number_at(self.probes, path)


def probed_runs(records: Sequence[RunRecord], shown: Callable[[str], str] = str) -> list[ProbedRun]:
    """Return the probes of the finished records that have some; ``shown`` says what a method is called."""
    return [
        ProbedRun(
            *(r.profile, shown(r.method), r.seed, r.suite),
            *(r.score("avg"), r.probes, r.timing.get("probes", {})),
        )
        for r in finished_records(records)
        if r.probes
    ]


def probe_tables(campaign: Campaign) -> list[Grid]:
    """Return two tables a profile and suite; none of last checkpoints, which weren't probed."""
    return [] if campaign.last else probe_grids(probed_runs(campaign.records, campaign.shown))


def probe_grids(found: Sequence[ProbedRun]) -> list[Grid]:
    """Return two tables for each profile and suite: the vectors; attention and cost. Means over seeds."""
    grids = []
    for (profile, suite), group in group_by(found, lambda one: (one.profile, one.suite)).items():
        check_same_sentences(group)
        on = describe_sentences(group[0].probes)
        rows = group_by(group, lambda one: one.method)
        for title in dict.fromkeys(probe.table for probe in PROBES.values()):
            probes = [probe for probe in PROBES.values() if probe.table == title]
            columns = [(probe, column) for probe in probes for column in probe.columns]
            lines = [
                (method, str(len(runs)), *(_column_cell(runs, probe, column) for probe, column in columns))
                for method, runs in rows.items()
            ]
            header = ("method", "seeds", *(column.heading for _, column in columns))
            names = [probe.name for probe in probes]
            notes = (*_missing_notes(rows, names), *_convention_notes(group, names))
            grids.append(Grid(f"{title}: {on}; {suite}, profile {profile}", header, tuple(lines), notes))
    return grids


def _column_cell(runs: Sequence[ProbedRun], probe: Probe, column: ProbeColumn) -> str:
    blocks = (run.timing if column.timing else run.probes.get(probe.name) for run in runs)
    found = summarise_values([number_at(block, column.path) for block in blocks])
    spread = "" if found.sd is None else f"±{format(column.scale * found.sd, column.form)}"
    return DASH if found.mean is None else format(column.scale * found.mean, column.form) + spread


def number_at(block: Any, path: Sequence[str | int]) -> float | None:
    """Return a number inside nested dicts and lists; None where there is anything else."""
    for key in path:
        try:
            block = block[key]
        except (KeyError, IndexError, TypeError):
            return None
    return float(block) if isinstance(block, int | float) and not isinstance(block, bool) else None


def describe_sentences(probes: Mapping[str, Any]) -> str:
    """Say on what probes were measured."""
    data = probes.get("data", {})
    return f"{', '.join(data.get('tasks', {}))}, {data.get('sentences', 0):,} sentences"


def check_same_sentences(found: Sequence[ProbedRun]) -> None:
    """Raise NotComparableError for probes of different sentences; ``found`` is of one profile and suite."""
    if any(one.probes.get("data") != found[0].probes.get("data") for one in found):
        raise NotComparableError(
            f"the probes of {found[0].method} and others were measured on different sentences",
            where=f"profile {found[0].profile}, suite {found[0].suite}",
            hint="run bench run --probes all with the same data",
        )


def _missing_notes(rows: dict[str, list[ProbedRun]], names: Sequence[str]) -> list[str]:
    """Why a method lacks probes, one line for each method and reason."""
    lines = []
    for method, runs in rows.items():
        blocks = {name: runs[0].probes.get(name, {}) for name in names}
        missing = {name: str(block["missing"]) for name, block in blocks.items() if "missing" in block}
        reasons = group_by(missing, missing.__getitem__)
        lines += [f"{method}, no {', '.join(lacking)}: {reason}" for reason, lacking in reasons.items()]
    return lines


def _convention_notes(found: Sequence[ProbedRun], names: Sequence[str]) -> list[str]:
    """How each probe was measured."""
    told = ((name, one.probes.get(name, {}).get("convention")) for name in names for one in found)
    return list(dict.fromkeys(f"{name}: {convention}" for name, convention in told if convention is not None))
