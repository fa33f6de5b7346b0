"""How pairs of like meaning and all sentences lie on the unit sphere (Wang and Isola 2020)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bench.data.tasks import PairTask
from bench.errors import BenchError, InputError

Vectors = NDArray[np.floating]
GOLD = 4.0
MOST = 100_000
_BLOCK = 1024


def positive_pairs(
    tasks: Sequence[PairTask], threshold: float = GOLD, *, strict: bool = False
) -> tuple[list[str], list[str]]:
    """Return both sides of the pairs whose gold score is at least ``threshold`` (strict: above it)."""
    pairs = [
        pair
        for task in tasks
        for subset in task.subsets
        for *pair, gold in zip(subset.first, subset.second, subset.gold, strict=True)
        if gold > threshold or (gold == threshold and not strict)
    ]
    return [str(first) for first, _ in pairs], [str(second) for _, second in pairs]


def alignment(first: Vectors, second: Vectors, alpha: float = 2.0) -> float:
    """Mean of ||x / |x| - y / |y| ||^alpha over pairs, in [0, 2^alpha]; lower is better (Wang, Isola 2020).

    Args:
        first: (n, d) vectors, n at least 1.
        second: (n, d) vectors of their partners.
        alpha: Exponent, above 0.

    Raises:
        BenchError: no pair, or a vector of length 0.
        ValueError: shapes that don't fit, or another alpha.
    """
    if first.shape != second.shape or alpha <= 0:
        raise ValueError(f"vectors {first.shape} and {second.shape}, alpha={alpha}")
    if not len(first):
        raise BenchError("no pair of like meaning, so there is no alignment")
    distances = np.linalg.norm(unit_vectors(first) - unit_vectors(second), axis=1)
    return float(np.mean(distances**alpha))


def uniformity(vectors: Vectors, t: float = 2.0) -> float:
    """Logarithm of mean_{i<j} exp(-t ||x_i - x_j||^2), unit vectors, in [-4 t, 0]; lower is better.

    Every unordered pair counts once, none with itself (Wang and Isola 2020, as in their code). Exact, in
    float64, block by block: memory is that of the vectors.

    Args:
        vectors: (n, d), n from 2 to 100,000.
        t: Above 0, at most 100.

    Raises:
        BenchError: fewer than two vectors, or one of length 0.
        InputError: more than 100,000.
        ValueError: another t.
    """
    if not 0 < t <= 100:
        raise ValueError(f"t={t}")
    n = len(vectors)
    if n < 2:
        raise BenchError(f"uniformity needs at least two sentences, here are {n}")
    if n > MOST:
        raise InputError(
            f"uniformity of {n:,} sentences", expected=f"at most {MOST:,}: all pairs are compared"
        )
    units = unit_vectors(vectors)
    total = 0.0
    for start in range(0, n, _BLOCK):
        rows = units[start : start + _BLOCK]
        within = np.triu_indices(len(rows), 1)
        total += float(_potential((rows @ rows.T)[within], t))
        for other in range(start + _BLOCK, n, _BLOCK):
            total += float(_potential(rows @ units[other : other + _BLOCK].T, t))
    return math.log(total / (n * (n - 1) / 2))


def unit_vectors(vectors: Vectors) -> NDArray[np.float64]:
    """Rows of length 1, float64 (n, d); raises BenchError for a row of length 0, which has no direction."""
    x = np.asarray(vectors, dtype=np.float64)
    norms = np.linalg.norm(x, axis=1, keepdims=True)
    if not norms.all():
        raise BenchError(
            f"vector {int(np.argmin(norms)) + 1} of {len(x)} has length 0, so it has no direction"
        )
    units: NDArray[np.float64] = x / norms
    return units


def _potential(cosines: NDArray[np.float64], t: float) -> np.float64:
    """Sum of exp(-t (2 - 2 cos)); overwrites its argument."""
    np.clip(cosines, -1.0, 1.0, out=cosines)
    cosines -= 1.0
    cosines *= 2 * t
    total: np.float64 = np.exp(cosines, out=cosines).sum()
    return total
