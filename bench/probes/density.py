"""Densities of the similarity by gold score: how well it separates neighbouring grades (JTCSE, Fig. 5)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.errors import BenchError
from bench.probes.interface import VECTORS, Probe, ProbeColumn, ProbeInputs

FloatArray = NDArray[np.float64]
GROUPS = {
    "width": "intervals of width 1 between whole numbers",
    "quantiles": "five of like size, equal scores together",
}
CONVENTION = (
    "Gaussian kernel densities of the similarity with Scott's bandwidth, by gold group; overlap is the "
    "integral of the smaller of two densities, 0 (apart) to 1 (alike); value: its mean over neighbouring "
    "groups; a group of under 5 pairs or without spread has no density"
)
_QUANTILES = 5
_LEAST = 5
_POINTS = 2001
_REACH = 5.0  # bandwidths beyond the outermost similarity: 6e-7 of a kernel's mass lies further out


@dataclass(frozen=True)
class GoldGroup:
    """Pairs whose gold score lies in [low, high), the last group's in [low, high].

    Args:
        low: Least gold score.
        high: Upper end.
        similarities: (pairs,).
    """

    low: float
    high: float
    similarities: FloatArray


def gold_groups(similarities: FloatArray, gold: FloatArray, by: str = "width") -> list[GoldGroup]:
    """Divide pairs by gold score.

    Args:
        similarities: (pairs,).
        gold: (pairs,) gold scores.
        by: One of GROUPS.

    Returns:
        The groups by rising gold score; none is empty.

    Raises:
        BenchError: no pair.
        ValueError: another ``by``, or shapes that don't fit.

    >>> groups = gold_groups(np.array([0.1, 0.2, 0.9]), np.array([0.5, 1.0, 2.0]))
    >>> [(group.low, group.high, group.similarities.tolist()) for group in groups]
    [(0.0, 1.0, [0.1]), (1.0, 2.0, [0.2, 0.9])]
    """
    if by not in GROUPS or similarities.shape != gold.shape:
        raise ValueError(f"by={by!r}, similarities {similarities.shape}, gold {gold.shape}")
    if not len(gold):
        raise BenchError("no pair to divide by gold score")
    if by == "width":
        low = math.floor(gold.min())
        edges = np.arange(low, max(math.ceil(gold.max()), low + 1) + 1, dtype=np.float64)
    else:
        edges = np.unique(np.quantile(gold, np.linspace(0, 1, _QUANTILES + 1)))
        edges = edges if len(edges) > 1 else np.repeat(edges, 2)
    number = np.clip(np.searchsorted(edges, gold, side="right") - 1, 0, len(edges) - 2)
    return [
        GoldGroup(float(edges[i]), float(edges[i + 1]), similarities[number == i])
        for i in range(len(edges) - 1)
        if (number == i).any()
    ]


def density_overlap(first: FloatArray, second: FloatArray) -> float:
    """Overlap coefficient of two samples' densities, integral of min(f, g), in [0, 1].

    Args:
        first: (n,) values, at least two different ones.
        second: (m,) values, at least two different ones.

    >>> sample = np.array([0.1, 0.2, 0.4])
    >>> round(density_overlap(sample, sample), 4), round(density_overlap(sample, sample + 10), 4)
    (1.0, 0.0)
    """
    from scipy.stats import gaussian_kde

    kernels = gaussian_kde(first), gaussian_kde(second)
    reach = _REACH * max(float(np.sqrt(kernel.covariance[0, 0])) for kernel in kernels)
    values = np.concatenate([first, second])
    grid = np.linspace(values.min() - reach, values.max() + reach, _POINTS)
    return float(np.trapezoid(np.minimum(kernels[0](grid), kernels[1](grid)), grid))


def compare_densities(similarities: FloatArray, gold: FloatArray, by: str = "width") -> dict[str, Any]:
    """Return groups, the overlap of neighbouring ones, and the densities at 101 points of [-1, 1].

    Args:
        similarities: (pairs,), cosines or another similarity.
        gold: (pairs,) gold scores.
        by: See :func:`gold_groups`.

    Returns:
        {"value", "overlaps", "groups": [{"low", "high", "pairs", "mean", "sd"}], "curves", "convention"}; an
        overlap is null where one of the two has no density.

    Raises:
        BenchError: no two neighbouring groups with a density.

    >>> low, high = np.linspace(0.1, 0.3, 9), np.linspace(0.2, 0.4, 9)
    >>> found = compare_densities(np.concatenate([low, high]), np.repeat([0.5, 1.5], 9))
    >>> round(found["value"], 1), [(group["low"], group["pairs"]) for group in found["groups"]]
    (0.6, [(0.0, 9), (1.0, 9)])
    """
    from scipy.stats import gaussian_kde

    groups = gold_groups(similarities, gold, by)
    dense = [len(group.similarities) >= _LEAST and np.ptp(group.similarities) > 0 for group in groups]
    overlaps = [
        density_overlap(groups[i].similarities, groups[i + 1].similarities)
        if dense[i] and dense[i + 1]
        else None
        for i in range(len(groups) - 1)
    ]
    known = [value for value in overlaps if value is not None]
    if not known:
        raise BenchError(
            f"no two neighbouring ones of {len(groups)} gold group(s) have densities to compare",
            hint="too few pairs, or vectors that are all alike",
        )
    grid = np.linspace(-1, 1, 101)
    return {
        "value": float(np.mean(known)),
        "overlaps": overlaps,
        "groups": [
            {
                "low": group.low,
                "high": group.high,
                "pairs": len(group.similarities),
                "mean": float(group.similarities.mean()),
                "sd": float(group.similarities.std(ddof=1)) if len(group.similarities) > 1 else None,
            }
            for group in groups
        ],
        "curves": [
            gaussian_kde(group.similarities)(grid).tolist() if has else None
            for group, has in zip(groups, dense, strict=True)
        ],
        "convention": f"{CONVENTION}; gold groups: {GROUPS[by]}",
    }


def _measure_density(inputs: ProbeInputs) -> dict[str, Any]:
    similarities = inputs.similarities().astype(np.float64)
    return compare_densities(
        similarities, np.asarray(inputs.data.gold, dtype=np.float64), inputs.options.groups
    )


PROBE = Probe(
    "density",
    "densities of the cosines by gold score, and how far neighbouring ones overlap",
    needs="similarities",
    measure=_measure_density,
    table=VECTORS,
    columns=(ProbeColumn("overlap"),),
    drawn=("curves",),
)
