"""Decide which records a rerun on this machine can show, and test the shift of those that were repeated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from statistics import fmean, stdev
from typing import Any

from bench.data.mteb_names import is_mteb
from bench.errors import InputError
from bench.nn.device import check_available
from bench.records.environment import collect_training_environment
from bench.records.fingerprint import machine_differences, machine_warnings
from bench.records.imported import is_published
from bench.records.integrity import HARDWARE_TOLERANCE
from bench.records.record import RunRecord
from bench.render.grid import SCALE
from bench.stats.equivalence import DifferenceEstimate
from bench.verify.findings import Verification

RECOMPUTED, REPEATABLE = "recomputed", "repeatable"
LEVELS = (RECOMPUTED, REPEATABLE)
"""What ``bench site`` and ``bench merge`` can require of records, the weaker first."""
FALSE_ALARMS = 0.01
"""Probability that the shifts of one sample of honest records are a finding."""
_SHIFTING = {"CPU", "weights as made"}
"""Machine facts that may differ where a shift is tested. A CPU makes a recipe's weights in its own digits."""


@dataclass(frozen=True)
class ScoreShift:
    """The average of a record minus that of its repetition on another CPU with equal versions."""

    where: str
    row: tuple[str, str, str]  # profile, method, suite
    seed: int | None
    value: float


def explain_unrepeatable(record: RunRecord, planned: RunRecord) -> str:
    """Return why a rerun on this machine can't show a record, or ""; ``planned`` is what it would write."""
    device = str(planned.provenance.get("device")).partition(" ")[0]
    here = _environment_here(device)
    if isinstance(here, str):
        return f"made on {record.provenance.get('device')}: {here}"
    processor = here["processor"]
    facts = {name: value for name, value in here.items() if name != "processor"}
    now = replace(planned, provenance={**planned.provenance, **facts}, timing={"processor": processor})
    return explain_untestable_shift(record, now) if machine_warnings([record], [now]) else ""


@cache
def _environment_here(device: str) -> Mapping[str, Any] | str:
    """Facts of this machine, or why it lacks the device."""
    try:
        if device != "cpu":
            check_available(device, "--device")
    except InputError as error:
        return error.what
    return collect_training_environment(device)


def explain_untestable_shift(then: RunRecord, now: RunRecord) -> str:
    """Return why a shift between two machines can't be tested, or "" for CPUs of equal versions."""
    device = now.provenance.get("device")
    if device != "cpu":
        return f"other hardware: how far {device} moves an average wasn't measured (shift not testable)"
    others = []
    for name, was, is_now in machine_differences([then], [now]):
        if name not in _SHIFTING:
            others.append(f"{name} then {' and '.join(was)}, now {' and '.join(is_now)}")
    return f"other versions: {'; '.join(others)} (shift not testable)" if others else ""


def find_mean_shifts(shifts: Sequence[ScoreShift]) -> Iterator[tuple[str, str]]:
    """Yield (file, fault) for each row of cells, and for all, whose mean shift exceeds the tolerance.

    Bonferroni's correction over these tests keeps :data:`FALSE_ALARMS`. Runs of one seed may share stages, so
    the test of all rows takes the mean of each seed.
    """
    groups = _shift_groups(shifts)
    for name, members in groups.items():
        values = _seed_means(members)
        p = mean_shift_p(values)
        if p * len(groups) <= FALSE_ALARMS:
            mean = fmean(values) * SCALE
            side = "above" if mean > 0 else "below"
            what = f"the averages of {len(members)} repeated cells of {name} are {abs(mean):.2g} points"
            what += f" {side} those of their repetitions (p {p:.1g})"
            what += f"; CPUs of equal versions differ by up to {HARDWARE_TOLERANCE * SCALE:.2g}"
            yield members[0].where, what


def _shift_groups(shifts: Sequence[ScoreShift]) -> dict[str, list[ScoreShift]]:
    """Shifts by row, and of all rows, where there are two seeds or more to test."""
    rows: dict[tuple[str, str, str], list[ScoreShift]] = {}
    for shift in shifts:
        rows.setdefault(shift.row, []).append(shift)
    groups = {f"{row[1]} (profile {row[0]}, {row[2]})": members for row, members in rows.items()}
    if len(rows) > 1:
        groups["all rows"] = list(shifts)
    return {name: members for name, members in groups.items() if len(_seed_means(members)) > 1}


def _seed_means(shifts: Sequence[ScoreShift]) -> list[float]:
    by_seed: dict[int | None, list[float]] = {}
    for shift in shifts:
        by_seed.setdefault(shift.seed, []).append(shift.value)
    return list(map(fmean, by_seed.values()))


def mean_shift_p(values: Sequence[float], tolerance: float = HARDWARE_TOLERANCE) -> float:
    """Return p of the hypothesis that the mean difference is at most the tolerance, on either side.

    Two one-sided t tests against the tolerance, with Bonferroni's correction. Differences within it give 1.

    >>> round(mean_shift_p([0.0045, 0.0046, 0.0044]), 4), mean_shift_p([0.00001, -0.00002])
    (0.0002, 1.0)
    """
    error = stdev(values) / len(values) ** 0.5
    estimate = DifferenceEstimate(fmean(values), error, len(values) - 1)
    return min(1.0, 2 * min(estimate.above(tolerance), estimate.below(-tolerance)))


def describe_shortfall(level: str, verified: Verification, sound: Sequence[tuple[str, RunRecord]]) -> str:
    """Return how many records lack a level of ``LEVELS``, or "".

    Some tasks of mteb keep no predictions; such records are shown as not recomputed, and still have the level
    ``recomputed``. Imported scores without predictions can have neither level, and are marked everywhere.
    """
    if level == REPEATABLE:
        shown, word = set(verified.repeatable), "repeatable here"
        reasons = list(dict.fromkeys(verified.unrepeatable.values()))
    else:
        shown = {*verified.recomputed, *(where for where, record in sound if is_mteb(record.suite))}
        word, reasons = "recomputed", [what for what in verified.unchecked if what.startswith("scores of ")]
    lacking = [where for where, record in sound if where not in shown and not is_published(record)]
    if not lacking:
        return ""
    what = f"{len(lacking):,} of {len(sound):,} records are not {word}"
    return f"{what}: {'; '.join(reasons[:3])}{', ...' if len(reasons) > 3 else ''}" if reasons else what
