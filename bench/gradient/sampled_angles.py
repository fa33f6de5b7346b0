"""Gradient paradigm by sampled angles, and its Lemma 1 (Li et al. 2024, section 3.1, Figures 2-4, 10).

A cell is a pair of means: theta+ ~ N(mu_pos, 0.05), theta- ~ N(mu_neg, 0.10); a batch has one positive and
127 negatives. All cells of a row share the draws of their positives, those of a column the negatives. Of a
batch's negatives a component needs only the largest cosine and a log-sum-exp.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from bench.stats.argument_checks import make_generator

FloatArray = NDArray[np.float64]

POSITIVE_SD, NEGATIVE_SD = 0.05, 0.10
NEGATIVES, BATCHES = 127, 1000
TAU, ANGLE = 0.05, math.radians(10)
MARGINS: Mapping[str, float] = {"mpt": 0.23, "met": 0.45}
LOSSES = ("infonce", "arccon", "mpt", "met")
TAUS = (0.3, 0.1, 0.05, 0.03, 0.01, 0.005)
DISSIPATED = 0.01
_INSIDE = 1 - 1e-6
_LEAST_SQUARE = 1e-4


def positive_means(count: int = 100) -> FloatArray:
    """Means of the positive angle in radians, (count,), from pi/20 to pi/2, ends included."""
    return np.linspace(math.pi / 20, math.pi / 2, count)


def negative_means(count: int = 100) -> FloatArray:
    """Means of the negative angle in radians, (count,), from pi/20 to pi, ends included."""
    return np.linspace(math.pi / 20, math.pi, count)


@dataclass(frozen=True)
class Negatives:
    """Largest cosine of every batch (means, batches), and log sum e^(cos / tau) by tau."""

    largest: FloatArray
    log_sums: Mapping[float, FloatArray]


def sample_positives(means: FloatArray, batches: int = BATCHES, seed: int = 0) -> FloatArray:
    """Draw the positive angle of every batch in radians, (means, batches), with standard deviation 0.05."""
    _check_batches(batches)
    draws = make_generator(seed, "gradient/positive").standard_normal((len(means), batches))
    return means[:, None] + POSITIVE_SD * draws


def sample_negatives(
    means: FloatArray,
    batches: int = BATCHES,
    taus: Sequence[float] = (TAU,),
    seed: int = 0,
    negatives: int = NEGATIVES,
) -> Negatives:
    """Draw the negatives of every batch with standard deviation 0.10; keep what components need of them."""
    _check_batches(batches)
    if negatives < 1 or not all(tau > 0 for tau in taus):
        raise ValueError(f"{negatives} negatives, taus {tuple(taus)}; expected at least 1, and above 0")
    rng = make_generator(seed, "gradient/negative")
    largest = np.empty((len(means), batches))
    log_sums = {tau: np.empty_like(largest) for tau in taus}
    for number, mean in enumerate(means):
        cosines = np.cos(mean + NEGATIVE_SD * rng.standard_normal((batches, negatives)))
        top = largest[number] = cosines.max(axis=1)
        cosines -= top[:, None]
        for tau, sums in log_sums.items():
            sums[number] = top / tau + np.log(np.exp(cosines / tau).sum(axis=1))
    return Negatives(largest, log_sums)


def dissipation_grid(
    losses: Sequence[str] = LOSSES,
    positive: FloatArray | None = None,
    negative: FloatArray | None = None,
    batches: int = BATCHES,
    seed: int = 0,
) -> dict[str, FloatArray]:
    """Mean gradient dissipation (0 to 1) of every cell by loss (Figures 2, 10), at the published settings."""
    angles = sample_positives(positive_means() if positive is None else positive, batches, seed)
    drawn = sample_negatives(negative_means() if negative is None else negative, batches, seed=seed)
    grids = {}
    for loss in losses:
        grids[loss] = np.stack([batch_dissipation(loss, row, drawn).mean(axis=1) for row in angles])
    return grids


def batch_dissipation(loss: str, angles: FloatArray, negatives: Negatives) -> FloatArray:
    """Gradient dissipation (0 to 1) of every mean and batch (Table 1), for angles (batches,)."""
    if loss in ("infonce", "arccon"):
        pushed = np.cos(angles + (ANGLE if loss == "arccon" else 0.0))
        values: FloatArray = expit(negatives.log_sums[TAU] - pushed / TAU)
        return values
    if loss == "mpt":
        return (np.cos(angles) - negatives.largest < MARGINS[loss]).astype(np.float64)
    if loss == "met":
        gap = euclidean_distance(negatives.largest) - euclidean_distance(np.cos(angles))
        return (gap < MARGINS[loss]).astype(np.float64)
    raise ValueError(f"loss '{loss}' must be one of {', '.join(LOSSES)}")


def sampled_hardest_share(
    taus: Sequence[float] = TAUS,
    negative: FloatArray | None = None,
    *,
    positive: float = math.pi / 6,
    least_dissipation: float | None = None,
    batches: int = BATCHES,
    seed: int = 0,
) -> FloatArray:
    """Mean share of the hardest negative in the softmax weights, (taus, negative means) (Figure 3).

    With ``least_dissipation`` only batches count whose InfoNCE dissipation at that temperature reaches it; a
    cell without one has share 1. The released code has mu_pos 0.5 and 0.01.
    """
    drawn = sample_negatives(negative_means() if negative is None else negative, batches, taus, seed)
    cosine = np.cos(sample_positives(np.array([positive]), batches, seed)[0])
    rows = []
    for tau in taus:
        share = np.exp(drawn.largest / tau - drawn.log_sums[tau])
        kept = np.ones_like(share)
        if least_dissipation is not None:
            kept = expit(drawn.log_sums[tau] - cosine / tau) >= least_dissipation
        counts = kept.sum(axis=1)
        rows.append(np.where(counts > 0, (share * kept).sum(axis=1) / np.maximum(counts, 1), 1.0))
    return np.stack(rows)


def ratio_grid(
    positive: FloatArray | None = None,
    negative: FloatArray | None = None,
    *,
    sampled: bool = True,
    batches: int = BATCHES,
    seed: int = 0,
) -> dict[str, FloatArray]:
    """Ratio of ArcCon and of MET in every cell (Figure 4): ``sampled`` (paper) or at the means (released)."""
    rows = positive_means() if positive is None else positive
    columns = negative_means() if negative is None else negative
    if sampled:
        own = np.cos(sample_positives(rows, batches, seed))
        nearest = euclidean_distance(sample_negatives(columns, batches, seed=seed).largest)
    else:
        own, nearest = np.cos(rows)[:, None], euclidean_distance(np.cos(columns))[:, None]
    arccon = arccon_ratio(own).mean(axis=1, keepdims=True).repeat(len(columns), axis=1)
    return {"arccon": arccon, "met": (1 / euclidean_distance(own)) @ nearest.T / own.shape[1]}


def shade_cells(
    loss: str, positive: FloatArray | None = None, negative: FloatArray | None = None
) -> NDArray[np.bool_]:
    """Mark the impossible cells of Figure 4: mu_pos above mu_neg, or dissipated at the means themselves.

    Dissipated: ArcCon's dissipation with 127 equal negatives is below 0.01, or MET's distance gap is at least
    its margin.
    """
    rows = (positive_means() if positive is None else positive)[:, None]
    columns = (negative_means() if negative is None else negative)[None]
    if loss == "arccon":
        log_sum = np.cos(columns) / TAU + math.log(NEGATIVES)
        dissipated = expit(log_sum - np.cos(rows + ANGLE) / TAU) < DISSIPATED
    elif loss == "met":
        dissipated = euclidean_distance(np.cos(columns)) - euclidean_distance(np.cos(rows)) >= MARGINS[loss]
    else:
        raise ValueError(f"loss '{loss}' must be arccon or met")
    mask: NDArray[np.bool_] = (rows > columns) | dissipated
    return mask


def euclidean_distance(cosine: FloatArray) -> FloatArray:
    """Distance of unit vectors by their cosine, sqrt(2 - 2 c); its square is at least 1e-4."""
    values: FloatArray = np.sqrt(np.maximum(2 - 2 * cosine, _LEAST_SQUARE))
    return values


def arccon_ratio(cosine: FloatArray, u: float = ANGLE) -> FloatArray:
    """Return sin(theta + u) / sin(theta) by the cosine, which is held within +-(1 - 1e-6)."""
    theta = np.arccos(np.clip(cosine, -_INSIDE, _INSIDE))
    values: FloatArray = np.sin(theta + u) / np.sin(theta)
    return values


@dataclass(frozen=True)
class RatioBounds:
    """Lemma 1's bounds of the ``real`` anchors (n,): neither an imaginary root nor at the positive."""

    real: NDArray[np.bool_]
    lower: FloatArray
    upper: FloatArray

    @property
    def imaginary(self) -> int:
        """Number of triples without such a ratio."""
        return int((~self.real).sum())


