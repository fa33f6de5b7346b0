"""Densities of the similarity by gold score: separation of neighbouring grades (JTCSE, Fig. 5)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.errors import BenchError
from bench.probes.interface import VECTORS, Probe, ProbeColumn

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
    """(pairs,) similarities of gold scores in [low, high), in the last group in [low, high]."""

    low: float
    high: float
    similarities: FloatArray

    @property
    def dense(self) -> bool:
        """True if the similarities have a density."""
        return len(self.similarities) >= _LEAST and bool(np.ptp(self.similarities) > 0)


def gold_groups(similarities: FloatArray, gold: FloatArray, by: str = "width") -> list[GoldGroup]:
    """Divide (pairs,) similarities into non-empty groups by rising gold score; ``by`` is one of GROUPS."""
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
        GoldGroup(float(edges[i]), float(edges[i + 1]), similarities[number == i]) for i in np.unique(number)
    ]


def density_overlap(first: FloatArray, second: FloatArray) -> float:
    """Overlap of two samples' densities, integral of min(f, g), in [0, 1]; samples need a spread."""
    from scipy.stats import gaussian_kde

    kernels = gaussian_kde(first), gaussian_kde(second)
    reach = _REACH * max(float(np.sqrt(kernel.covariance[0, 0])) for kernel in kernels)
    values = np.concatenate([first, second])
    grid = np.linspace(values.min() - reach, values.max() + reach, _POINTS)
    return float(np.trapezoid(np.minimum(kernels[0](grid), kernels[1](grid)), grid))


def compare_densities(similarities: FloatArray, gold: FloatArray, by: str = "width") -> dict[str, Any]:
    """Return {"value", "overlaps", "groups", "curves", "convention"} of (pairs,) similarities.

    The curves are densities at 101 points of [-1, 1]. An overlap is null if a group lacks a density; if all
    are null it raises BenchError.

    >>> low, high = np.linspace(0.1, 0.3, 9), np.linspace(0.2, 0.4, 9)
    >>> facts = compare_densities(np.concatenate([low, high]), np.repeat([0.5, 1.5], 9))
    >>> round(facts["value"], 1), [(group["low"], group["pairs"]) for group in facts["groups"]]
    (0.6, [(0.0, 9), (1.0, 9)])
    """
    from scipy.stats import gaussian_kde

    groups = gold_groups(similarities, gold, by)
    grid = np.linspace(-1, 1, 101)
    overlaps: list[float | None] = []
    facts, curves = [], []
    for group in groups:
        values = group.similarities
        sd = float(values.std(ddof=1)) if len(values) > 1 else None
        mean = float(values.mean())
        facts.append({"low": group.low, "high": group.high, "pairs": len(values), "mean": mean, "sd": sd})
        curves.append(gaussian_kde(values)(grid).tolist() if group.dense else None)
    for group, following in pairwise(groups):
        both = group.dense and following.dense
        overlaps.append(density_overlap(group.similarities, following.similarities) if both else None)
    known = [value for value in overlaps if value is not None]
    if not known:
        what = f"no two neighbouring ones of {len(groups)} gold group(s) have densities to compare"
        raise BenchError(what, hint="too few pairs, or vectors that are all alike")
    return {
        "value": float(np.mean(known)),
        "overlaps": overlaps,
        "groups": facts,
        "curves": curves,
        "convention": f"{CONVENTION}; gold groups: {GROUPS[by]}",
    }


PROBE = Probe(
    "density",
    "densities of the cosines by gold score, and how far neighbouring ones overlap",
    needs="similarities",
    measure=lambda inputs: compare_densities(
        inputs.similarities().astype(np.float64), np.array(inputs.data.gold), inputs.options.groups
    ),
    table=VECTORS,
    columns=(ProbeColumn("overlap"),),
    drawn=("curves",),
)
