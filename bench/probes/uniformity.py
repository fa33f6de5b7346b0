"""Uniformity: even spread of all sentences over the unit sphere (Wang and Isola 2020)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.errors import BenchError, InputError
from bench.probes.alignment import UNIT, Vectors, unit_vectors
from bench.probes.interface import VECTORS, Probe, ProbeColumn, ProbeInputs

MOST = 100_000
_BLOCK = 1024


def uniformity(vectors: Vectors, t: float = 2.0) -> float:
    """Logarithm of mean_{i<j} exp(-t ||x_i - x_j||^2), unit vectors, in [-4 t, 0]; lower is better.

    Every unordered pair of different rows counts once (Wang and Isola 2020, as in their code). Exact, in
    float64, block by block: memory is that of the vectors. t is above 0, at most 100. It raises BenchError
    for fewer than two vectors or one of length 0, InputError for more than 100,000.

    Two opposite vectors lie 2 apart, so it is the logarithm of exp(-2 * 4):

    >>> round(uniformity(np.array([[1.0, 0.0], [-3.0, 0.0]])), 6)
    -8.0
    """
    if not 0 < t <= 100:
        raise ValueError(f"t={t}")
    n = len(vectors)
    if n < 2:
        raise BenchError(f"uniformity needs at least two sentences, here are {n}")
    if n > MOST:
        what = f"uniformity of {n:,} sentences"
        raise InputError(what, expected=f"at most {MOST:,}: all pairs are compared")
    units = unit_vectors(vectors)
    total = 0.0
    for start in range(0, n, _BLOCK):
        rows = units[start : start + _BLOCK]
        within = np.triu_indices(len(rows), 1)
        total += float(_pair_potential((rows @ rows.T)[within], t))
        for other in range(start + _BLOCK, n, _BLOCK):
            total += float(_pair_potential(rows @ units[other : other + _BLOCK].T, t))
    return math.log(total / (n * (n - 1) / 2))


def _pair_potential(cosines: NDArray[np.float64], t: float) -> np.float64:
    """Sum of exp(-t (2 - 2 cos)); overwrites its argument."""
    np.clip(cosines, -1.0, 1.0, out=cosines)
    cosines -= 1.0
    cosines *= 2 * t
    total: np.float64 = np.exp(cosines, out=cosines).sum()
    return total


def _measure_uniformity(inputs: ProbeInputs) -> dict[str, Any]:
    n = len(inputs.vectors)
    pairs = n * (n - 1) // 2
    return {
        "value": uniformity(inputs.vectors),
        "towers": [uniformity(part.vectors) for part in inputs.parts],
        "pairs": pairs,
        "convention": f"log mean exp(-2 d^2) (t 2), {pairs:,} pairs of {n:,} distinct sentences, {UNIT}",
    }


PROBE = Probe(
    "uniformity",
    "log of the mean of exp(-2 d^2) over all pairs of distinct sentences, unit vectors",
    needs="vectors",
    measure=_measure_uniformity,
    table=VECTORS,
    columns=(ProbeColumn("uniformity"),),
)