def ratio_bounds(positive: ArrayLike, negative: ArrayLike, alpha: ArrayLike, strength: float) -> RatioBounds:
    """Bounds of the ratio r in a tangent step strength (r h' - h_j) of the anchor (Lemma 1, appendix C).

    r = 1/strength + q cos(alpha) -+ sqrt(1/strength^2 - q^2 sin(alpha)^2), q = sin(theta_ij) / sin(theta_ii):
    in the tangent plane at the anchor the distance to the positive shrinks exactly between the two (the paper
    prints the lower one). The angles (n,) are theta_ii, theta_ij, and that between the directions to the two
    in the tangent plane.
    """
    if strength <= 0:
        raise ValueError(f"strength {strength} must be above 0")
    own, other, angle = (np.asarray(x, dtype=np.float64) for x in (positive, negative, alpha))
    away = np.sin(own) > 0
    q = np.sin(other) / np.where(away, np.sin(own), 1.0)
    square = 1 / strength**2 - (q * np.sin(angle)) ** 2
    real = away & (square >= 0)
    middle, root = (1 / strength + q * np.cos(angle))[real], np.sqrt(square[real])
    return RatioBounds(real, middle - root, middle + root)


def _check_batches(batches: int) -> None:
    if batches < 1:
        raise ValueError(f"{batches} batches; expected at least 1")
