"""Sensitivity of the gate: the smallest true drop of a cell's average that would fail it."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from bench.gate.drops import Sides, choose_seed_design, compute_drop_limit, name_test
from bench.gate.verdict import AVERAGE, POWER
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

    For a deterministic cell it is the tolerance. For a seeded one it follows from the reference alone, so
    that an equal cell has it too: new runs are drawn with the reference's spread on both sides, and the
    gate's own rule is applied to each draw. The rule is monotone: a draw fails from some true drop on, and
    the result is the quantile of these. The reference's few seeds leave mean and spread uncertain, so both
    are drawn as well (of a normal distribution, with the prior 1 / sigma); then the chance holds over
    references and new runs together. Three seeds detect little for that reason.

    Runs of one seed share nothing by default, the worst case. Pairs that stay alike detect more: then
    ``correlation`` is that of both runs of a seed, in [0, 1).

    Returns:
        The drop in the metric's unit; None for a reference with a single seed.

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
    bounds = [bound for bound in (errors, compute_drop_limit(sides, level)) if bound is not None]
    needed = np.minimum.reduce(np.broadcast_arrays(*bounds)) if bounds else 0.0
    return max(tolerance, float(np.quantile(np.maximum(needed, tolerance) - drawn, power)))


def _simulate_drops(
    sides: Sides, level: float, correlation: float
) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
    """Draw drops of unchanged new runs, and half the width of their intervals if there is a test."""
    rng, new = make_generator(_SEED, "sight"), len(sides.now)
    then = np.array([record.score(AVERAGE) for record in sides.then], dtype=np.float64)
    reference = np.array([record.score(AVERAGE) for record in sides.reference], dtype=np.float64)
    freedom = len(reference) - 1
    sigma = reference.std(ddof=1) * np.sqrt(freedom / rng.chisquare(freedom, (_DRAWS, 1)))
    mean = reference.mean() + sigma * rng.normal(size=(_DRAWS, 1)) / math.sqrt(len(reference))
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
