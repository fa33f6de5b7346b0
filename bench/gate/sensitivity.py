"""What the gate can see: the smallest true drop of a cell's average that would fail it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from bench.gate.drops import Sides, choose_seed_design, compute_drop_limit, name_test
from bench.gate.verdict import AVERAGE, POWER
from bench.records.record import RunRecord
from bench.stats.inputs import make_generator
from bench.stats.pair_test import PAIRED
from bench.stats.seeds import satterthwaite, side_parts

_DRAWS = 5_000
_SEED = 1
_LEAST = 1e-70  # variance of a reference that doesn't vary, whose degrees of freedom would be 0 / 0


def smallest_detectable_drop(
    sides: Sides, level: float, tolerance: float, power: float = POWER, *, correlation: float = 0.0
) -> float | None:
    """Return the smallest true drop of a cell's average that fails the gate with a chance of ``power``.

    Of a deterministic cell it is the tolerance, as any larger drop fails. Of a seeded one it follows from the
    reference alone, so that an equal cell has it too: new runs are drawn as the reference predicts them, with
    its spread on both sides, and the gate's own rule is applied to each draw. The rule is monotone: a draw
    fails from some true drop on, and the result is the quantile of these. Mean and spread are known no better
    than the reference's few seeds say, so both are drawn as well (of a normal distribution, with the prior
    1 / sigma); then over references and new runs together the chance is the one asked for. Three seeds see
    little for that reason.

    Runs of one seed share nothing by default. That is the worst case, where a change makes each run another
    draw. Pairs that stay alike see more, as ``correlation`` says.

    Args:
        sides: The cell's runs; of equal ones the seeds alone are read.
        level: Confidence level of the cell's interval, corrected for the number of cells.
        tolerance: In the metric's unit.
        power: The chance, in (0, 1).
        correlation: Of both runs of a seed where they are pairs, in [0, 1).

    Returns:
        The drop in the metric's unit; None for a reference with a single seed, whose spread isn't known.

    Raises:
        ValueError: a power or a correlation out of its range.
    """
    if not 0 < power < 1 or not 0 <= correlation < 1:
        raise ValueError(f"power={power}, correlation={correlation}; expected (0, 1) and [0, 1)")
    if sides.then[0].seed is None:
        return tolerance
    if len(sides.reference) < 2:
        return None
    if sides.test is None and min(len(sides.then), len(sides.now)) > 1:  # equal bytes had no test
        sides = replace(sides, test=name_test(choose_seed_design(sides.then, sides.now)))
    drawn, errors = _simulate_drops(sides, level, correlation)
    beyond = compute_drop_limit(sides, level)
    shown = [each for each in (errors, beyond) if each is not None]
    needed = np.minimum.reduce(np.broadcast_arrays(*shown)) if shown else 0.0
    found = np.quantile(np.maximum(needed, tolerance) - drawn, power)
    return max(tolerance, float(found))


def _simulate_drops(
    sides: Sides, level: float, correlation: float
) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
    """Drops of new runs that are no worse, and half the width of their intervals; None without a test."""
    rng, then, every = (
        make_generator(_SEED, "sight"),
        _read_averages(sides.then),
        _read_averages(sides.reference),
    )
    freedom, new = len(every) - 1, len(sides.now)
    sigma = every.std(ddof=1) * np.sqrt(freedom / rng.chisquare(freedom, (_DRAWS, 1)))
    mean = every.mean() + sigma * rng.normal(size=(_DRAWS, 1)) / math.sqrt(len(every))
    noise = sigma * rng.normal(size=(_DRAWS, new))
    if sides.same_seeds:
        now = mean + correlation * (then - mean) + math.sqrt(1 - correlation**2) * noise
    else:
        now = mean + noise
    drawn = then.mean() - now.mean(axis=1)
    if sides.test is None:
        return drawn, None
    if sides.test == PAIRED:
        variance = (then - now).var(axis=1, ddof=1) / new
        degrees: float | NDArray[np.float64] = new - 1
    else:
        was = np.full(_DRAWS, max(then.var(ddof=1) / len(then), _LEAST))
        is_now = now.var(axis=1, ddof=1) / new
        variance = was + is_now
        degrees = satterthwaite(side_parts((was, len(then) - 1), (is_now, new - 1)))
    return drawn, stdtrit(degrees, (1 + level) / 2) * np.sqrt(variance)


def _read_averages(records: Sequence[RunRecord]) -> NDArray[np.float64]:
    return np.array([record.score(AVERAGE) for record in records], dtype=np.float64)
