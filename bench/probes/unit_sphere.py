"""Vectors of length 1, on which alignment and uniformity are defined."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bench.errors import BenchError

Vectors = NDArray[np.floating]
UNIT = "vectors of length 1; lower is better"
"""The end of a convention."""


def unit_vectors(vectors: Vectors) -> NDArray[np.float64]:
    """Divide each row by its length, in float64.

    Args:
        vectors: (n, d).

    Returns:
        (n, d), rows of length 1.

    Raises:
        BenchError: a row of length 0, which has no direction.

    >>> unit_vectors(np.array([[3.0, 4.0], [0.0, 2.0]])).tolist()
    [[0.6, 0.8], [0.0, 1.0]]
    """
    x = np.asarray(vectors, dtype=np.float64)
    norms = np.linalg.norm(x, axis=1, keepdims=True)
    if not norms.all():
        raise BenchError(
            f"vector {int(np.argmin(norms)) + 1} of {len(x)} has length 0, so it has no direction"
        )
    units: NDArray[np.float64] = x / norms
    return units
