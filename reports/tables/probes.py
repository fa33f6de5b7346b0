"""Probes of several methods side by side, and the CLS energy against the score (JTCSE, Fig. 10)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bench.compare.select import grouped
from bench.errors import NotComparableError
from bench.probes import PROBES
from bench.probes.probe import Column, Probe
from bench.records.record import RunRecord
from bench.reports.campaign import Campaign
from bench.reports.grid import DASH, Grid, summarise
from bench.reports.records import finished
from bench.stats.checks import MIN_PAIRS
from bench.stats.rank_correlation import rank_correlation


@dataclass(frozen=True)
class Probed:
    """What the probes found of one encoder.

    Args:
        profile: Profile label.
        method: Method id, or what it is called.
        seed: Its seed, None for none.
        suite: Suite of the average.
        average: Its average there, in the metric's unit; None without a record.
        probes: See :mod:`bench.probes.measure`.
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
        return _number(self.probes, path)


@dataclass(frozen=True)
class EnergyAgainstScore:
    """Spearman's rho of CLS energy and suite average over methods, each the mean of its seeds.

    Args:
        profile: Profile.
        suite: Suite of the average.
        methods: By method (energy, average), in the metric's unit.
        rho: None for fewer than four methods, or where all of one side are equal.
        low: Lower end of the interval (Bonett and Wright 2000); None where rho is None, 1 or -1: it has no
            width there.
        high: Upper end.
        level: Its confidence level.
        left_out: By method, why it isn't a point here.
    """

    profile: str
    suite: str
    methods: dict[str, tuple[float, float]]
    rho: float | None
    low: float | None
    high: float | None
    level: float
    left_out: dict[str, str]

    def sentence(self) -> str:
        """What it says, in one line."""
        n = len(self.methods)
        what = f"CLS energy against the average on {self.suite}, profile {self.profile}, {n} methods"
        if self.rho is None:
            return f"{what}: no rank correlation (it takes {MIN_PAIRS} methods, not all equal)"
        if self.low is None or self.high is None:
            return f"{what}: Spearman's rho {self.rho:+.2f}, no interval: it has no width there"
        interval = f"{100 * self.level:.0f}% interval [{self.low:+.2f}, {self.high:+.2f}]"
        return f"{what}: Spearman's rho {self.rho:+.2f}, {interval} (Bonett and Wright 2000)"


def from_records(records: Sequence[RunRecord], shown: Callable[[str], str] = str) -> list[Probed]:
    """Return the probes of the finished records that have some; ``shown`` says what a method is called."""
    return [
        Probed(
            *(r.profile, shown(r.method), r.seed, r.suite),
            *(r.score("avg"), r.probes, r.timing.get("probes", {})),
        )
        for r in finished(records)
        if r.probes
    ]


def probe_tables(campaign: Campaign) -> list[Grid]:
    """Return two tables a profile and suite; the last says whether CLS energy ranks methods as the score."""
    found = from_records(campaign.records, campaign.shown)
    grids = probe_grids(found)
    if grids:
        relations = [relation.sentence() for relation in energy_against_score(found)]
        grids[-1] = replace(grids[-1], notes=(*grids[-1].notes, *relations))
    return grids


def energy_against_score(found: Sequence[Probed], level: float = 0.95) -> list[EnergyAgainstScore]:
    """Correlate CLS energy with the average over the methods that pool [CLS], by profile and suite.

    A method is a point: means over its seeds. Methods share backbones and stages, so they are not the
    independent draws that the interval takes them for.

    Args:
        found: Probes of one or more campaigns' records.
        level: Confidence level, in (0, 1).

    Raises:
        NotComparableError: probes of different sentences.
    """
    relations = []
    for (profile, suite), group in grouped(found, lambda one: (one.profile, one.suite)).items():
        _check_same_sentences(group)
        points: dict[str, tuple[float, float]] = {}
        left_out: dict[str, str] = {}
        for method, runs in grouped(group, lambda one: one.method).items():
            why = _why_left_out(runs[0])
            energy = summarise([run.value("cls_energy", "value") for run in runs]).mean
            average = summarise([run.average for run in runs]).mean
            if why or energy is None or average is None:
                left_out[method] = why or "it has no CLS energy or no average"
            else:
                points[method] = energy, average
        relations.append(_relation(profile, suite, points, level, left_out))
    return relations


