"""The gradient paradigm by sampled angles, and its Lemma 1 (Li et al. 2024, section 3.1, Figures 2-4, 10).

A cell is a pair of means: theta+ ~ N(mu_pos, 0.05), theta- ~ N(mu_neg, 0.10), a batch has one positive and
127 negatives. Positives are drawn once a mu_pos and negatives once a mu_neg, and all cells of a row or column
share them: of a batch's negatives a component needs the largest cosine and a log-sum-exp alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from bench.stats.inputs import make_generator

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
    """Means of the positive angle in radians, (count,), from pi/20 to pi/2, ends included.

    Example:
        >>> positive_means(3).round(3).tolist()
        [0.157, 0.864, 1.571]
    """
    return np.linspace(math.pi / 20, math.pi / 2, count)


def negative_means(count: int = 100) -> FloatArray:
    """Means of the negative angle in radians, (count,), from pi/20 to pi, ends included.

    Example:
        >>> negative_means(3).round(3).tolist()
        [0.157, 1.649, 3.142]
    """
    return np.linspace(math.pi / 20, math.pi, count)


@dataclass(frozen=True)
class Negatives:
    """What components need of the negatives of every batch.

    Args:
        largest: Largest cosine, (means, batches).
        log_sums: log sum e^(cos / tau) by tau, (means, batches) each.
    """

    largest: FloatArray
    log_sums: Mapping[float, FloatArray]


def sample_positives(means: FloatArray, batches: int = BATCHES, seed: int = 0) -> FloatArray:
    """Draw the positive angle of every batch, normal with standard deviation POSITIVE_SD.

    Args:
        means: Means of the angle in radians, (means,).
        batches: Batches a mean.
        seed: Seed of the draws.

    Returns:
        (means, batches) radians; few are below 0 and stay so.

    Raises:
        ValueError: no batch.

    Example:
        >>> sample_positives(np.array([0.5, 1.5]), batches=2).round(2).tolist()
        [[0.5, 0.49], [1.57, 1.52]]
    """
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
    """Draw the negatives of every batch, normal with NEGATIVE_SD, and keep what components need of them.

    Args:
        means: Means of the angle in radians, (means,).
        batches: Batches a mean.
        taus: Temperatures, above 0.
        seed: Seed of the draws.
        negatives: Negatives a batch.

    Raises:
        ValueError: no batch, no negative, or a temperature that isn't above 0.

    Example:
        >>> sample_negatives(np.array([0.5, 1.5]), batches=3, negatives=4).largest.round(2).tolist()
        [[0.9, 0.91, 0.92], [0.13, 0.24, 0.3]]
    """
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
        for tau, found in log_sums.items():
            found[number] = top / tau + np.log(np.exp(cosines / tau).sum(axis=1))
    return Negatives(largest, log_sums)


def dissipation_grid(
    losses: Sequence[str] = LOSSES,
    positive: FloatArray | None = None,
    negative: FloatArray | None = None,
    batches: int = BATCHES,
    seed: int = 0,
) -> dict[str, FloatArray]:
    """Mean gradient dissipation of every cell (Figures 2 and 10), losses at their published settings.

    Args:
        losses: Some of infonce, arccon, mpt, met.
        positive: Means of the positive angle; None for the paper's 100.
        negative: Means of the negative angle; None for the paper's 100.
        batches: Batches a cell.
        seed: Seed of the draws.

    Returns:
        By loss (positive means, negative means), within [0, 1].

    Raises:
        ValueError: an unknown loss, or no batch.

    Example:
        >>> grid = dissipation_grid(["infonce"], np.array([0.5]), np.array([0.5, 1.5]), batches=50)
        >>> grid["infonce"].round(2).tolist()  # negatives as near as the positive, and far ones
        [[0.99, 0.0]]
    """
    angles = sample_positives(positive_means() if positive is None else positive, batches, seed)
    drawn = sample_negatives(negative_means() if negative is None else negative, batches, seed=seed)
    return {
        loss: np.stack([batch_dissipation(loss, row, drawn).mean(axis=1) for row in angles])
        for loss in losses
    }


def batch_dissipation(loss: str, angles: FloatArray, negatives: Negatives) -> FloatArray:
    """Gradient dissipation of every batch (Table 1).

    Args:
        loss: infonce, arccon, mpt or met.
        angles: Positive angle of every batch, (batches,).
        negatives: Of every mean and batch.

    Returns:
        (means, batches), within [0, 1].

    Raises:
        ValueError: an unknown loss.

    Example:
        >>> negatives = sample_negatives(np.array([0.5, 1.5]), batches=3)
        >>> batch_dissipation("mpt", np.array([0.5, 0.5, 0.5]), negatives).tolist()
        [[1.0, 1.0, 1.0], [0.0, 0.0, 0.0]]
    """
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
    """Mean share of the hardest negative in the softmax weights by temperature (Figure 3).

    The released code has mu_pos 0.5 and ``least_dissipation`` 0.01.

    Args:
        taus: Temperatures.
        negative: Means of the negative angle; None for the paper's 100.
        positive: mu_pos.
        least_dissipation: Only batches whose InfoNCE dissipation at that temperature is at least this, share
            1 where there is none; None for all batches.
        batches: Batches a cell.
        seed: Seed of the draws.

    Returns:
        (taus, negative means), within [1 / 127, 1].

    Raises:
        ValueError: no batch, or a temperature that isn't above 0.

    Example:
        >>> sampled_hardest_share((0.3, 0.05), np.array([0.5, 1.5]), batches=50).round(2).tolist()
        [[0.01, 0.02], [0.04, 0.25]]
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
    """Ratio of ArcCon and of MET (at the hardest negative) in every cell (Figure 4).

    Args:
        positive: Means of the positive angle; None for the paper's 100.
        negative: Means of the negative angle; None for the paper's 100.
        sampled: The mean over batches (paper), or the value at the means themselves (released).
        batches: Batches a cell.
        seed: Seed of the draws.

    Returns:
        "arccon" and "met", (positive means, negative means).

    Example:
        >>> ratios = ratio_grid(np.array([math.pi / 6]), np.array([math.pi / 3]), sampled=False)
        >>> {loss: ratio.round(2).tolist() for loss, ratio in ratios.items()}
        {'arccon': [[1.29]], 'met': [[1.93]]}
    """
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
    """Cells of Figure 4 that don't occur: mu_pos above mu_neg, or dissipated at the means themselves.

    Dissipated: ArcCon's dissipation with 127 equal negatives below 0.01; MET's distance gap at least its
    margin.

    Args:
        loss: arccon or met.
        positive: Means of the positive angle; None for the paper's 100.
        negative: Means of the negative angle; None for the paper's 100.

    Raises:
        ValueError: another loss.

    Example:
        >>> shade_cells("met", np.array([0.5, 1.5]), np.array([1.0, 1.6])).tolist()
        [[True, True], [True, False]]
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
    """Distance of unit vectors by their cosine, sqrt(2 - 2 c), of any shape; its square is at least 1e-4.

    Example:
        >>> euclidean_distance(np.array([1.0, 0.5, -1.0])).tolist()
        [0.01, 1.0, 2.0]
    """
    values: FloatArray = np.sqrt(np.maximum(2 - 2 * cosine, _LEAST_SQUARE))
    return values


def arccon_ratio(cosine: FloatArray, u: float = ANGLE) -> FloatArray:
    """sin(theta + u) / sin(theta), element by element of the cosine, which is held within +-(1 - 1e-6).

    Example:
        >>> arccon_ratio(np.array([0.5])).round(3).tolist()
        [1.085]
    """
    theta = np.arccos(np.clip(cosine, -_INSIDE, _INSIDE))
    values: FloatArray = np.sin(theta + u) / np.sin(theta)
    return values


@dataclass(frozen=True)
class RatioBounds:
    """Between which ratios a step brings an anchor nearer to its positive (Lemma 1).

    Args:
        real: (n,), False where the root is imaginary or the anchor is at its positive: no ratio does.
        lower: r_min of the others, (n real,).
        upper: r_max of the others, (n real,).
    """

    real: NDArray[np.bool_]
    lower: FloatArray
    upper: FloatArray

    @property
    def imaginary(self) -> int:
        """Triples for which no ratio does."""
        return int((~self.real).sum())


def ratio_bounds(positive: ArrayLike, negative: ArrayLike, alpha: ArrayLike, strength: float) -> RatioBounds:
    """Bounds of the ratio r in a tangent step strength (r h' - h_j) of the anchor (Lemma 1, appendix C).

    r = 1/strength + q cos(alpha) -+ sqrt(1/strength^2 - q^2 sin(alpha)^2), q = sin(theta_ij) / sin(theta_ii):
    in the tangent plane at the anchor the distance to the positive shrinks exactly between the two (the paper
    prints the lower one).

    Args:
        positive: theta_ii, (n,) radians.
        negative: theta_ij, (n,) radians.
        alpha: Angle between the directions to the two in the tangent plane, (n,) radians.
        strength: lambda, above 0.

    Raises:
        ValueError: a strength that isn't above 0.

    Example:
        >>> right = math.pi / 2
        >>> bounds = ratio_bounds([right, right], [right, right], [0.0, right], strength=0.5)
        >>> bounds.lower.round(3).tolist(), bounds.upper.round(3).tolist()
        ([1.0, 0.268], [5.0, 3.732])
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