def probe_grids(found: Sequence[Probed]) -> list[Grid]:
    """Return two tables for each profile and suite: the vectors; attention and cost. Means over seeds."""
    grids = []
    for (profile, suite), group in grouped(found, lambda one: (one.profile, one.suite)).items():
        _check_same_sentences(group)
        data = group[0].probes.get("data", {})
        on = f"{', '.join(data.get('tasks', {}))}, {data.get('sentences', 0):,} sentences"
        rows = grouped(group, lambda one: one.method)
        for title in dict.fromkeys(probe.table for probe in PROBES.values()):
            probes = [probe for probe in PROBES.values() if probe.table == title]
            columns = [(probe, column) for probe in probes for column in probe.columns]
            lines = [
                (method, str(len(runs)), *(_cell(runs, probe, column) for probe, column in columns))
                for method, runs in rows.items()
            ]
            header = ("method", "seeds", *(column.heading for _, column in columns))
            names = [probe.name for probe in probes]
            notes = (*_missing(rows, names), *_conventions(group, names))
            grids.append(Grid(f"{title}: {on}; {suite}, profile {profile}", header, tuple(lines), notes))
    return grids


def _cell(runs: Sequence[Probed], probe: Probe, column: Column) -> str:
    blocks = (run.timing if column.timing else run.probes.get(probe.name) for run in runs)
    found = summarise([_number(block, column.path) for block in blocks])
    spread = "" if found.sd is None else f"±{format(column.scale * found.sd, column.form)}"
    return DASH if found.mean is None else format(column.scale * found.mean, column.form) + spread


def _number(block: Any, path: Sequence[str | int]) -> float | None:
    """A number inside nested dicts and lists; None where there is anything else."""
    for key in path:
        try:
            block = block[key]
        except (KeyError, IndexError, TypeError):
            return None
    return float(block) if isinstance(block, int | float) and not isinstance(block, bool) else None


def _check_same_sentences(found: Sequence[Probed]) -> None:
    if any(one.probes.get("data") != found[0].probes.get("data") for one in found):
        raise NotComparableError(
            f"the probes of {found[0].method} and others were measured on different sentences",
            where=f"profile {found[0].profile}, suite {found[0].suite}",
            hint="run bench run --probes all with the same data",
        )


def _why_left_out(probed: Probed) -> str:
    block = probed.probes.get("cls_energy", {})
    if "missing" in block:
        return str(block["missing"])
    pooling = block.get("pooling")
    return "" if pooling == "cls" else f"it pools {pooling}" if pooling else "how it pools is not known"


def _relation(
    profile: str, suite: str, points: dict[str, tuple[float, float]], level: float, left_out: dict[str, str]
) -> EnergyAgainstScore:
    energies, averages = [x for x, _ in points.values()], [y for _, y in points.values()]
    found = rank_correlation(energies, averages, level)
    return EnergyAgainstScore(profile, suite, points, found.rho, found.low, found.high, level, left_out)


def _missing(rows: dict[str, list[Probed]], names: Sequence[str]) -> list[str]:
    """Why a method lacks probes, one line for each method and reason."""
    lines = []
    for method, runs in rows.items():
        blocks = {name: runs[0].probes.get(name, {}) for name in names}
        missing = {name: str(block["missing"]) for name, block in blocks.items() if "missing" in block}
        reasons = grouped(missing, missing.__getitem__)
        lines += [f"{method}, no {', '.join(lacking)}: {reason}" for reason, lacking in reasons.items()]
    return lines


def _conventions(found: Sequence[Probed], names: Sequence[str]) -> list[str]:
    """How each probe was measured."""
    told = ((name, one.probes.get(name, {}).get("convention")) for name in names for one in found)
    return list(dict.fromkeys(f"{name}: {convention}" for name, convention in told if convention is not None))
